"""What every `Candidate` does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Set
from contextlib import asynccontextmanager

from contract.cluster.cluster_rig import ClusterRig
from twinlog.errors import TransientKafkaError
from twinlog.kafka.ports import Candidate, ElectionResult
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import eventually, unique_name

SESSION_SECONDS = 20.0


class ElectionContract:
    async def test_the_first_leads_and_stays_the_leader(self, rig: ClusterRig) -> None:
        async with candidates(rig, "one", "two", "three") as (one, two, three):
            assert await one.stand() == ElectionResult(leads=True, leader="one")
            assert await stand_together(one, two) == [True, False]
            assert await stand_together(one, two, three) == [True, False, False]
            assert await two.stand() == ElectionResult(leads=False, leader="one")

    async def test_another_leads_once_the_leader_has_left(self, rig: ClusterRig) -> None:
        async with candidates(rig, "one", "two") as (one, two):
            assert await one.stand() == ElectionResult(leads=True, leader="one")
            assert await stand_together(one, two) == [True, False]
            await one.withdraw()
            assert await stand_together(two) == [True]
            assert await stand_together(two, one) == [True, False]

    async def test_who_enters_puts_out_those_that_are_gone_and_nobody_else(self, rig: ClusterRig) -> None:
        gone: set[str] = set()
        async with candidates(rig, "ended", "alive", "after", gone=gone) as (ended, alive, after):
            assert (await ended.stand()).leads
            assert await stand_together(ended, alive) == [True, False]
            gone.add("ended")
            async with asyncio.timeout(SESSION_SECONDS * 0.8):
                assert await stand_together(alive, after) == [True, False]

    async def test_who_stands_by_puts_out_a_leader_that_is_gone(self, rig: ClusterRig) -> None:
        gone: set[str] = set()
        async with candidates(rig, "ended", "alive", gone=gone) as (ended, alive):
            assert (await ended.stand()).leads
            assert await stand_together(ended, alive) == [True, False]
            gone.add("ended")
            async with asyncio.timeout(SESSION_SECONDS * 0.8):
                assert await stand_together(alive) == [True]

    async def test_who_starts_again_need_not_wait_for_its_own_session(self, rig: ClusterRig) -> None:
        async with candidates(rig, "ended", "after", gone={"ended"}) as (ended, after):
            assert (await ended.stand()).leads
            async with asyncio.timeout(SESSION_SECONDS * 0.8):
                assert await after.stand() == ElectionResult(leads=True, leader="after")

    async def test_groups_know_nothing_of_each_other_and_are_no_consumers(self, rig: ClusterRig) -> None:
        async with candidates(rig, "one") as (one,), candidates(rig, "two") as (two,):
            assert (await one.stand()).leads
            assert (await two.stand()).leads
            await one.withdraw()
            await two.withdraw()


@asynccontextmanager
async def candidates(
    rig: ClusterRig, *names: str, gone: Set[str] = frozenset()
) -> AsyncIterator[list[Candidate]]:
    """Candidates of one group; those in `gone` count as ended."""
    group_id = unique_name("election")

    def called(name: str) -> Callable[[], str]:
        return lambda: name

    found = [
        rig.cluster.candidate(
            group_id,
            name=called(name),
            session_seconds=SESSION_SECONDS,
            mark=name,
            is_gone=gone.__contains__,
        )
        for name in names
    ]
    await eventually(lambda: _elections_are_held(rig))
    try:
        yield found
        assert group_id not in await rig.cluster.list_groups()
    finally:
        for candidate in found:
            await candidate.withdraw()


async def _elections_are_held(rig: ClusterRig) -> bool:
    """A cluster that is new makes the topic of its coordinators first."""
    scout = rig.cluster.candidate(unique_name("scout"), name=lambda: "scout", session_seconds=SESSION_SECONDS)
    try:
        return (await scout.stand()).leads
    except TransientKafkaError:
        return False
    finally:
        await scout.withdraw()


async def stand_together(*standing: Candidate) -> list[bool]:
    """Everybody stands again and again until all have heard of one and the same leader: who leads."""
    heard: dict[int, ElectionResult] = {}
    agreed = asyncio.Event()

    async def stand(index: int, candidate: Candidate) -> None:
        while not agreed.is_set():
            heard[index] = await candidate.stand()
            leaders = [each.leads for each in heard.values()]
            if len(heard) == len(standing) and leaders.count(True) == 1:
                agreed.set()
            await wait_or_stop(agreed, 0.02)

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for index, candidate in enumerate(standing):
            group.create_task(stand(index, candidate), name=f"candidate {index}")
    return [heard[index].leads for index in range(len(standing))]
