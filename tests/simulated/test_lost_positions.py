"""The positions topic of a flow is deleted while nothing runs."""

from pathlib import Path

import pytest

from simulated import histories
from simulated.both_ways_rig import (
    FILE,
    all_once,
    both_have_all,
    orders_on_all,
    stands_still,
    values,
    write,
)
from simulated.histories import DEFAULT
from simulated.test_held_before import foreign
from simulated.test_steering import scope
from simulated.world import SERVICES, World, live, lives_in
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.api.source.v1.source_service_pb2 import ListPartitionsRequest


async def stop_and_lose_positions(world: World, *more: str) -> None:
    """`more`: topics on A that are lost, too."""
    for name in list(world.services):
        await world.stop(name)
    world.on["B"].cluster.delete_topic("mm2-offsets.A.internal")
    for topic in more:
        world.on["A"].cluster.delete_topic(topic)


@pytest.mark.parametrize("sides", ["A", "AB"])
def test_a_flow_that_lost_its_positions_and_syncs_does_not_say_that_it_has_copied_nothing(
    tmp_path: Path, sides: str
) -> None:
    async def life() -> None:
        file = FILE + "twinlog.offsets = translated\nA.consumer.auto.offset.reset = latest\n"
        async with orders_on_all(tmp_path, seed=5, file=file) as world:
            world.start(*SERVICES)
            await world.pause(20)
            await write(world, range(10), partitions=1, to=sides)
            await all_once(world, 10 * len(sides))
            await stop_and_lose_positions(world, "mm2-offset-syncs.B.internal")
            world.on["A"].commit("everything", "orders", {0: 3})
            read = {value for _, value in values(world, "A")[:3]}
            world.start(*SERVICES)
            for _ in range(2):
                await world.pause(60)
                place = world.on["B"].committed("everything").get(("orders", 0), 0)
                assert {each.value for each in world.on["B"].read("orders") if each.offset < place} <= read
                await world.kill("source")
                world.start("source")

    live(life())


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_copy_with_offsets_of_its_own_whose_position_was_lost_waits_until_it_is_told(
    tmp_path: Path, policy: str
) -> None:
    """It was copied again, and the records before were told as another's."""

    async def life() -> None:
        async with World(tmp_path, DEFAULT + "twinlog.offsets = translated\n", seed=3) as world:
            a, b = world.on["A"], world.on["B"]
            for topic in ("orders", "orders.later"):
                a.cluster.create_topic(topic, configs={"cleanup.policy": policy})
            for number in range(3):
                a.produce("orders", 0, b"%d" % number, key=b"%d" % number)
            world.start(*SERVICES)
            await histories.copied(world, prefix="A.")
            await world.pause(20)
            await stop_and_lose_positions(world)
            a.produce("orders", 0, b"3", key=b"3")
            a.produce("orders.later", 0, b"later", key=b"l")
            world.start(*SERVICES)
            await histories.copied(world, "orders.later", prefix="A.")
            await world.kill("source")
            world.start("source")
            await world.pause(60)
            assert [seen.value for seen in b.read("A.orders")] == [b"0", b"1", b"2"]
            asked = ListPartitionsRequest(flow=scope("orders").flow, source_topic="orders")
            (told,) = (await world.order("ListPartitions", asked)).partitions
            assert (told.reason, told.foreign_records) == ("NO_POSITION", 0)
            assert (
                "A.orders-0 on B has records of the flow, whose position was lost, or which took a route"
                in (told.message)
            )
            assert await foreign(world) == []
            move = source.SetPositionsRequest(scope=scope("orders"), by="ann")
            move.target.offset = 3
            assert (await world.order("SetPositions", move)).applied
            await histories.copied(world, prefix="A.")
            await world.kill("source")
            world.start("source")
            a.produce("orders", 0, b"4", key=b"4")
            await histories.copied(world, prefix="A.")
            assert await foreign(world) == []

    live(life())


