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
        await eventually(lambda: jobs.gathering)
        async with asyncio.timeout(60):
            await jobs.close()
            await waiting
    assert not spark.began


def renewed_at(began: float, worker: int, *, age: float = 10_000.0, longest: float = 600.0) -> float:
    left = seconds_to_renewal(began, worker, soonest_seconds=30.0, longest_seconds=longest, age_seconds=age)
    return round(began + left, 6)


def test_flows_of_a_worker_are_renewed_at_one_time_and_groups_one_after_the_other() -> None:
    assert {renewed_at(began, 0) for began in (1201.0, 1500.5, 1769.9)} == {1800.0}
    assert {renewed_at(began, 2) for began in (1241.0, 1500.5, 1809.9)} == {1840.0}
    assert renewed_at(5.0, 1, longest=0.0) == 5.0, "epochs may be as short as possible"


def test_an_epoch_that_would_be_renewed_too_soon_lasts_to_the_renewal_after() -> None:
    """Else it ended alone, between two renewals of its group."""
    assert {renewed_at(began, 0) for began in (1770.1, 1799.9)} == {2400.0}
    assert renewed_at(95.0, 0, age=5.0) == 240.0
    assert renewed_at(95.0, 0, longest=20.0) == 140.0


def test_flows_that_began_apart_come_together_soon() -> None:
    assert {renewed_at(began, 1, age=began - 1200.0) for began in (1220.5, 1259.5, 1305.5)} == {1340.0}
    assert {renewed_at(began, 1, age=began - 1200.0) for began in (1340.5, 1420.5)} == {1460.0}
    assert renewed_at(1460.5, 1, age=260.5) == 1820.0, "with those that began later: for good"
    assert renewed_at(5.0, 0, age=5.0, longest=60.0) == 60.0


@pytest.mark.parametrize(("longest_seconds", "together"), [(3600.0, 4), (0.0, 1)])
async def test_a_job_begins_once_no_flow_joins_it_any_more_or_it_has_waited_long(
    longest_seconds: float, together: int
) -> None:
    spark = Spark()
    late = [epoch_of(f"late {number}") for number in range(3)]

    async def pause(_: asyncio.Event, __: float) -> bool:
        if late:
            waiting = len(jobs.waiting_or_running)
            group.create_task(jobs.run(late.pop()), name="late")
            await eventually(lambda: len(jobs.waiting_or_running) > waiting)
        return False

    jobs = SharedJobs(
        run_together=spark.run_together,
        cancel=spark.cancel,
        longest_gather_seconds=longest_seconds,
        pause=pause,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(jobs.run(epoch_of("first")), name="first")
        await eventually(lambda: spark.began)
        spark.may_end.set()
    assert [len(epochs) for epochs in spark.began] == [together]


def test_few_flows_have_workers_of_their_own_and_many_share_them() -> None:
    assert {shared_worker(index, 4) for index in range(4)} == {None}
    workers = [shared_worker(index, 100) for index in range(100)]
    assert max(workers.count(worker) for worker in set(workers)) == FLOWS_PER_WORKER
    assert None not in workers
