"""Tasks run in the workers that are there, and what a worker ran goes to another one when it is lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest

from twinlog.errors import NotFoundError, TransientKafkaError, TwinlogError
from twinlog.kafka.deadline import pause
from twinlog.model import Flow, TopicPartition
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.driver.epoch import Epoch, LastWords, SlotState
from twinlog_source.driver.epoch_rules import FLOWS_PER_WORKER, Need
from twinlog_source.driver.worker_pool import (
    BACK_SECONDS,
    COME_SECONDS,
    IDLE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST_WORKERS,
    SILENT_SECONDS,
    WorkerPool,
    Workers,
)
from twinlog_source.reasons import EndReason
from twinlog_source.task.stream.worker import SIGN_SECONDS
from unit.source.driver.one_core import WarmSpark


@dataclass(slots=True)  # Has no hash, as the real one.
class Cluster(WarmSpark):
    """Spark with so many cores, whose workers copy what they are told."""

    cores: int | None
    free: int
    is_up: bool = True
    pool: WorkerPool = field(init=False)
    running: dict[int, "asyncio.Task[None]"] = field(default_factory=dict)
    """The process of each worker that has a core."""
    began: Counter[int] = field(default_factory=Counter)
    """How many jobs of each worker."""
    queued: list[int] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    is_silent: set[int] = field(default_factory=set)
    hangs: set[int] = field(default_factory=set)
    """Their next processes never reach the driver."""
    stays: set[int] = field(default_factory=set)
    """Their processes do not end when they may."""
    crashes: bool = False
    """Their processes end as soon as they have come."""
    slept_seconds: float = 0.0
    """For how long the driver's process was suspended."""
    failure: TwinlogError | None = None
    is_resting: bool = False

    def __post_init__(self) -> None:
        self.pool = WorkerPool(workers=cast("Workers", self), clock=self)

    def monotonic(self) -> float:
        return LoopClock().monotonic() + self.slept_seconds

    def now_ms(self) -> int:
        return LoopClock().now_ms()

    async def run_worker(self, number: int, token: str) -> None:
        if self.failure is not None:
            raise self.failure
        while not self.is_up:
            await pause(0.1)
        self.began[number] += 1
        self.queued.append(number)
        try:
            while self.free <= 0 or self.queued[0] != number:
                await pause(0.01)
                if self.failure is not None:
                    raise self.failure
                if number in self.killed:
                    raise TransientKafkaError("killed", reason="SPARK_UNAVAILABLE")
        finally:
            self.queued.remove(number)
        self.free -= 1
        try:
            async with asyncio.TaskGroup() as group:
                process = self.running[number] = group.create_task(
                    self._work(number, token), name=f"process of worker {number}"
                )
                await asyncio.wait([process])
        finally:
            del self.running[number]
            self.free += 1
        if process.cancelled():
            raise TransientKafkaError("lost", reason="SPARK_UNAVAILABLE")

    async def rest(self) -> None:
        assert not self.running
        self.is_resting = True

    async def cluster_cores(self) -> int | None:
        return self.free + len(self.running)

    async def kill_worker(self, number: int) -> None:
        self.killed.add(number)
        if number in self.running:
            self.running[number].cancel()

    def lose(self, number: int) -> None:
        """Its executor is gone with its core."""
        self.running[number].cancel()
        self.free -= 1

    async def _work(self, number: int, token: str) -> None:
        if number in self.hangs:
            await asyncio.Event().wait()
        try:
            worker = self.pool.admit(number, token)
        except NotFoundError:
            return
        orders = self.pool.joined(worker)
        if self.crashes:
            self.pool.left(worker, orders)
            raise asyncio.CancelledError
        tasks: list[asyncio.Task[None]] = []

        async def sign() -> None:
            while True:
                if number not in self.is_silent:
                    self.pool.heard(worker)
                await pause(SIGN_SECONDS)

        try:
            async with asyncio.TaskGroup() as group:
                tasks.append(group.create_task(sign(), name="signs"))
                while (place := await orders.get()) is not None:
                    tasks.append(group.create_task(copy(*place), name="task"))
                if number in self.stays:
                    await asyncio.Event().wait()
                for task in tasks:
                    task.cancel()
        finally:
            self.pool.left(worker, orders)


async def copy(epoch: Epoch, index: int) -> None:
    slot = epoch.slots[index]
    try:
        epoch.move(slot, SlotState.RUNNING)
        await epoch.over.wait()
        slot.final = LastWords(reason=EndReason.END_OF_EPOCH)
        epoch.move(slot, SlotState.FINISHED)
    finally:
        if slot.state is not SlotState.FINISHED:
            epoch.move(slot, SlotState.LOST)