@pytest.mark.parametrize("after", ["nobody", "an application"])
@lives_in(World, DEFAULT + "twinlog.offsets = translated\n", seed=3)
async def test_a_process_that_was_killed_in_the_first_round_of_a_copy_has_lost_no_position(
    world: World, *, after: str
) -> None:
    """What it wrote was aborted, and no position was stored with it."""
    a, b = world.on["A"], world.on["B"]
    a.cluster.create_topic("orders")
    a.produce("orders", 0, b"0", b"1")
    with world.kafka["B"].faults.during(api="end_txn", swallows_unseen=True):
        world.start(*SERVICES)
        await world.until(lambda: sum(b.ends("A.orders")))
        await world.kill("source")
    theirs = [b"theirs"] if after == "an application" else []
    for each in theirs:
        b.produce("A.orders", 0, each)
    world.start("source")
    await world.pause(60)
    read = values(world, "B", "A.orders")
    assert (len(read), {value for _, value in read}) == (2 + len(theirs), {b"0", b"1", *theirs})


@lives_in(orders_on_all, seed=5)
async def test_a_flow_of_a_topic_that_is_copied_both_ways_that_lost_its_positions_doubles_nothing(
    world: World,
) -> None:
    """Applications wrote last to the copy: the flow back tells that there were copies."""
    world.start(*SERVICES)
    await write(world, range(10), partitions=1)
    await all_once(world, 20)
    await stop_and_lose_positions(world)
    await write(world, range(10, 12), partitions=1)
    world.start(*SERVICES)
    await world.pause(60)
    assert sorted(values(world, "B")) == sorted({*values(world, "B")})
    for here, there in (("A", "B"), ("B", "A")):
        move = source.SetPositionsRequest(scope=scope("orders", here, there), by="ann")
        next_ = next(each for each in world.on[here].read("orders") if each.value == b"%s10" % here.encode())
        move.target.offset = next_.offset
        assert (await world.order("SetPositions", move)).applied
    await all_once(world, 24)
    await world.kill("source")
    world.start("source")
    await all_once(world, 24)


@pytest.mark.parametrize("wrote_last", ["the flow", "an application"])
def test_copies_of_a_flow_back_that_lost_its_positions_are_its_own_for_a_flow_that_had_judged_none(
    tmp_path: Path, wrote_last: str
) -> None:
    """They counted as there before the flow, and came back."""

    async def life() -> None:
        async with orders_on_all(tmp_path, seed=5, file=FILE + "twinlog.offsets = translated\n") as world:
            world.start(*SERVICES)
            await world.pause(20)
            pause = source.PauseReplicationRequest(scope=scope("orders"), by="ann")
            await world.order("PauseReplication", pause)
            await write(world, range(10), partitions=1, to="B")
            await world.until(lambda: len(values(world, "A")) == 10)
            here = range(10, 11 if wrote_last == "an application" else 10)
            await write(world, here, partitions=1, to="A")
            for name in list(world.services):
                await world.stop(name)
            world.on["A"].cluster.delete_topic("mm2-offsets.B.internal")
            world.start(*SERVICES)
            await world.pause(30)
            resume = source.ResumeReplicationRequest(scope=scope("orders"), by="ann")
            await world.order("ResumeReplication", resume)
            await world.pause(30)
            assert both_have_all(world)
            asked = ListPartitionsRequest(flow=scope("heartbeats").flow, source_topic="heartbeats")
            assert [each.reason for each in (await world.order("ListPartitions", asked)).partitions] == [""]

    live(life())


@lives_in(orders_on_all, seed=8)
async def test_a_target_that_was_built_again_gets_all_though_applications_wrote_there_first(
    world: World,
) -> None:
    world.start(*SERVICES)
    await write(world, range(5), partitions=1)
    await all_once(world, 10)
    for name in list(world.services):
        await world.stop(name)
    b = world.on["B"].cluster
    for topic in list(b.topics):
        b.delete_topic(topic)
    b.create_topic("orders")
    await write(world, range(5, 8), partitions=1)
    world.start(*SERVICES)
    await world.until(lambda: len(values(world, "A")) == len(values(world, "B")) == 16)
    await stands_still(world)
    assert both_have_all(world)
