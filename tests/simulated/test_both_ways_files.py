"""Topics that are copied both ways: `twinlog verify`, and a file for each direction."""

import asyncio
from functools import partial
from itertools import product
from pathlib import Path
from random import Random

import pytest

from simulated.both_ways_rig import (
    ONE_WAY,
    all_once,
    both_have_all,
    orders_on_all,
    skipped,
    stands_still,
    start_both,
    values,
    verified,
    write,
    write_back,
)
from simulated.test_whose_copies import deny_reading
from simulated.world import World, live, lives_in
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1.source_service_pb2 import ListFlowsRequest, ListPartitionsRequest
from twinlog.cli.verdict.verdict import verdict_of
from twinlog.model import Flow
from twinlog.testing.broker.cluster import NO_LEADER
from twinlog.testing.broker.compaction import compact
from twinlog.testing.broker.faults import Loss
from twinlog.wire import Heartbeat, encode_heartbeat


@lives_in(orders_on_all, seed=11, partition_count=2)
async def test_verify_compares_the_records_of_one_cluster_with_their_copies(world: World) -> None:
    await write(world, range(6), seconds=0)
    world.start("configsync", "source")
    a_to_b, b_to_a = Flow("A", "B"), Flow("B", "A")
    await world.until(lambda: both_have_all(world) and len(values(world, "A")) == 12)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(write(world, range(6, 60), seconds=0.3), name="applications")
        for flow in (a_to_b, b_to_a):
            told = await verified(world, flow, complete=False)
            assert (told, writing.done()) == (("EQUAL", 0), False), "while both sides write"
    await all_once(world, 120)
    await world.kill("source")
    assert await verified(world, a_to_b) == ("EQUAL", 0)
    assert await verified(world, b_to_a) == ("EQUAL", 0)
    world.on["B"].produce("orders", 0, b"B60", b"B62")
    assert await verified(world, a_to_b) == ("EQUAL", 0)
    assert await verified(world, b_to_a) == ("DIFFERENT", 2)


@lives_in(orders_on_all, seed=19, file=ONE_WAY, partition_count=2)
async def test_a_file_for_each_direction(world: World) -> None:
    """No process has the flow back: that there is one is known by the positions topic of it."""
    back = start_both(world, "configsync", "source")
    await write(world, range(60), seconds=0.5)
    await all_once(world, 120)
    for file, flow in ((world.file, Flow("A", "B")), (back, Flow("B", "A"))):
        assert await verified(world, flow, file=file) == ("EQUAL", 0)
    assert not [each for each in world.logged if each["level"] in ("error", "critical")]


@lives_in(orders_on_all, seed=19, file=ONE_WAY)
async def test_the_heartbeats_of_a_flow_are_written_by_a_process_whose_file_copies_it(world: World) -> None:
    """A process writes MirrorMaker 2's heartbeats also for flows that its file does not copy. The other file
    copies it, and needs one on the source, too."""
    names = ("configsync", "source", "heartbeat")
    world.start(*names)
    await world.pause(60)
    back = write_back(world)
    world.start(*(f"{name} 2" for name in names), arguments=("--config", str(back)))
    await world.pause(120)
    keys = (encode_heartbeat(Heartbeat(source=x, target=y, timestamp_ms=0))[0] for x, y in ("AB", "BA"))
    for key, alias in product(keys, "AB"):
        seen = world.on[alias].read("heartbeats")
        assert any(each.key == key for each in seen if each.timestamp_ms > seen[-1].timestamp_ms - 5000)
    assert not [row.notes for row in (await world.status()).flows.values() if row.notes]
    await world.stop("heartbeat 2")
    await world.pause(60)
    assert not [each for each in world.logged if each["level"] in ("error", "critical")]


@lives_in(orders_on_all, seed=19, file=ONE_WAY)
async def test_what_is_copied_back_by_a_flow_of_another_file_is_not_foreign(world: World) -> None:
    """Neither may know of the other when its first tasks begin."""
    start_both(world, "configsync", "source")
    await write(world, range(20), partitions=1)
    await all_once(world, 40)
    asked = ListPartitionsRequest(flow=types_pb2.Flow(source="A", target="B"))
    for number in range(20, 22):
        (told,) = (await world.order("ListPartitions", asked)).partitions
        assert (told.foreign_records, len(told.foreign_writes)) == (0, 0)
        await world.kill("source")
        world.start("source")
        await write(world, range(number, number + 1), partitions=1, seconds=60)


