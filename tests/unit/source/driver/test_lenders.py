"""Workers on the cores of a lender: one that has come is a core, and a lost lender is a lost executor."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from twinlog.kafka.deadline import pause
from twinlog.model import Flow
from twinlog_source.driver.epoch import SlotState
from twinlog_source.driver.epoch_rules import Need
from twinlog_source.driver.lender import EndWorker, Lender, RunWorker
from twinlog_source.driver.worker_pool import SILENT_SECONDS
from unit.source.driver.test_worker_pool import Cluster, epoch_of, living, places, until

FLOW = Flow("A", "Z")
OWN = 2
NEED = Need(8, follows_cores=True)


async def lend(cluster: Cluster, lender: Lender, dead: set[int]) -> None:
    """Run what the lender is told, until cancelled; those of `dead` never come."""
    jobs: dict[int, asyncio.Task[None]] = {}

    async def work(number: int, token: str) -> None:
        if number not in dead:
            await cluster._work(number, token)  # noqa: SLF001 (the same process at another place)
            lender.ended(number)

    async with asyncio.TaskGroup() as group:
        while True:
            match await lender.orders.get():
                case RunWorker(number, token):
                    jobs[number] = group.create_task(work(number, token), name=f"lent {number}")
                case EndWorker(number):
                    jobs[number].cancel()


@asynccontextmanager
async def lending(*, dead: tuple[int, ...] = ()) -> AsyncIterator[tuple[Cluster, Lender, asyncio.TaskGroup]]:
    lender = Lender(name="other:17401", cores=2, flows=frozenset({FLOW}))
    async with asyncio.TaskGroup() as lenders:
        async with living(free=OWN, cores=OWN) as (cluster, group):
            lends = lenders.create_task(lend(cluster, lender, {*dead}), name="lender")
            cluster.pool.lenders.append(lender)
            yield cluster, lender, group
        lends.cancel()


async def test_cores_are_borrowed_once_the_own_ones_copy_and_shared_by_the_flows() -> None:
    async with lending() as (cluster, lender, _):
        pool = cluster.pool
        assert pool.share(FLOW, NEED) == OWN + 2
        await until(lambda: sorted(lender.running) == [3, 4])
        assert sorted(cluster.running) == [1, 2]
        other = Flow("B", "Z")
        assert pool.share(other, Need(1, follows_cores=True)) == 1
        assert pool.share(FLOW, NEED) == OWN, "it reaches no B"
        lender.flows = frozenset({FLOW, other})
        assert pool.share(FLOW, NEED) == OWN + 2, "the other one needs none of its cores"
        assert pool.share(other, NEED) == OWN + 1
        pool.share(other, None)
        assert pool.share(FLOW, Need(8)) == 8, "the file says so"


async def test_a_lender_that_goes_leaves_no_slot_behind_and_the_flow_is_crowded() -> None:
    async with lending() as (cluster, lender, group):
        pool, epoch = cluster.pool, epoch_of("A", 4)
        pool.share(FLOW, NEED)
        group.create_task(pool.run(epoch), name="run")
        await until(lambda: epoch.are(SlotState.RUNNING) and len(lender.running) == 2)
        assert not pool.is_crowded()
        pool.lenders.remove(lender)
        lender.gone()
        pool.lent(lender)
        await until(lambda: places(cluster) == [2, 2], 3)
        assert pool.is_crowded()
        assert pool.share(FLOW, NEED) == OWN
        await until(lambda: epoch.are(SlotState.RUNNING), 3)
        epoch.end("SHUTDOWN")


async def test_lenders_are_told_how_many_cores_are_wanted_beyond_those_of_the_ones_before_them() -> None:
    async with lending(dead=(3, 4)) as (cluster, lender, _):
        pool, later = cluster.pool, Lender(name="third:17401", cores=3, flows=frozenset({FLOW}))
        stranger = Lender(name="fourth:17401", cores=1)
        pool.lenders += [stranger, later]
        pool.share(FLOW, Need(8))
        await until(lambda: (lender.wanted, later.wanted) == (6, 4), 5)
        assert stranger.wanted == 0, "it does not reach the clusters"
        pool.share(FLOW, NEED)
        lender.cores = 8
        await until(lambda: (lender.wanted, later.wanted) == (6, 0), 5)
        pool.share(FLOW, Need(1))
        await until(lambda: lender.wanted == 0, 5)


async def test_a_silent_worker_of_a_lender_is_given_up_and_killed() -> None:
    async with lending() as (cluster, lender, group):
        epoch = epoch_of("A", 4)
        cluster.pool.share(FLOW, NEED)
        group.create_task(cluster.pool.run(epoch), name="run")
        await until(lambda: epoch.are(SlotState.RUNNING) and len(lender.running) == 2)
        cluster.is_silent.add(3)
        await until(lambda: 3 not in lender.running, SILENT_SECONDS + 5)
        await until(lambda: epoch.are(SlotState.RUNNING) and sorted(lender.running) == [4, 5])
        assert places(cluster) == [1, 1]
        epoch.end("SHUTDOWN")


async def test_workers_that_never_come_from_a_lender_fail_no_epoch() -> None:
    async with lending(dead=(3, 4)) as (cluster, lender, group):
        pool, epoch = cluster.pool, epoch_of("A", 4)
        pool.share(FLOW, NEED)
        running = group.create_task(pool.run(epoch), name="run")
        await until(lambda: len(lender.running) == 2)
        pool.lenders.remove(lender)
        lender.gone()
        pool.lent(lender)
        await until(lambda: epoch.are(SlotState.RUNNING), 5)
        assert not running.done()
        epoch.end("SHUTDOWN")


async def test_cores_that_a_lender_wants_back_finish_their_epoch_and_get_none_any_more() -> None:
    async with lending() as (cluster, lender, group):
        pool, first, second = cluster.pool, epoch_of("A", 4), epoch_of("A", 3, 2)
        pool.share(FLOW, NEED)
        group.create_task(pool.run(first), name="first")
        await until(lambda: first.are(SlotState.RUNNING) and len(lender.running) == 2)
        lender.cores = 0
        pool.lent(lender)
        await pause(5)
        assert sorted(lender.running) == [3, 4], "what it runs is not cut off"
        assert pool.share(FLOW, NEED) == OWN
        assert pool.is_crowded()
        group.create_task(pool.run(second), name="second")
        await until(lambda: second.are(SlotState.RUNNING))
        first.end("EPOCH_OVER")
        await until(lambda: not lender.running, 5)
        assert second.are(SlotState.RUNNING)
        second.end("SHUTDOWN")
