"""One epoch = one Spark job: a task per slot, which joins its driver over gRPC and copies until it is told
to end. Epochs of flows with little to copy share a job, and a task."""

from collections.abc import Iterable, Iterator, Sequence

from pyspark import SparkContext

from twinlog_source.task.run import TaskOutcome, TaskSpec, run_task
from twinlog_source.task.shared_worker import run_tasks


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


def run_together(context: SparkContext, specs: Sequence[TaskSpec]) -> list[TaskOutcome]:
    """Run the tasks of several flows in one Spark task; their outcomes. As `run_epoch`, but that a task that
    is lost is run again in its place."""
    first = specs[0]
    group = job_group(first.flow_name, first.epoch)
    context.setJobGroup(group, f"{len(specs)} flows with little to copy", interruptOnCancel=False)
    together = context.parallelize([tuple(specs)], 1)
    outcomes: list[TaskOutcome] = together.mapPartitions(_run_slots).collect()
    return outcomes


def load_workers(context: SparkContext) -> None:
    """Have Spark's fork server load what tasks need, by a job that does nothing: it takes a second or two,
    and else the first epoch waits for it. Blocks."""
    context.setJobGroup("load workers", "Python workers are made ready", interruptOnCancel=False)
    context.parallelize([0], 1).mapPartitions(_nothing).collect()


def job_group(flow_name: str, epoch: int) -> str:
    """By which the job of an epoch is cancelled."""
    return f"{flow_name} epoch {epoch}"


def _nothing(numbers: Iterable[int]) -> Iterator[int]:
    return iter(list(numbers))


def _run_slot(specs: Iterable[TaskSpec]) -> Iterator[TaskOutcome]:
    # The whole input is read first: a worker with unread input is thrown away after the job.
    for spec in list(specs):
        yield run_task(spec)


def _run_slots(together: Iterable[Sequence[TaskSpec]]) -> Iterator[TaskOutcome]:
    for specs in list(together):
        yield from run_tasks(specs)
