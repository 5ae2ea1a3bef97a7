"""The same topic names on both clusters, copied both ways."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from simulated.test_steering import scope
from simulated.world import ONE_BROKER, SERVICES, World, live
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.config import load
from twinlog.model import Flow, TopicPartition
from twinlog.testing.broker.acls import (
    CLUSTER_NAME,
    Acl,
    Authorizer,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from twinlog.testing.broker.compaction import compact
from twinlog.testing.broker.faults import Loss
from twinlog.testing.virtual_time import LoopClock
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import ProducerFact
from twinlog_source.verify.engine import Verification
from twinlog_source.verify.request import VerifyRequest

FILE = (
    ONE_BROKER
    + """
A->B.enabled = true
B->A.enabled = true
topics = orders.*
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 5
emit.checkpoints.interval.seconds = 5
refresh.groups.interval.seconds = 10
refresh.topics.interval.seconds = 10
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
"""
)


def values(world: World, alias: str, topic: str = "orders") -> list[tuple[int, bytes | None]]:
    return [(seen.partition, seen.value) for seen in world.on[alias].read(topic)]


def both_have_all(world: World, *topics: str) -> bool:
    """Whether both clusters have the same records, each once."""
    for topic in topics or ("orders",):
        a, b = Counter(values(world, "A", topic)), Counter(values(world, "B", topic))
        if a != b or any(count > 1 for count in a.values()):
            return False
    return True


def in_order(world: World, alias: str, prefix: bytes, topic: str = "orders") -> bool:
    """Whether what one cluster's applications wrote is in its order, in each partition."""
    found: dict[int, list[int]] = {}
    for partition, value in values(world, alias, topic):
        if value is not None and value.startswith(prefix):
            found.setdefault(partition, []).append(int(value[len(prefix) :]))
    return all(numbers == sorted(numbers) for numbers in found.values())


async def stands_still(world: World, *topics: str, seconds: float = 40) -> None:
    """Assert that nothing is copied round."""
    names = topics or ("orders",)
    ends = [world.on[alias].ends(topic) for alias in world.on for topic in names]
    await world.pause(seconds)
    assert [world.on[alias].ends(topic) for alias in world.on for topic in names] == ends


async def write(world: World, numbers: range, *, partitions: int = 2, seconds: float = 0.4) -> None:
    """Each cluster's applications write one record for each number."""
    for number in numbers:
        for alias, application in world.on.items():
            application.produce("orders", number % partitions, f"{alias}{number}".encode())
        await world.pause(seconds)


async def all_once(world: World, count: int) -> None:
    """Both clusters get to have these many records, each once and in the order of its cluster, and then
    nothing is copied round."""
    await world.until(lambda: min(len(values(world, alias)) for alias in world.on) >= count)
    await stands_still(world)
    assert both_have_all(world)
    for alias in world.on:
        assert len(values(world, alias)) == count
        for origin in world.on:
            assert in_order(world, alias, origin.encode())


def test_both_sides_write_and_have_every_record_once(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=3) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders", partition_count=2)
            await write(world, range(4), seconds=0)
            world.start(*SERVICES)
            await all_once(world, 8)
            await write(world, range(4, 12))
            await all_once(world, 24)
            assert not [each for each in world.logged if each["level"] in ("warning", "error", "critical")]

    live(life())


def test_kills_and_restarts_repeat_and_lose_nothing(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=5) as world:
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

    live(life())


@pytest.mark.parametrize("seed", range(4))
def test_a_topic_that_is_created_again_gets_everything_once_while_both_sides_write(
    tmp_path: Path, seed: int
) -> None:
    """Also where configsync looks at topics much later. What nobody had copied is lost with the topic."""
    random = Random(seed)
    file = FILE.replace("refresh.topics.interval.seconds = 10", "refresh.topics.interval.seconds = 600")

    async def life() -> None:
        async with World(tmp_path, random.choice((FILE, file)), seed=seed) as world:
            emptied, other = random.sample(("A", "B"), 2)
            for application in world.on.values():
                application.cluster.create_topic("orders", partition_count=2)
            world.start("configsync", "source")
            await write(world, range(20), seconds=0.3)
            world.on[emptied].cluster.delete_topic("orders")
            for number in range(20, 20 + random.randrange(8)):
                world.on[other].produce("orders", number % 2, f"{other}{number}".encode())
                await world.pause(0.3 * random.random())
            if not world.on[emptied].ends("orders"):
                world.on[emptied].cluster.create_topic("orders", partition_count=2)
            await write(world, range(30, 90), seconds=0.2)
            await world.until(lambda: both_have_all(world))
            await stands_still(world)
            assert both_have_all(world)
            assert in_order(world, emptied, other.encode())
            assert all(in_order(world, other, origin) for origin in (b"A", b"B"))
            for origin in "AB":
                later = {f"{origin}{number}".encode() for number in range(30, 90)}
                assert later <= {value for _, value in values(world, "A")}

    live(life())


