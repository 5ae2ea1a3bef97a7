"""One epoch = one Spark job: a task per slot, which joins its driver over gRPC and copies until it is told
to end."""

from collections.abc import Iterable, Iterator, Sequence

from pyspark import SparkContext

from twinlog_source.task.run import TaskOutcome, TaskSpec, run_task


def run_epoch(context: SparkContext, specs: Sequence[TaskSpec]) -> list[TaskOutcome]:
    """Run one task per spec and return their outcomes. Blocks for the whole epoch: call it in a thread of
    its own.

    A task that is lost (its worker was killed, its executor is gone) is run again by Spark. Raises
    pyspark's errors when the job as a whole failed.
    """
    first = specs[0]
    group = job_group(first.flow_name, first.epoch)
    context.setJobGroup(group, f"epoch {first.epoch} of {first.flow_name}", interruptOnCancel=False)
    outcomes: list[TaskOutcome] = context.parallelize(specs, len(specs)).mapPartitions(_run_slot).collect()
    return outcomes


def job_group(flow_name: str, epoch: int) -> str:
    """By which the job of an epoch is cancelled."""
    return f"{flow_name} epoch {epoch}"


def _run_slot(specs: Iterable[TaskSpec]) -> Iterator[TaskOutcome]:
    # The whole input is read first: a worker with unread input is thrown away after the job.
    for spec in list(specs):
        yield run_task(spec)
