"""Epochs of several flows in one Spark job: each ends by itself, and a failure of the job is one of each."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from twinlog.errors import TwinlogError
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import eventually
from twinlog_source.driver.epoch import Epoch, SlotState
from twinlog_source.driver.shared_workers import FLOWS_PER_WORKER, seconds_to_renewal, shared_worker
from twinlog_source.pipeline.launch import SparkUnavailableError
from twinlog_source.pipeline.shared_jobs import SharedJobs

PLAN = ((TopicPartition("t", 0),),)


def epoch_of(source: str, *, number: int = 1, worker: int = 0) -> Epoch:
    return Epoch(flow=Flow(source, "hub"), number=number, plan=PLAN, shared_worker=worker)


@dataclass(slots=True)
class Spark:
    """Its jobs end when they are told to."""

    began: list[list[str]] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Exception | None = None
    cancelled: list[str] = field(default_factory=list)
    refusals: int = 0

    async def run_together(self, epochs: Sequence[Epoch]) -> None:
        self.began.append([epoch.flow.source for epoch in epochs])
        await self.may_end.wait()
        if self.failure is not None:
            raise self.failure

    async def cancel(self, epoch: Epoch) -> None:
        if self.refusals:
            self.refusals -= 1
            raise SparkUnavailableError("not now")
        self.cancelled.append(epoch.flow.source)
        self.failure = SparkUnavailableError("the job was cancelled")
        self.may_end.set()


async def test_epochs_that_begin_together_share_a_job_with_those_of_their_worker_only() -> None:
    spark = Spark()
    jobs = SharedJobs(run_together=spark.run_together, cancel=spark.cancel, gather_seconds=0.01)
    async with asyncio.TaskGroup() as group:
        for epoch in (epoch_of("a"), epoch_of("b"), epoch_of("z", worker=1)):
            group.create_task(jobs.run(epoch), name=epoch.flow.source)
        await eventually(lambda: len(spark.began) == 2)
        late = group.create_task(jobs.run(epoch_of("late")), name="late")
        await eventually(lambda: len(spark.began) == 3)
        assert not late.done()
        spark.may_end.set()
    assert sorted(spark.began) == [["a", "b"], ["late"], ["z"]]


async def test_an_epoch_ends_by_itself_while_the_others_of_its_job_continue() -> None:
    spark = Spark()
    jobs = SharedJobs(run_together=spark.run_together, cancel=spark.cancel, gather_seconds=0.01)
    over, stays = epoch_of("over"), epoch_of("stays")
    async with asyncio.TaskGroup() as group:
        ending = group.create_task(jobs.run(over), name="over")
        staying = group.create_task(jobs.run(stays), name="stays")
        await eventually(lambda: spark.began)
        assert jobs.first_of(stays) is over
        for epoch in (over, stays):
            epoch.move(epoch.slots[0], SlotState.RUNNING)
        over.end("EPOCH_OVER")
        assert not ending.done(), "its task has not said its last words"
        over.move(over.slots[0], SlotState.FINISHED)
        await ending
        assert not staying.done()
        spark.may_end.set()


async def test_a_job_that_fails_is_a_failure_of_each_of_its_epochs() -> None:
    spark = Spark(failure=SparkUnavailableError("Spark's JVM is gone"))
    jobs = SharedJobs(run_together=spark.run_together, cancel=spark.cancel, gather_seconds=0.01)
    spark.may_end.set()

    async def fails(epoch: Epoch) -> None:
        with pytest.raises(SparkUnavailableError, match="JVM is gone") as failure:
            await jobs.run(epoch)
        assert failure.value.reason == "SPARK_UNAVAILABLE"

    async with asyncio.TaskGroup() as group:
        for source in ("a", "b"):
            group.create_task(fails(epoch_of(source)), name=source)
    alone = epoch_of("c")
    assert jobs.first_of(alone) is alone


async def test_a_job_that_crashes_says_to_each_of_its_epochs_how() -> None:
    spark = Spark(failure=KeyError("a mistake of ours"))
    jobs = SharedJobs(run_together=spark.run_together, cancel=spark.cancel, gather_seconds=0.01)
    spark.may_end.set()
    async with asyncio.timeout(60):
        with pytest.raises(TwinlogError, match="KeyError: 'a mistake of ours'") as failure:
            await jobs.run(epoch_of("a"))
    assert failure.value.reason == "EPOCH_FAILED"


async def test_a_job_that_outlives_all_of_its_epochs_is_cancelled_and_no_other() -> None:
    spark = Spark(refusals=1)
    jobs = SharedJobs(
        run_together=spark.run_together, cancel=spark.cancel, gather_seconds=0.01, linger_seconds=0.001
    )
    over, stays = epoch_of("over"), epoch_of("stays")
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        ending = group.create_task(jobs.run(over), name="over")
        staying = group.create_task(jobs.run(stays), name="stays")
        await eventually(lambda: spark.began)
        stays.move(stays.slots[0], SlotState.RUNNING)
        over.end("EPOCH_OVER")
        await ending
        assert spark.refusals == 1, "nobody asked for it"
        stays.end("EPOCH_OVER")
        stays.move(stays.slots[0], SlotState.FINISHED)
        await staying
        await eventually(lambda: spark.cancelled)
    assert (spark.refusals, spark.cancelled) == (0, ["over"])


async def test_no_job_begins_once_spark_is_closed() -> None:
    spark = Spark()
    jobs = SharedJobs(run_together=spark.run_together, cancel=spark.cancel, gather_seconds=3600.0)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(jobs.run(epoch_of("a")), name="a")
        await eventually(lambda: jobs._gathering)
        async with asyncio.timeout(60):
            await jobs.close()
            await waiting
    assert not spark.began


def test_flows_of_a_worker_are_renewed_at_one_time_and_groups_one_after_the_other() -> None:
    def renewed_at(worker: int, began: float) -> float:
        return round(began + seconds_to_renewal(began, worker, longest_seconds=600.0), 6)

    assert {renewed_at(0, began) for began in (1201.0, 1500.5, 1799.9)} == {1800.0}
    assert {renewed_at(2, began) for began in (1241.0, 1500.5, 1839.9)} == {1840.0}
    assert seconds_to_renewal(5.0, 1, longest_seconds=0.0) == 0.0, "epochs may be as short as possible"


def test_flows_that_began_apart_come_together_soon() -> None:
    def renewed_at(began: float) -> float:
        return began + seconds_to_renewal(began, 1, longest_seconds=600.0, is_first=True)

    assert {renewed_at(began) for began in (1220.5, 1259.5, 1339.5)} == {1340.0}
    assert seconds_to_renewal(5.0, 0, longest_seconds=60.0, is_first=True) == 55.0


def test_few_flows_have_workers_of_their_own_and_many_share_them() -> None:
    assert {shared_worker(index, 4) for index in range(4)} == {None}
    workers = [shared_worker(index, 100) for index in range(100)]
    assert max(workers.count(worker) for worker in set(workers)) == FLOWS_PER_WORKER
    assert None not in workers