def epoch_of(name: str, slots: int, number: int = 1, *, is_small: bool = False) -> Epoch:
    plan = tuple((TopicPartition("t", each),) for each in range(slots))
    return Epoch(flow=Flow(name, "Z"), number=number, plan=plan, shares_worker=is_small)


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await pause(0.05)


@asynccontextmanager
async def living(*, free: int, cores: int | None = None) -> AsyncIterator[tuple[Cluster, asyncio.TaskGroup]]:
    cluster, stop = Cluster(cores, free), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        loop = group.create_task(cluster.pool.run_workers(stop), name="pool")
        yield cluster, group
        stop.set()
        await loop
        assert not cluster.running, "all have gone"


def places(cluster: Cluster) -> list[int]:
    """How many tasks each worker runs that has a core."""
    pool = cluster.pool._pool  # noqa: SLF001 (what it told whom)
    return sorted(len(pool[number].places) for number in cluster.running)


async def test_every_core_copies_while_the_next_epoch_takes_over_in_the_same_workers() -> None:
    async with living(free=6) as (cluster, group):
        pool, first, second = cluster.pool, epoch_of("A", 6), epoch_of("A", 6, 2)
        assert await pool.claim(first.flow, Need(8)) == 6
        group.create_task(pool.run(first), name="first")
        await until(lambda: first.are(SlotState.RUNNING))
        assert places(cluster) == [1] * 6
        group.create_task(pool.run(second), name="second")
        await until(lambda: second.are(SlotState.RUNNING))
        assert places(cluster) == [2] * 6
        assert not pool.is_crowded() or first.ending == ""
        first.end("EPOCH_OVER")
        await until(lambda: places(cluster) == [1] * 6)
        second.end("SHUTDOWN")


async def test_five_flows_on_three_executors_of_which_one_is_lost_and_one_comes() -> None:
    async with living(free=9) as (cluster, group):
        pool = cluster.pool
        needs = {"A": 8, "B": 8, "C": 1, "D": 1, "E": 1}
        for name, slots in needs.items():
            pool.share(Flow(name, "Z"), Need(slots))
        await until(lambda: len(cluster.running) == 9)
        shares = {name: await pool.claim(Flow(name, "Z"), Need(slots)) for name, slots in needs.items()}
        assert shares == {"A": 3, "B": 3, "C": 1, "D": 1, "E": 1}
        epochs = [epoch_of(name, slots) for name, slots in shares.items()]
        for epoch in epochs:
            group.create_task(pool.run(epoch), name=str(epoch.flow))
        await until(lambda: places(cluster) == [1] * 9)
        for number in list(cluster.running)[:3]:
            cluster.lose(number)
        await until(lambda: len(cluster.running) == 6)
        await until(lambda: sum(places(cluster)) == 9, BACK_SECONDS + 2)
        assert places(cluster) == [1, 1, 1, 2, 2, 2]
        assert pool.is_crowded()
        assert [pool.share(Flow(name, "Z"), Need(needs[name])) for name in needs] == [1, 2, 1, 1, 1]
        cluster.free += 3
        await until(lambda: not pool.is_crowded())
        assert [pool.share(Flow(name, "Z"), Need(needs[name])) for name in needs] == [3, 3, 1, 1, 1]
        for epoch in epochs:
            epoch.end("SHUTDOWN")


async def test_what_a_lost_worker_ran_waits_for_it_as_it_is_run_again_at_once() -> None:
    async with living(free=2) as (cluster, group):
        epoch = epoch_of("A", 2)
        await cluster.pool.claim(epoch.flow, Need(2))
        group.create_task(cluster.pool.run(epoch), name="run")
        await until(lambda: epoch.are(SlotState.RUNNING))
        number, process = next(iter(cluster.running.items()))
        process.cancel()
        await until(lambda: cluster.running.get(number) not in (None, process), BACK_SECONDS)
        await until(lambda: epoch.are(SlotState.RUNNING), BACK_SECONDS)
        assert places(cluster) == [1, 1]
        epoch.end("SHUTDOWN")