def test_groups_continue_on_the_other_side_and_skip_nothing(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=7) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders")
            await write(world, range(6), partitions=1, seconds=0)
            world.start(*SERVICES)
            await world.until(lambda: both_have_all(world) and len(values(world, "A")) == 12)
            a, b = world.on["A"], world.on["B"]
            a.commit("everything", "orders", {0: a.ends("orders")[0]})
            b.commit("nearly everything", "orders", {0: b.ends("orders")[0] - 2})
            await world.until(lambda: b.committed("everything"))
            await world.until(lambda: a.committed("nearly everything"))
            assert b.committed("everything")["orders", 0] == b.ends("orders")[0]
            await write(world, range(6, 20), partitions=1)
            a.commit("everything", "orders", {0: a.ends("orders")[0] - 3})
            for number in range(20, 40):
                await write(world, range(number, number + 1), partitions=1, seconds=0)
                await world.pause(2)
                for group in ("everything", "nearly everything"):
                    assert not skipped(world, group)

    live(life())


def skipped(world: World, group: str) -> set[bytes | None]:
    """What a group has not read where it is, and would leave out on the other cluster."""
    read: dict[str, set[bytes | None]] = {}
    for alias in world.on:
        end = world.on[alias].committed(group).get(("orders", 0), 0)
        read[alias] = {seen.value for seen in world.on[alias].read("orders") if seen.offset < end}
    return read["B"] - read["A"] if group == "everything" else read["A"] - read["B"]


def test_copies_keep_their_offsets_until_the_other_side_writes(tmp_path: Path) -> None:
    async def copy(world: World) -> tuple[str, int]:
        asked = source.ListPartitionsRequest(flow=scope("orders").flow, source_topic="orders")
        (told,) = (await world.order("ListPartitions", asked)).partitions
        return told.offsets_reason, told.offsets_since

    async def life() -> None:
        async with World(tmp_path, FILE, seed=14) as world:
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

    live(life())


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
        async with World(tmp_path, three(*flows), seed=8, aliases="ABC") as world:
            for application in world.on.values():
                application.cluster.create_topic("orders")
            await write(world, range(3), partitions=1, seconds=0)
            world.start("configsync", "source")
            await all_once(world, 9)
            await write(world, range(3, 6), partitions=1)
            await world.kill_tasks()
            await write(world, range(6, 8), partitions=1)
            await all_once(world, 24)

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


def test_nothing_is_copied_back_that_mirror_maker_2_copied_before(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=17) as world:
            a, b = world.on["A"], world.on["B"]
            for application in world.on.values():
                application.cluster.create_topic("orders")
            a.produce("orders", 0, b"A0", b"A1", b"A2")
            b.copy("orders", a.read("orders"))
            b.cluster.create_topic(TABLE, configs={"cleanup.policy": "compact"})
            place = source_offset_key("A", TopicPartition("orders", 0))
            b.produce(TABLE, 0, encode_source_offset(3), key=place)
            world.start("configsync", "source")
            await world.pause(5)
            await write(world, range(3, 7), partitions=1)
            await all_once(world, 11)

    live(life())


def test_flows_in_processes_of_their_own_wait_for_each_others_ids(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=9) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders")
            await write(world, range(3), partitions=1, seconds=0)
            world.start("configsync")
            world.start("source", arguments=("--flows", "B->A"))
            await world.pause(20)
            assert len(values(world, "A")) == 3, "who has written to B is not known yet"
            world.start("source 2", arguments=("--flows", "A->B", "--listen", "127.0.0.1:17501"))
            await all_once(world, 6)

    live(life())