def test_what_applications_wrote_before_a_flow_of_another_file_copies_it_back_is_not_foreign(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        async with orders_on_all(tmp_path, seed=3, file=ONE_WAY) as world:
            await write(world, range(5), partitions=1, seconds=0)
            world.start("configsync", "source")
            await world.pause(60)
            asked = ListPartitionsRequest(flow=types_pb2.Flow(source="A", target="B"))
            (told,) = (await world.order("ListPartitions", asked)).partitions
            assert told.foreign_records == 5, "nobody copies it back"
            back = write_back(world)
            world.start("configsync 2", "source 2", arguments=("--config", str(back)))
            await world.until(lambda: both_have_all(world))
            await world.pause(60)
            (flow,) = (await world.order("ListFlows", ListFlowsRequest())).flows
            assert (flow.partitions_both_ways, told.offsets_reason) == (1, "TARGET_NOT_EMPTY")
            for _ in range(2):
                (told,) = (await world.order("ListPartitions", asked)).partitions
                assert (told.foreign_records, len(told.foreign_writes)) == (0, 0)
                await world.kill("source")
                world.start("source")
                await world.pause(60)

    live(life())


@pytest.mark.parametrize("killed", ["", "source", "source 2", "checkpoint", "checkpoint 2"])
@pytest.mark.parametrize("sides", ["A", "AB"])
@lives_in(orders_on_all, seed=5, file=ONE_WAY)
async def test_lagging_groups_get_a_place_though_the_flow_back_is_of_another_file(
    world: World, *, sides: str, killed: str
) -> None:
    a, b = world.on["A"], world.on["B"]
    start_both(world, "configsync", "source", "checkpoint")
    for number in range(20):
        for alias in sides:
            values_ = (b"%s%d-%d" % (alias.encode(), number, each) for each in range(50))
            world.on[alias].produce("orders", 0, *values_)
        await world.pause(0.4)
    await world.until(lambda: both_have_all(world))
    if killed:
        await world.kill(killed)
    if killed.startswith("checkpoint"):
        back = ("--config", str(world.file.with_name("back.properties")))
        world.start(killed, arguments=back if killed.endswith("2") else ())
    a.commit("everything", "orders", {0: a.ends("orders")[0] // 2})
    b.commit("nearly everything", "orders", {0: b.ends("orders")[0] // 2})
    # A file whose own source service is away moves no lagging group.
    places = {"source": ("everything", b), "source 2": ("nearly everything", a)}
    for group, there in [each for name, each in places.items() if name != killed]:
        await world.until(partial(there.committed, group))
        (place,) = there.committed(group).values()
        assert not skipped(world, group)
        assert 400 < len([seen for seen in there.read("orders") if seen.offset < place]) <= 1000


@lives_in(orders_on_all, seed=5, file=ONE_WAY)
async def test_groups_wait_for_a_registry_of_another_file_that_cannot_be_read(world: World) -> None:
    a, b = world.on["A"], world.on["B"]
    start_both(world, "configsync", "source", "checkpoint")
    await write(world, range(4), partitions=1)
    await all_once(world, 8)
    await world.kill("checkpoint")
    registry = a.cluster.topics["mm2-configsync.B.internal"].partitions[0]
    leader = registry.leader
    a.cluster.elect(registry, NO_LEADER)
    a.commit("everything", "orders", {0: 0})
    world.start("checkpoint")
    for _ in range(30):
        await world.pause(1)
        assert not skipped(world, "everything")
    told = verdict_of(await world.status()).pressing
    assert "mm2-configsync.B.internal-0: the partition has no leader" in told[0].message
    a.cluster.elect(registry, leader)
    await world.until(partial(b.committed, "everything"))
    assert not skipped(world, "everything")


@pytest.mark.parametrize("killed", ["", "checkpoint", "checkpoint 2"])
@pytest.mark.parametrize("gone_seconds", [1, 3, 11])
@lives_in(orders_on_all, seed=5, file=ONE_WAY)
async def test_groups_skip_nothing_of_a_topic_that_is_created_again_on_both_clusters(
    world: World, *, gone_seconds: int, killed: str
) -> None:
    """One file's configsync sees the new topic later than the other's; a process that starts knows only what
    compaction has left."""
    back = start_both(world, "configsync", "source", "checkpoint")
    await write(world, range(4), partitions=1)
    await all_once(world, 8)
    await world.kill("configsync 2")
    await world.pause(5)
    world.start("configsync 2", arguments=("--config", str(back)))
    await world.pause(10)
    for applications in world.on.values():
        applications.cluster.delete_topic("orders")
    await world.pause(gone_seconds)
    if killed:
        await world.kill(killed)
        for alias, registry in (("A", "mm2-configsync.B.internal"), ("B", "mm2-configsync.A.internal")):
            compact(world.on[alias].partition(registry))
        file = back if killed.endswith("2") else world.file
        world.start(killed, arguments=("--config", str(file)))
    for alias, applications in world.on.items():
        applications.cluster.create_topic("orders")
        applications.produce("orders", 0, *(b"%s again %d" % (alias.encode(), each) for each in range(40)))
    for _ in range(80):
        for alias, group in (("A", "everything"), ("B", "nearly everything")):
            if not (on := world.on[alias]).committed(group):
                on.commit(group, "orders", {0: 38})
        await world.pause(0.5)
        assert not skipped(world, "everything")
        assert not skipped(world, "nearly everything")
    await world.until(lambda: both_have_all(world))


@lives_in(orders_on_all, seed=5, file=ONE_WAY)
async def test_without_a_right_on_the_offset_syncs_of_the_other_file_a_lagging_group_says_what_to_do(
    world: World,
) -> None:
    deny_reading(world.on["B"].cluster, "mm2-offset-syncs.A.internal")
    start_both(world, "configsync", "source", "checkpoint")
    await write(world, range(20), partitions=1)
    await all_once(world, 40)
    world.on["A"].commit("everything", "orders", {0: 10})
    await world.pause(60)
    told = (await world.groups())["everything", "orders", 0]
    assert told.verdict == pb2.VERDICT_NO_SYNC
    assert "grant READ on mm2-offset-syncs.*.internal, or put both flows into one file" in told.message
    world.on["B"].cluster.authorizer = None
    await world.until(partial(world.on["B"].committed, "everything"))
    assert not skipped(world, "everything")


@lives_in(orders_on_all, seed=7, file=ONE_WAY)
async def test_a_process_that_starts_gives_no_group_the_place_that_it_had_in_topics_that_are_gone(
    world: World,
) -> None:
    """The group has none on its own cluster any more, so that nothing else asks which topics these are;
    and of the flow back nothing is known yet."""
    a, b = world.on["A"], world.on["B"]
    back = start_both(world, "configsync", "source", "checkpoint")
    await write(world, range(10), partitions=1)
    b.commit("nearly everything", "orders", {0: b.ends("orders")[0]})
    await world.until(lambda: a.committed("nearly everything"))
    await world.kill("checkpoint 2")
    for each in (a, b):
        each.cluster.delete_topic("orders")
        each.cluster.create_topic("orders")
    await write(world, range(10, 40), partitions=1)
    world.start("checkpoint 2", arguments=("--config", str(back)))
    for _ in range(40):
        await world.pause(1)
        assert not a.committed("nearly everything")


@pytest.mark.parametrize("away", ["", "source", "source 2"])
@lives_in(orders_on_all, seed=21, file=ONE_WAY)
async def test_a_topic_that_is_created_again_gets_everything_though_the_flow_back_is_of_another_file(
    world: World, *, away: str
) -> None:
    """The flow back may not have seen the new topic yet; a process that starts has asked nothing before."""
    back = start_both(world, "configsync", "source")
    await write(world, range(20), partitions=1)
    await all_once(world, 40)
    if away:
        await world.kill(away)
    world.on["B"].cluster.delete_topic("orders")
    world.on["B"].cluster.create_topic("orders")
    await write(world, range(20, 40), partitions=1)
    if away:
        world.start(away, arguments=("--config", str(back if away.endswith("2") else world.file)))
    await world.until(lambda: both_have_all(world))
    await stands_still(world)
    assert both_have_all(world)
    assert len(values(world, "A")) == 80


@lives_in(orders_on_all, seed=21, file=ONE_WAY)
async def test_a_topic_that_is_created_again_waits_until_the_positions_of_the_other_file_can_be_read(
    world: World,
) -> None:
    start_both(world, "configsync", "source")
    await write(world, range(20), partitions=1)
    await all_once(world, 40)
    await world.kill("source")
    world.on["B"].cluster.delete_topic("orders")
    world.on["B"].cluster.create_topic("orders")
    await write(world, range(20, 40), partitions=1)
    deny_reading(world.on["A"].cluster, "mm2-offsets.B.internal")
    world.start("source", arguments=("--config", str(world.file)))
    await world.pause(60)
    world.on["A"].cluster.authorizer = None
    await world.until(lambda: both_have_all(world))
    assert len(values(world, "A")) == 80


def test_a_topic_that_is_created_again_gets_everything_though_its_copy_was_not_decided_before_a_kill(
    tmp_path: Path,
) -> None:
    """Where the copy begins is on the log already: that says not that the flow back is known."""

    async def life() -> None:
        async with orders_on_all(tmp_path, seed=21, file=ONE_WAY) as world:
            start_both(world, "configsync", "source")
            await write(world, range(20), partitions=1)
            await all_once(world, 40)
            on_b = world.on["B"]

            def begun() -> int:
                return sum(b"origin" in (seen.key or b"") for seen in on_b.read("mm2-offsets.A.internal"))

            def decisions() -> int:
                return [each["event"] for each in world.logged].count("copies_begin")

            before = begun(), decisions()
            on_b.cluster.delete_topic("orders")
            on_b.cluster.create_topic("orders")
            await write(world, range(20, 21), partitions=1, seconds=0)
            with world.kafka["B"].faults.during(api="describe_producers", hangs=True):
                await world.until(lambda: begun() > before[0])
                await world.kill("source")
            assert decisions() == before[1]
            world.start("source")
            await world.until(lambda: both_have_all(world))

    live(life())


HOMES = {"everything": "A", "nearly everything": "B"}
"""Groups, and where each works."""


class Fate:
    """What happens to two files by chance, with a check that no group is ahead on the other cluster."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, Random(seed)
        self.has_read: dict[str, set[bytes]] = {group: set() for group in HOMES}
        self.moved = 0
        self.steps = {self.commit: 9, self.kill: 3, self.kill_tasks: 3, self.lose: 3, self.create_again: 1}

    def read_by(self, group: str, alias: str) -> set[bytes]:
        place = self.world.on[alias].committed(group).get(("orders", 0), 0)
        return {seen.value or b"" for seen in self.world.on[alias].read("orders") if seen.offset < place}

    def check(self) -> None:
        for group, home in HOMES.items():
            there = self.read_by(group, "B" if home == "A" else "A")
            assert not there - self.has_read[group], (group, sorted(there - self.has_read[group])[:3])
            self.moved += bool(there)

    async def play(self, count: int) -> None:
        sides = self.random.choice(("A", "B", "AB", "AB"))
        for number in range(count):
            for alias in sides:
                if "orders" in self.world.on[alias].cluster.topics:
                    values_ = [b"%s%d-%d" % (alias.encode(), number, each) for each in range(150)]
                    self.world.on[alias].produce("orders", 0, *values_[: self.random.choice((1, 3, 150))])
            await self.random.choices(list(self.steps), list(self.steps.values()))[0]()
            for _ in range(self.random.randrange(8)):
                await self.world.pause(1)
                self.check()

    async def commit(self) -> None:
        group, home = self.random.choice(list(HOMES.items()))
        if "orders" in (on := self.world.on[home]).cluster.topics:
            on.commit(group, "orders", {0: self.random.randint(0, on.ends("orders")[0])})
            self.has_read[group] |= self.read_by(group, home)

    async def kill(self) -> None:
        name = self.random.choice([each for each in self.world.services if "configsync" not in each])
        await self.world.kill(name)
        await self.world.pause(self.random.choice((0, 20 * self.random.random())))
        file = self.world.file.with_name("back.properties") if name.endswith("2") else self.world.file
        self.world.start(name, arguments=("--config", str(file)))

    async def kill_tasks(self) -> None:
        if self.world.tasks is not None:
            await self.world.kill_tasks()

    async def lose(self) -> None:
        faults = self.world.kafka[self.random.choice("AB")].faults
        faults.begin(times=2, loses=self.random.choice(list(Loss)), seconds=20)

    async def create_again(self) -> None:
        cluster = self.world.on[self.random.choice("AB")].cluster
        cluster.delete_topic("orders")
        await self.world.pause(self.random.choice((0, 2 * self.random.random())))
        if "orders" not in cluster.topics:
            cluster.create_topic("orders")


@pytest.mark.parametrize("seed", range(3))
def test_no_group_is_ahead_whatever_fails_of_two_files(tmp_path: Path, seed: int) -> None:
    """Also where a topic is created again: neither file is told by the other one."""

    async def life() -> None:
        async with orders_on_all(tmp_path, seed=seed, file=ONE_WAY) as world:
            start_both(world, "configsync", "source", "checkpoint")
            await (fate := Fate(world, seed)).play(40)
            assert fate.moved, "a group got a place"

    live(life())