@pytest.mark.parametrize(("cores", "comes_first"), [(1, False), (1, True), (None, True)])
async def test_a_worker_that_does_not_come_is_killed_and_another_one_runs_its_task(
    cores: int | None, comes_first: bool
) -> None:
    async with living(cores=cores, free=2) as (cluster, group):
        epoch = epoch_of("A", 1)
        if comes_first:
            await cluster.pool.claim(epoch.flow, Need(1))
            await until(lambda: cluster.pool._here == 1)  # noqa: SLF001 (as `places`)
        cluster.hangs.add(1)
        if comes_first:
            cluster.running[1].cancel()
            await pause(0.1)
        cluster.pool.share(epoch.flow, Need(1))
        group.create_task(cluster.pool.run(epoch), name="run")
        await until(lambda: epoch.are(SlotState.RUNNING), COME_SECONDS + 5)
        epoch.end("SHUTDOWN")


@pytest.mark.parametrize("cores", [2, None])
async def test_no_worker_is_killed_while_spark_starts(cores: int | None) -> None:
    async with living(cores=cores, free=2) as (cluster, group):
        cluster.is_up = False
        epoch = epoch_of("A", 2)
        cluster.pool.share(epoch.flow, Need(2))
        group.create_task(cluster.pool.run(epoch), name="run")
        if cores is None:
            with pytest.raises(TransientKafkaError, match="Spark is still starting"):
                await cluster.pool.claim(epoch.flow, Need(2))
        await pause(3 * COME_SECONDS)
        cluster.is_up = True
        await until(lambda: epoch.are(SlotState.RUNNING))
        assert not cluster.killed
        epoch.end("SHUTDOWN")


async def test_a_worker_that_does_not_go_when_it_may_is_killed() -> None:
    async with living(free=1) as (cluster, _):
        cluster.pool.share(Flow("A", "Z"), Need(1))
        await until(lambda: cluster.pool._here == 1)  # noqa: SLF001 (as `places`)
        cluster.stays.add(1)
        cluster.pool.share(Flow("A", "Z"), None)
        await until(lambda: not cluster.running, IDLE_SECONDS + COME_SECONDS + 5)


async def test_the_earlier_process_of_a_worker_may_go_when_spark_has_run_it_again() -> None:
    async with living(free=1) as (cluster, _):
        pool = cluster.pool
        pool.share(Flow("A", "Z"), Need(1))
        await until(lambda: pool._here == 1)  # noqa: SLF001 (as `places`)
        (worker,) = pool._pool.values()  # noqa: SLF001 (as `places`)
        with pytest.raises(NotFoundError):
            pool.admit(worker.number, "gu\N{LATIN SMALL LETTER E WITH ACUTE}ss")
        earlier = worker.orders
        assert earlier is not None
        orders = pool.joined(worker)
        assert earlier.get_nowait() is None
        pool.left(worker, earlier)
        assert worker.orders is orders


async def test_no_worker_counts_as_frozen_because_the_driver_was_suspended() -> None:
    async with living(free=2) as (cluster, group):
        epoch = epoch_of("A", 2)
        await cluster.pool.claim(epoch.flow, Need(2))
        group.create_task(cluster.pool.run(epoch), name="run")
        await until(lambda: epoch.are(SlotState.RUNNING))
        cluster.slept_seconds += 2 * SILENT_SECONDS
        await pause(2 * SILENT_SECONDS)
        assert not cluster.killed
        assert not cluster.pool.was_awake(SILENT_SECONDS * 3)
        assert cluster.pool.was_awake(SILENT_SECONDS)
        epoch.end("SHUTDOWN")


async def test_a_worker_that_crashes_again_and_again_is_run_again_ever_later() -> None:
    async with living(free=1) as (cluster, _):
        cluster.crashes = True
        cluster.pool.share(Flow("A", "Z"), Need(1))
        await pause(20 * LONGEST_PAUSE_SECONDS)
        began = cluster.began.total()
        assert 20 < began < 30
        await until(lambda: cluster.began.total() > began)
        await pause(LONGEST_PAUSE_SECONDS - 1)
    assert cluster.began.total() == began + 1, "none begins while all go"


async def test_no_more_workers_are_wanted_than_a_process_has_threads() -> None:
    async with living(free=2 * MOST_WORKERS) as (cluster, _):
        for number in range(3):
            cluster.pool.share(Flow(f"S{number}", "Z"), Need(MOST_WORKERS))
        await until(lambda: len(cluster.running) == MOST_WORKERS, 5 * IDLE_SECONDS)
        await pause(5.0)
        assert not cluster.queued


