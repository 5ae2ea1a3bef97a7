"""The same topic names on several clusters: who has copied what, and what becomes of what is not known."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from simulated.both_ways_rig import FILE, ONE_WAY, all_once, orders_on_all, stands_still, values, write
from simulated.test_steering import scope
from simulated.world import World, live, lives_in
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.model import TopicPartition
from twinlog.testing.broker import Cluster
from twinlog.testing.broker.acls import (
    CLUSTER_NAME,
    Acl,
    Authorizer,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from twinlog.testing.broker.faults import Loss
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import ProducerFact


def three(*flows: str) -> str:
    """A file with these flows."""
    one_way = FILE.replace("A->B.enabled = true\nB->A.enabled = true\n", "")
    file = one_way.replace("clusters = A, B", "clusters = A, B, C\nC.bootstrap.servers = {C}")
    return file + "".join(f"{flow}.enabled = true\n" for flow in flows)


MESH = tuple(f"{one}->{other}" for one in "ABC" for other in "ABC" if one != other)


LINE = ("A->B", "B->A", "B->C", "C->B")


@pytest.mark.parametrize("flows", [MESH, LINE, (*LINE, "A->C")])
def test_three_clusters_that_form_a_mesh_or_a_line(tmp_path: Path, flows: tuple[str, ...]) -> None:
    async def life() -> None:
        async with orders_on_all(tmp_path, seed=8, file=three(*flows), aliases="ABC") as world:
            await write(world, range(3), partitions=1, seconds=0)
            world.start("configsync", "source")
            await all_once(world, 9)
            await write(world, range(3, 6), partitions=1)
            await world.kill_tasks()
            await write(world, range(6, 8), partitions=1)
            await all_once(world, 24)

    live(life())


def test_a_third_cluster_joins_two_that_are_copied_both_ways(tmp_path: Path) -> None:
    """The flows between the two name positions topics that the third one does not have."""

    async def life() -> None:
        file = three("A->C", "C->A")
        async with orders_on_all(tmp_path, seed=8, file=file, aliases="ABC") as world:
            world.start("configsync", "source")
            await write(world, range(5), partitions=1)
            await world.pause(30)
            for name in list(world.services):
                await world.stop(name)
            more = (f"{flow}.enabled = true\n" for flow in MESH)
            world.file.write_text(world.file.read_text() + "".join(more))
            world.start("configsync", "source")
            await all_once(world, 15)

    live(life())


@lives_in(orders_on_all, seed=17)
async def test_nothing_is_copied_back_that_mirror_maker_2_copied_before(world: World) -> None:
    a, b = world.on["A"], world.on["B"]
    a.produce("orders", 0, b"A0", b"A1", b"A2")
    b.copy("orders", a.read("orders"))
    b.cluster.create_topic(TABLE, configs={"cleanup.policy": "compact"})
    place = source_offset_key("A", TopicPartition("orders", 0))
    b.produce(TABLE, 0, encode_source_offset(3), key=place)
    world.start("configsync", "source")
    await world.pause(5)
    await write(world, range(3, 7), partitions=1)
    await all_once(world, 11)


@lives_in(orders_on_all, seed=9)
async def test_flows_in_processes_of_their_own_wait_for_each_others_ids(world: World) -> None:
    await write(world, range(3), partitions=1, seconds=0)
    world.start("configsync")
    world.start("source", arguments=("--flows", "B->A"))
    await world.pause(20)
    assert len(values(world, "A")) == 3, "who has written to B is not known yet"
    world.start("source 2", arguments=("--flows", "A->B", "--listen", "127.0.0.1:17501"))
    await all_once(world, 6)


def test_each_direction_in_a_file_of_its_own_with_other_aliases(tmp_path: Path) -> None:
    other = tmp_path / "other"
    back = FILE.replace("A->B.enabled = true\n", "").replace("B->A", "west->east")
    back = back.replace("clusters = A, B", "clusters = east, west")
    back = back.replace("A.bootstrap", "east.bootstrap").replace("B.bootstrap", "west.bootstrap")
    for number, service in enumerate(("source", "configsync")):
        back += f"twinlog.{service}.listen = 127.0.0.1:{17501 + number}\n"

    async def life() -> None:
        async with orders_on_all(tmp_path, seed=15, file=ONE_WAY, partition_count=2) as world:
            other.write_text(back.format(**{alias: each.bootstrap for alias, each in world.kafka.items()}))
            await write(world, range(3), seconds=0)
            world.start("configsync", "source")
            await world.until(lambda: len(values(world, "B")) == 6)
            for name in ("configsync 2", "source 2"):
                world.start(name, arguments=("--config", str(other)))
            await all_once(world, 6)
            await write(world, range(3, 8))
            await world.kill("source 2")
            await write(world, range(8, 11))
            world.start("source 2", arguments=("--config", str(other)))
            await all_once(world, 22)

    live(life())


@pytest.mark.parametrize("seed", range(3))
def test_a_mesh_of_three_in_which_everything_fails_by_chance(tmp_path: Path, seed: int) -> None:
    random = Random(seed)

    async def life() -> None:
        async with World(tmp_path, three(*MESH), seed=seed, aliases="ABC") as world:

            async def start_again() -> None:
                name = random.choice(("source", "configsync"))
                await world.kill(name)
                await world.pause(5 * random.random())
                world.start(name)

            async def lose() -> None:
                loss = random.choice(list(Loss))
                world.kafka[random.choice("ABC")].faults.begin(times=2, loses=loss, seconds=20)

            async def outage() -> None:
                kafka = world.kafka[random.choice("ABC")]
                (node,) = kafka.cluster.nodes
                await kafka.stop_node(node)
                await world.pause(10 * random.random())
                await kafka.start_node(node)

            for application in world.on.values():
                application.cluster.create_topic("orders", partition_count=2)
            world.start("configsync", "source")
            begin = 0
            for _ in range(8):
                end = begin + random.randrange(8)
                await write(world, range(begin, end), seconds=random.random())
                await random.choice((world.kill_tasks, start_again, lose, outage))()
                begin = end
            await write(world, range(begin, begin + 1), seconds=0)
            await all_once(world, 3 * (begin + 1))

    live(life())


TABLE = "mm2-offsets.A.internal"


def deleted(world: World) -> None:
    world.on["B"].cluster.delete_topic(TABLE)


def of_a_later_format(world: World) -> None:
    key, _ = fact_record("A", a_producer(world, 1))
    world.on["B"].produce(TABLE, 0, b'{"format":99}', key=key)


def damaged(world: World) -> None:
    key, _ = fact_record("A", a_producer(world, 1))
    world.on["B"].produce(TABLE, 0, b"{", key=key)


def forged(world: World) -> None:
    """The applications on B are named as copying from A, so that their records would be left out."""
    key, value = fact_record("A", a_producer(world, -1))
    world.on["B"].produce(TABLE, 0, value, key=key)


def a_producer(world: World, producer_id: int) -> ProducerFact:
    ids = {alias: application.cluster.cluster_id for alias, application in world.on.items()}
    return ProducerFact(
        producer_id=producer_id, name="", cluster_id=ids["B"], source_cluster_id=ids["A"], at_ms=1
    )


def unreadable(world: World) -> None:
    deny_reading(world.on["B"].cluster, TABLE)


def deny_reading(cluster: Cluster, topic: str) -> None:
    everything = [(Resource.TOPIC, "*"), (Resource.GROUP, "*"), (Resource.TRANSACTIONAL_ID, "*")]
    allowed = [(resource, name, Operation.ALL, Permission.ALLOW) for resource, name in everything]
    allowed.append((Resource.CLUSTER, CLUSTER_NAME, Operation.ALL, Permission.ALLOW))
    authorizer = cluster.authorizer = Authorizer()
    authorizer.add(
        Acl(resource, name, Pattern.LITERAL, "User:*", "*", operation, permission)
        for resource, name, operation, permission in [
            *allowed,
            (Resource.TOPIC, topic, Operation.READ, Permission.DENY),
        ]
    )


@pytest.mark.parametrize("spoil", [deleted, of_a_later_format, damaged, forged, unreadable])
@pytest.mark.parametrize("restarts", [False, True])
@lives_in(orders_on_all, seed=10)
async def test_while_the_table_of_ids_cannot_be_trusted_nothing_is_copied_back_or_lost(
    world: World, *, spoil: Callable[[World], None], restarts: bool
) -> None:
    await write(world, range(3), partitions=1, seconds=0)
    world.start("configsync", "source")
    await all_once(world, 6)
    if restarts:
        await world.kill("source")
    spoil(world)
    world.on["B"].produce("orders", 0, b"B3")
    if restarts:
        world.start("source")
    await world.pause(60)
    there = values(world, "A")
    assert max(Counter(there).values()) == 1
    if (0, b"B3") in there:
        return  # The process knows the ids from before, and what came since is clear.
    asked = source.ListPartitionsRequest(flow=scope("orders", "B", "A").flow)
    (told,) = (await world.order("ListPartitions", asked)).partitions
    assert told.reason in ("ORIGIN_UNKNOWN", "WIRE_VERSION", "TOPIC_UNAUTHORIZED"), told
    if spoil is unreadable:
        world.on["B"].cluster.authorizer = None
        await all_once(world, 7)


@lives_in(orders_on_all, seed=12, file=ONE_WAY)
async def test_a_loop_over_another_replicator_is_noticed_and_stopped(world: World) -> None:
    """MirrorMaker 2 copies the copies back under the same name."""
    for application in world.on.values():
        application.cluster.create_topic("orders.quiet")
    a, b = world.on["A"], world.on["B"]
    world.start("configsync", "source")
    copied = 0
    for number in range(60):
        if number % 6 == 0:
            a.produce("orders", 0, b"A%d" % number)
            a.produce("orders.quiet", 0, b"A%d" % number)
        there = b.read("orders")
        a.copy("orders", there[copied:])
        copied = len(there)
        await world.pause(1)
    most = Counter(values(world, "B")).most_common(1)[0][1]
    assert 6 < most < 15, "it went round, and was stopped"
    await stands_still(world)
    assert len(values(world, "B", "orders.quiet")) == 10
    asked = source.ListPartitionsRequest(flow=scope("orders").flow, source_topic="orders")
    (told,) = (await world.order("ListPartitions", asked)).partitions
    assert (told.state, told.reason) == (source.PARTITION_STATE_FAULTED, "LOOP")
    a.produce("orders", 0, b"behind it")
    await world.kill_tasks()
    await stands_still(world, "orders.quiet")
    assert (0, b"behind it") not in values(world, "B")
    behind = source.PositionTarget(offset=a.ends("orders")[0] - 1)
    move = source.SetPositionsRequest(scope=scope("orders"), target=behind, by="ann")
    assert (await world.order("SetPositions", move)).applied
    await world.until(lambda: (0, b"behind it") in values(world, "B"))
