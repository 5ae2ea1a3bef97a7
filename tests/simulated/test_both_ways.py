"""The same topic names on both clusters, copied both ways."""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from simulated.both_ways_rig import (
    FILE,
    ONE_WAY,
    all_once,
    both_have_all,
    in_order,
    orders_on_all,
    skipped,
    stands_still,
    values,
    verified,
    write,
)
from simulated.test_steering import scope
from simulated.world import SERVICES, World, live, lives_in
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.model import Flow
from twinlog.testing.broker.compaction import compact


@lives_in(orders_on_all, seed=3, partition_count=2)
async def test_both_sides_write_and_have_every_record_once(world: World) -> None:
    await write(world, range(4), seconds=0)
    world.start(*SERVICES)
    await all_once(world, 8)
    await write(world, range(4, 12))
    await all_once(world, 24)
    assert not [each for each in world.logged if each["level"] in ("warning", "error", "critical")]


@pytest.mark.parametrize("written_since", [0, 2])
@lives_in(orders_on_all, seed=3, partition_count=2)
async def test_a_positions_topic_that_is_deleted_holds_the_flow_back_up_until_it_is_written_again(
    world: World, *, written_since: int
) -> None:
    """It has the ids by which the flow back knows copies."""
    world.start("configsync", "source")
    await write(world, range(4))
    await all_once(world, 8)
    world.on["B"].cluster.delete_topic("mm2-offsets.A.internal")
    await write(world, range(4, 4 + written_since))
    await world.pause(60)
    await write(world, range(10, 14))
    await all_once(world, 16 + 2 * written_since)
    await world.kill("source")
    world.start("source")
    await write(world, range(14, 16))
    await all_once(world, 20 + 2 * written_since)


@lives_in(World, FILE, seed=5)
async def test_kills_and_restarts_repeat_and_lose_nothing(world: World) -> None:
    world.on["A"].cluster.create_topic("orders", partition_count=2)
    world.start("configsync", "source")
    await world.until(lambda: world.on["B"].cluster.topics.get("orders"))
    done = 0
    for kill in (world.kill_tasks, lambda: world.kill("source"), lambda: world.stop("source")) * 2:
        await write(world, range(done, done + 6), seconds=0.1)
        await kill()
        await write(world, range(done + 6, done + 8), seconds=0.1)
        done += 8
        if "source" not in world.services:
            world.start("source")
        await write(world, range(done, done + 2), seconds=0.5)
        done += 2
    await all_once(world, 2 * done)


@pytest.mark.parametrize(("seed", "ways"), [*((seed, 2) for seed in range(4)), (0, 1), (1, 1)])
def test_a_topic_that_is_created_again_while_it_is_written_gets_everything_once(
    tmp_path: Path, seed: int, ways: int
) -> None:
    """Also where configsync looks at topics much later. What nobody had copied is lost with the topic. One
    way the copy keeps the offsets."""
    random = Random(seed)
    file = FILE if ways == 2 else ONE_WAY
    rarely = file.replace("refresh.topics.interval.seconds = 10", "refresh.topics.interval.seconds = 600")
    sides = "AB"[:ways]

    async def life() -> None:
        async with orders_on_all(
            tmp_path, seed=seed, file=random.choice((file, rarely)), partition_count=2
        ) as world:
            emptied, other = random.sample(("A", "B"), 2) if ways == 2 else ("B", "A")
            world.start("configsync", "source")
            await write(world, range(20), seconds=0.3, to=sides)
            world.on[emptied].cluster.delete_topic("orders")
            for number in range(20, 20 + random.randrange(8)):
                world.on[other].produce("orders", number % 2, f"{other}{number}".encode())
                await world.pause(0.3 * random.random())
            if not world.on[emptied].ends("orders"):
                world.on[emptied].cluster.create_topic("orders", partition_count=2)
            await write(world, range(30, 90), seconds=0.2, to=sides)
            await world.until(lambda: both_have_all(world))
            await stands_still(world)
            assert both_have_all(world)
            assert in_order(world, emptied, other.encode())
            assert all(in_order(world, other, origin) for origin in (b"A", b"B"))
            assert ways == 2 or world.on["A"].ends("orders") == world.on["B"].ends("orders")
            for origin in sides:
                later = {f"{origin}{number}".encode() for number in range(30, 90)}
                assert later <= {value for _, value in values(world, "A")}

    live(life())


@lives_in(World, FILE, seed=14)
async def test_copies_keep_their_offsets_until_the_other_side_writes(world: World) -> None:
    async def copy(world: World) -> tuple[str, int]:
        asked = source.ListPartitionsRequest(flow=scope("orders").flow, source_topic="orders")
        (told,) = (await world.order("ListPartitions", asked)).partitions
        return told.offsets_reason, told.offsets_since

    a, b = world.on["A"], world.on["B"]
    a.cluster.create_topic("orders")
    a.produce("orders", 0, b"A0", b"A1", b"A2")
    world.start(*SERVICES)
    await world.until(lambda: len(values(world, "B")) == 3)
    await world.pause(30)
    assert await copy(world) == ("", 0)
    await world.kill_tasks()
    a.transaction("orders", b"A3", b"A4")
    a.commit("readers", "orders", {0: 4})
    await world.until(lambda: b.committed("readers"))
    assert b.committed("readers")["orders", 0] == 4
    assert a.ends("orders") == b.ends("orders") == [6], "also the marker has its offset"
    for number in range(5, 10):
        a.produce("orders", 0, b"A%d" % number)
        b.produce("orders", 0, b"B%d" % number)
        await world.pause(0.3)
    await all_once(world, 15)
    reason, since = await copy(world)
    assert (reason, since) == ("BOTH_WAYS", 6), "the offset at which the other side began is recorded"
    await world.pause(30)
    assert not skipped(world, "everything")
    await world.kill("source")
    for flow in (Flow("A", "B"), Flow("B", "A")):
        assert await verified(world, flow) == ("EQUAL", 0)
    assert not [each for each in world.logged if each["level"] in ("error", "critical")]