async def test_flows_with_little_to_copy_share_a_worker() -> None:
    async with living(cores=2, free=100) as (cluster, group):
        pool = cluster.pool
        epochs = [epoch_of(f"S{number}", 1, is_small=True) for number in range(FLOWS_PER_WORKER + 1)]
        large = epoch_of("L", 2)
        for epoch in (*epochs, large):
            await pool.claim(epoch.flow, Need(len(epoch.slots), epoch.shares_worker))
            group.create_task(pool.run(epoch), name=str(epoch.flow))
        await until(lambda: places(cluster) == [1, 1, 1, FLOWS_PER_WORKER])
        for epoch in (*epochs, large):
            epoch.end("SHUTDOWN")


async def test_workers_that_nobody_needs_go() -> None:
    async with living(free=2) as (cluster, group):
        pool, epoch = cluster.pool, epoch_of("A", 2)
        pool.share(epoch.flow, Need(8))
        await until(lambda: len(cluster.running) == 2 and bool(cluster.queued))
        pool.share(epoch.flow, Need(1))
        group.create_task(pool.run(epoch), name="run")
        await until(lambda: epoch.are(SlotState.RUNNING))
        await pause(IDLE_SECONDS + 5)
        assert not cluster.queued, "so Spark asks for no more executors"
        epoch.end("EPOCH_OVER")
        await pause(IDLE_SECONDS + 5)
        assert len(cluster.running) == 1
        pool.share(epoch.flow, None)
        await until(lambda: not cluster.running)


async def test_a_process_that_copies_no_flow_gives_its_cores_back_at_once() -> None:
    async with living(free=2) as (cluster, _):
        pool, flow, other = cluster.pool, Flow("A", "Z"), Flow("B", "Z")
        for each in (flow, other):
            pool.warm_up(each, is_owner=True)
        cluster.is_resting = False
        pool.share(flow, Need(2))
        await until(lambda: len(cluster.running) == 2)
        pool.share(flow, None)
        pool.warm_up(flow, is_owner=False)
        await until(lambda: not cluster.running, IDLE_SECONDS / 2)
        await pause(IDLE_SECONDS)
        assert not cluster.is_resting, "the other one is copied here, and has no records yet"
        pool.warm_up(other, is_owner=False)
        await until(lambda: cluster.is_resting)


async def test_workers_leave_and_give_back_the_cores_through_which_records_are_changed() -> None:
    async with living(free=7) as (cluster, group):
        pool, epoch, need = cluster.pool, epoch_of("A", 3), Need(8, has_pipes=True)
        pool.share(epoch.flow, Need(8))
        await until(lambda: len(cluster.running) == 7)
        # Its records are changed now: three slots, three cores beside them, and one.
        pool.share(epoch.flow, need)
        await until(lambda: len(cluster.running) == 3)
        assert await pool.claim(epoch.flow, need) == 3
        group.create_task(pool.run(epoch), name="run")
        await until(lambda: epoch.are(SlotState.RUNNING))
        assert not pool.is_crowded()
        assert not cluster.queued, "it would have the next core that a job leaves"
        cluster.free += 2
        await until(lambda: pool.share(epoch.flow, need) == 4)
        cluster.free -= 4
        await until(lambda: pool.share(epoch.flow, need) == 2)
        assert pool.is_crowded()
        next_epoch = epoch_of("A", 2, 2)
        group.create_task(pool.run(next_epoch), name="next")
        epoch.end("EPOCH_OVER")
        await until(lambda: len(cluster.running) == 2)
        next_epoch.end("SHUTDOWN")


async def test_that_spark_has_not_started_has_one_reason() -> None:
    async with living(free=1) as (cluster, _):
        cluster.is_up = False
        with pytest.raises(TwinlogError, match="still starting") as raised:
            await cluster.pool.claim(Flow("A", "B"), Need(1))
        assert raised.value.reason == "SPARK_UNAVAILABLE"


async def test_a_cluster_without_a_free_core_is_said_and_a_failure_is_that_of_each_epoch_that_waits() -> None:
    async with living(free=0) as (cluster, _):
        pool, epoch = cluster.pool, epoch_of("A", 1)
        with pytest.raises(
            TwinlogError, match="no core is free, or the executor is still starting"
        ) as raised:
            await pool.claim(epoch.flow, Need(1))
        assert raised.value.reason == "EPOCH_NOT_READY"
        cluster.failure = TransientKafkaError("no Java", reason="SPARK_UNAVAILABLE")
        with pytest.raises(TwinlogError, match="no Java"):
            await pool.run(epoch)
        with pytest.raises(TwinlogError, match="no Java"):
            await pool.claim(epoch.flow, Need(1))
        with pytest.raises(NotFoundError):
            pool.admit(1_000, "guess")
        cluster.failure, cluster.free = None, 1
        assert await pool.claim(epoch.flow, Need(1)) == 1
