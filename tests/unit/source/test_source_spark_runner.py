"""A JVM that dies under several jobs is a failure of each of them, and of nothing else."""

import asyncio
import threading
from typing import Any

import pytest

from twinlog.clock import SystemClock
from twinlog.model import Flow, TopicPartition
from twinlog_source.epoch import Epoch
from twinlog_source.pipeline.runner import SparkRunner
from twinlog_source.pipeline.session import SparkUnavailableError


class LostContext:
    """A SparkContext whose JVM is gone. Its second job ends only once the first one had it closed: then
    pyspark itself fails at what the context has let go of."""

    def __init__(self) -> None:
        self._jobs = 0
        self._closed = threading.Event()

    def setJobGroup(self, *args: object, **options: object) -> None:  # noqa: N802
        """Named like pyspark's."""

    def parallelize(self, *args: object) -> Any:
        self._jobs += 1
        if self._jobs == 1:
            raise ConnectionRefusedError
        assert self._closed.wait(10)
        raise AttributeError("'NoneType' object has no attribute 'setCallSite'")

    def statusTracker(self) -> Any:  # noqa: N802
        raise ConnectionRefusedError

    def stop(self) -> None:
        self._closed.set()


async def test_two_jobs_that_lose_one_jvm_both_fail_as_spark_does() -> None:
    runner = SparkRunner(
        master="local[2]",
        threads=2,
        conf={},
        environment=dict,
        driver_endpoint=lambda: "127.0.0.1:1",
        log_level="INFO",
        clock=SystemClock(),
    )
    runner._context = LostContext()
    plan = ((TopicPartition("t", 0),),)
    epochs = [Epoch(flow=Flow("A", "B"), number=number, plan=plan) for number in (1, 2)]

    async def fails(epoch: Epoch) -> None:
        with pytest.raises(SparkUnavailableError, match=f"epoch {epoch.number} failed"):
            await runner.run(epoch)

    async with asyncio.TaskGroup() as group:
        for epoch in epochs:
            group.create_task(fails(epoch), name=f"epoch {epoch.number}")
    await runner.close()


async def test_what_is_wrong_with_a_job_itself_is_not_laid_at_sparks_door() -> None:
    class Broken:
        def setJobGroup(self, *args: object, **options: object) -> None:  # noqa: N802
            raise AttributeError("a mistake of ours")

        def stop(self) -> None:
            """Nothing runs."""

    runner = SparkRunner(
        master="local[1]",
        threads=1,
        conf={},
        environment=dict,
        driver_endpoint=lambda: "127.0.0.1:1",
        log_level="INFO",
        clock=SystemClock(),
    )
    runner._context = Broken()
    with pytest.raises(AttributeError, match="a mistake of ours"):
        await runner.run(Epoch(flow=Flow("A", "B"), number=1, plan=((TopicPartition("t", 0),),)))
    await runner.close()
