"""What every `Member` does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Set
from contextlib import asynccontextmanager

from contract.cluster.cluster_rig import ClusterRig
from twinlog.errors import TransientKafkaError
from twinlog.kafka.ports import Member, Pulse
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import eventually, unique_name

SESSION_SECONDS = 20.0


class MembershipContract:
    async def test_one_tells_each_its_part_from_what_all_say(self, rig: ClusterRig) -> None:
        async with members(rig, "one", "two", "three") as (one, two, three):
            assert (await one.join(says("one"))).assignment == b"one"
            assert await joined(one=one, two=two) == {"one": b"one two", "two": b"one two"}
            together = await joined(one=one, two=two, three=three)
            assert set(together.values()) == {b"one three two"}
            assert [await each.beat() for each in (one, two, three)] == [Pulse.SEATED] * 3

    async def test_a_member_says_something_else_by_joining_again(self, rig: ClusterRig) -> None:
        async with members(rig, "one", "two") as (one, two):
            await joined(one=one, two=two)
            assert await joined(one=one, other=two) == {"one": b"one other", "other": b"one other"}

    async def test_who_has_its_place_is_waited_for_by_one_that_comes(self, rig: ClusterRig) -> None:
        async with members(rig, "one", "two") as (one, two):
            first = await one.join(says("one"))
            async with asyncio.TaskGroup() as group:
                coming = group.create_task(two.join(says("two")), name="two joins")

                async def is_waited_for() -> bool:
                    return await one.beat() is Pulse.WAITED_FOR

                await eventually(is_waited_for)
                again = await one.join(lambda kept: b"still one" if kept else b"one")
                assert (await coming).generation == again.generation > first.generation
                assert again.assignment == b"still one two"

    async def test_the_others_go_on_without_one_that_has_left(self, rig: ClusterRig) -> None:
        async with members(rig, "one", "two") as (one, two):
            await joined(one=one, two=two)
            await one.withdraw()
            assert await joined(two=two) == {"two": b"two"}

    async def test_those_that_are_gone_are_put_out_and_nobody_else(self, rig: ClusterRig) -> None:
        gone: set[str] = set()
        async with members(rig, "ended", "alive", "after", gone=gone) as (ended, alive, after):
            await joined(ended=ended, alive=alive)
            gone.add("ended")
            async with asyncio.timeout(SESSION_SECONDS * 0.8):
                assert await joined(alive=alive) == {"alive": b"alive"}
                assert await joined(alive=alive, after=after) == dict.fromkeys(
                    ["alive", "after"], b"after alive"
                )

    async def test_who_starts_again_need_not_wait_for_its_own_session(self, rig: ClusterRig) -> None:
        async with members(rig, "ended", "after", gone={"ended"}) as (ended, after):
            await ended.join(says("ended"))
            async with asyncio.timeout(SESSION_SECONDS * 0.8):
                assert (await after.join(says("after"))).assignment == b"after"

    async def test_groups_know_nothing_of_each_other_but_may_ask(self, rig: ClusterRig) -> None:
        async with (
            members(rig, "one") as (one,),
            members(rig, "two", group_id=unique_name("other")) as (two,),
        ):
            assert (await one.join(says("one"))).assignment == b"one"
            assert (await two.join(says("two"))).assignment == b"two"
        group_id = unique_name("asked")
        async with members(rig, "one", group_id=group_id) as (one,), members(rig, "two") as (two,):
            await one.join(says("one"))
            assert await two.others([group_id]) == {group_id: (b"one",)}
            await one.withdraw()
            assert not (await two.others([group_id])).get(group_id)


def says(name: str) -> Callable[[bool], bytes]:
    return lambda _kept: name.encode()


def _assign(said: Mapping[str, bytes], _generation: int) -> Mapping[str, bytes]:
    return dict.fromkeys(said, b" ".join(sorted(said.values())))


@asynccontextmanager
async def members(
    rig: ClusterRig, *names: str, gone: Set[str] = frozenset(), group_id: str = ""
) -> AsyncIterator[list[Member]]:
    """Members of one group; those in `gone` count as ended."""
    group_id = group_id or unique_name("members")
    found = [
        rig.cluster.member(
            group_id,
            assign=_assign,
            session_seconds=SESSION_SECONDS,
            rebalance_seconds=SESSION_SECONDS,
            mark=name,
            is_gone=gone.__contains__,
        )
        for name in names
    ]
    await eventually(lambda: _groups_are_coordinated(rig))
    try:
        yield found
        assert group_id not in await rig.cluster.list_groups()
    finally:
        for member in found:
            await member.withdraw()


async def _groups_are_coordinated(rig: ClusterRig) -> bool:
    """A cluster that is new makes the topic of its coordinators first."""
    scout = rig.cluster.member(
        unique_name("scout"),
        assign=_assign,
        session_seconds=SESSION_SECONDS,
        rebalance_seconds=SESSION_SECONDS,
    )
    try:
        return bool((await scout.join(says("scout"))).assignment)
    except TransientKafkaError:
        return False
    finally:
        await scout.withdraw()


async def joined(**taking_part: Member) -> dict[str, bytes]:
    """What each is told once all of them, and nobody else, have their places in one generation."""
    told: dict[str, bytes] = {}
    agreed = asyncio.Event()

    async def take_part(name: str, member: Member) -> None:
        await member.others(())
        told[name] = (await member.join(says(name))).assignment
        while not agreed.is_set():
            if await member.beat() is not Pulse.SEATED:
                told[name] = (await member.join(says(name))).assignment
            if _is_agreed(told, taking_part):
                agreed.set()
            await wait_or_stop(agreed, 0.02)

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for name, member in taking_part.items():
            group.create_task(take_part(name, member), name=name)
    return told


def _is_agreed(told: Mapping[str, bytes], names: Collection[str]) -> bool:
    return len(told) == len(names) and set(told.values()) == {" ".join(sorted(names)).encode()}