def test_each_direction_in_a_file_of_its_own_with_other_aliases(tmp_path: Path) -> None:
    other = tmp_path / "other"
    back = FILE.replace("A->B.enabled = true\n", "").replace("B->A", "west->east")
    back = back.replace("clusters = A, B", "clusters = east, west")
    back = back.replace("A.bootstrap", "east.bootstrap").replace("B.bootstrap", "west.bootstrap")
    for number, service in enumerate(("source", "configsync")):
        back += f"twinlog.{service}.listen = 127.0.0.1:{17501 + number}\n"

    async def life() -> None:
        async with World(tmp_path, FILE.replace("B->A.enabled = true\n", ""), seed=15) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders", partition_count=2)
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
    everything = [(Resource.TOPIC, "*"), (Resource.GROUP, "*"), (Resource.TRANSACTIONAL_ID, "*")]
    allowed = [(resource, name, Operation.ALL, Permission.ALLOW) for resource, name in everything]
    allowed.append((Resource.CLUSTER, CLUSTER_NAME, Operation.ALL, Permission.ALLOW))
    authorizer = world.on["B"].cluster.authorizer = Authorizer()
    authorizer.add(
        Acl(resource, name, Pattern.LITERAL, "User:*", "*", operation, permission)
        for resource, name, operation, permission in [
            *allowed,
            (Resource.TOPIC, TABLE, Operation.READ, Permission.DENY),
        ]
    )


@pytest.mark.parametrize("spoil", [deleted, of_a_later_format, damaged, forged, unreadable])
@pytest.mark.parametrize("restarts", [False, True])
def test_while_the_table_of_ids_cannot_be_trusted_nothing_is_copied_back_or_lost(
    tmp_path: Path, spoil: Callable[[World], None], restarts: bool
) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=10) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders")
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

    live(life())


def test_each_log_of_a_compacted_topic_keeps_what_arrived_last_in_it(tmp_path: Path) -> None:
    """Both sides write one key at once, and each has the other's value last; the next one is last on both.
    What brokers compress again and compaction rewrites is known as well."""

    async def life() -> None:
        async with World(tmp_path, FILE, seed=13) as world:
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

    live(life())


async def all_in_order_of_arrival(world: World, on_a: list[bytes], on_b: list[bytes]) -> None:
    def found(alias: str) -> list[bytes | None]:
        return [value for _, value in values(world, alias)]

    await world.until(lambda: (found("A"), found("B")) == (on_a, on_b))
    await stands_still(world)
    assert (found("A"), found("B")) == (on_a, on_b)


async def verified(world: World, flow: Flow) -> tuple[str, int]:
    """The verdict on a replicator that has stopped for good, and how many records differ."""
    request = VerifyRequest(flow=flow, topics=frozenset({"orders"}), complete=True)
    report = await Verification(
        configuration=load(world.file, environ={}), request=request, clock=LoopClock()
    ).run()
    assert not report.failures
    assert not [each.reason for proof in report.proofs for each in proof.not_compared]
    differing = sum(each.count for proof in report.proofs for each in proof.differences)
    return str(report.verdict), differing


def test_verify_compares_the_records_of_one_cluster_with_their_copies(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=11) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders", partition_count=2)
            await write(world, range(6), seconds=0)
            world.start("configsync", "source")
            await all_once(world, 12)
            await world.kill("source")
            a_to_b, b_to_a = Flow("A", "B"), Flow("B", "A")
            assert await verified(world, a_to_b) == ("EQUAL", 0)
            assert await verified(world, b_to_a) == ("EQUAL", 0)
            world.on["B"].produce("orders", 0, b"B6", b"B8")
            assert await verified(world, a_to_b) == ("EQUAL", 0)
            assert await verified(world, b_to_a) == ("DIFFERENT", 2)

    live(life())


def test_a_loop_over_another_replicator_is_noticed_and_stopped(tmp_path: Path) -> None:
    """MirrorMaker 2 copies the copies back under the same name."""
    file = FILE.replace("B->A.enabled = true\n", "")

    async def life() -> None:
        async with World(tmp_path, file, seed=12) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders")
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

    live(life())
