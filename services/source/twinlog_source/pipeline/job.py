"""One epoch is one Spark job with a task per slot. A task connects to its driver over gRPC, and copies until
it is told to end. Epochs of flows with little to copy share a job and a task."""

from collections.abc import Iterable, Iterator, Sequence

from pyspark import SparkContext

from twinlog_source.task.run import TaskOutcome, TaskSpec, run_task
from twinlog_source.task.shared_worker import run_tasks


def run_epoch(context: SparkContext, specs: Sequence[TaskSpec]) -> list[TaskOutcome]:
    """Run one task per spec, and return their outcomes. Blocks for the whole epoch: call it in a separate
    thread.

    Spark runs a lost task again (its worker was killed, or its executor is gone). Raises pyspark's errors
    when the job as a whole fails.
    """
    first = specs[0]
    group = job_group(first.flow_name, first.epoch)
    context.setJobGroup(group, f"epoch {first.epoch} of {first.flow_name}", interruptOnCancel=False)
    outcomes: list[TaskOutcome] = context.parallelize(specs, len(specs)).mapPartitions(_run_slot).collect()
    return outcomes


def run_together(context: SparkContext, specs: Sequence[TaskSpec]) -> list[TaskOutcome]:
    """Run the tasks of several flows in one Spark task, and return their outcomes. As `run_epoch`, but a lost
    task is restarted within the same Spark task."""
    first = specs[0]
    group = job_group(first.flow_name, first.epoch)
    context.setJobGroup(group, f"{len(specs)} flows with little to copy", interruptOnCancel=False)
    together = context.parallelize([tuple(specs)], 1)
    outcomes: list[TaskOutcome] = together.mapPartitions(_run_slots).collect()
    return outcomes


def load_workers(context: SparkContext) -> None:
    """Make Spark's fork server load the modules of the tasks, by an empty job. It takes a second or two, for
    which the first epoch would wait otherwise. Blocks."""
    context.setJobGroup("load workers", "Python workers are made ready", interruptOnCancel=False)
    context.parallelize([0], 1).mapPartitions(_nothing).collect()


def job_group(flow_name: str, epoch: int) -> str:
    """The job group by which the job of an epoch is cancelled."""
    return f"{flow_name} epoch {epoch}"


def _nothing(numbers: Iterable[int]) -> Iterator[int]:
    return iter(list(numbers))


def _run_slot(specs: Iterable[TaskSpec]) -> Iterator[TaskOutcome]:
    # Read the whole input first: Spark discards a worker with unread input after the job.
    for spec in list(specs):
        yield run_task(spec)


def _run_slots(together: Iterable[Sequence[TaskSpec]]) -> Iterator[TaskOutcome]:
    for specs in list(together):
        yield from run_tasks(specs)