@lives_in(orders_on_all, seed=15)
async def test_a_copy_that_gets_offsets_of_its_own_while_verify_waits_for_it_is_equal(world: World) -> None:
    a, b = world.on["A"], world.on["B"]
    world.start(*SERVICES)
    await world.pause(20)
    await world.kill("source")
    a.produce("orders", 0, b"A0", b"A1", b"A2")
    b.produce("orders", 0, b"B0", b"B1")
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(verified(world, Flow("B", "A"), complete=False), name="verify")
        await world.pause(2)
        world.start("source")
    assert asked.result() == ("EQUAL", 0)
    assert values(world, "A") != values(world, "B"), "each has its own order"


@pytest.mark.parametrize("seconds", [0.5, 15])
def test_rules_that_make_a_topic_go_both_ways_while_both_sides_write(tmp_path: Path, seconds: float) -> None:
    """One after the other, in both orders: nothing is copied round, and each record is once on each side."""
    bills = FILE.replace("topics = orders.*", "topics = bills")

    async def life() -> None:
        async with orders_on_all(tmp_path, seed=23, file=bills, partition_count=2) as world:
            world.start(*SERVICES)
            await world.until(lambda: world.services and world.now() > 20)
            await write(world, range(10), seconds=0)
            async with asyncio.TaskGroup() as group:
                group.create_task(write(world, range(10, 100), seconds=0.5), name="applications")
                for flow in ("B->A", "A->B") if seconds < 1 else ("A->B", "B->A"):
                    await world.pause(seconds)
                    await world.rule(flow, "topics", "orders")
            await all_once(world, 200)
            assert not [each for each in world.logged if each["level"] in ("error", "critical")]

    live(life())


def test_names_that_change_both_ways_and_topics_that_one_flow_alone_copies(tmp_path: Path) -> None:
    file = FILE.replace("topics = orders.*\n", "A->B.topics = orders.*, bills\nB->A.topics = eu\\\\..*\n")
    file += "A->B.twinlog.topic.rename = (orders.*) -> eu.$1\nB->A.twinlog.topic.rename = eu.(.*) -> $1\n"
    names = {
        "orders": "eu.orders",
        "orders.A.x": "eu.orders.A.x",
        "orders-B": "eu.orders-B",
        "bills": "bills",
    }

    def have(world: World, count: int) -> bool:
        sides = [(values(world, "A", here), values(world, "B", there)) for here, there in names.items()]
        return all(len(there) == count for _, there in sides) and all(
            Counter(here) == Counter(there) for here, there in sides[:-1]
        )

    async def life() -> None:
        async with World(tmp_path, file, seed=16) as world:
            a, b = world.on["A"], world.on["B"]
            for number in range(6):
                for here, there in names.items():
                    if not number:
                        a.cluster.create_topic(here)
                        b.cluster.create_topic(there)
                    a.produce(here, 0, b"A%d" % number)
                    b.produce(there, 0, b"B%d" % number)
                if not number:
                    world.start("configsync", "source")
                await world.pause(0.5)
            await world.until(lambda: have(world, 12))
            await world.pause(40)
            assert have(world, 12)
            assert len(values(world, "A", "bills")) == 6

    live(life())


@lives_in(World, FILE, seed=13)
async def test_each_log_of_a_compacted_topic_keeps_what_arrived_last_in_it(world: World) -> None:
    """Both sides write one key at once, and each has the other's value last; the next one is last on both.
    What brokers compress again and compaction rewrites is known as well."""
    for application, codec in zip(world.on.values(), ("gzip", "zstd"), strict=True):
        application.cluster.create_topic(
            "orders", configs={"cleanup.policy": "compact", "compression.type": codec}
        )
    world.start("configsync", "source")
    await world.pause(20)
    for alias, application in world.on.items():
        application.produce("orders", 0, alias.encode(), key=b"same")
    await all_in_order_of_arrival(world, [b"A", b"B"], [b"B", b"A"])
    world.on["A"].produce("orders", 0, b"A again", key=b"same")
    await all_in_order_of_arrival(world, [b"A", b"B", b"A again"], [b"B", b"A", b"A again"])
    await world.kill("source")
    for application in world.on.values():
        compact(application.partition("orders"))
    world.on["B"].produce("orders", 0, b"B again", key=b"other")
    world.start("source")
    await all_in_order_of_arrival(world, [b"A again", b"B again"], [b"A again", b"B again"])


async def all_in_order_of_arrival(world: World, on_a: list[bytes], on_b: list[bytes]) -> None:
    def found(alias: str) -> list[bytes | None]:
        return [value for _, value in values(world, alias)]

    await world.until(lambda: (found("A"), found("B")) == (on_a, on_b))
    await stands_still(world)
    assert (found("A"), found("B")) == (on_a, on_b)
