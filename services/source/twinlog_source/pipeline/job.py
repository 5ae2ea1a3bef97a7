"""A worker is one Spark job with one task: it asks its driver over gRPC what it has to copy, until it is let
go."""

from collections.abc import Iterable, Iterator

from pyspark import SparkContext

from twinlog_source.task.settings import WorkerSpec
from twinlog_source.task.stream.worker import run_worker


def run_job(context: SparkContext, spec: WorkerSpec, group: str) -> None:
    """Run a worker. Blocks for its whole life: call it in a separate thread.

    Raises pyspark's errors when the job fails or the worker is lost.
    """
    context.setJobGroup(group, f"copies what its driver orders ({group})", interruptOnCancel=False)
    context.parallelize([spec], 1).mapPartitions(_run).collect()


def load_workers(context: SparkContext) -> None:
    """Make Spark's fork server load the modules of the tasks, by an empty job. It takes a second or two, for
    which the first epoch would wait otherwise. Blocks."""
    context.setJobGroup("load workers", "Python workers are made ready", interruptOnCancel=False)
    context.parallelize([0], 1).mapPartitions(_nothing).collect()


def job_group(number: int, lent_to: str = "") -> str:
    """The job group by which a worker is killed. `lent_to`: the endpoint of its driver in another process."""
    return f"worker {number} of {lent_to}" if lent_to else f"worker {number}"


def _nothing(numbers: Iterable[int]) -> Iterator[int]:
    return iter(list(numbers))


def _run(specs: Iterable[WorkerSpec]) -> Iterator[int]:
    # Read the whole input first: Spark discards a worker with unread input after the job.
    for spec in list(specs):
        run_worker(spec)
        yield spec.number
