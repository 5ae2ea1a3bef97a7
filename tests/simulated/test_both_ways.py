"""The same topic names on both clusters, copied both ways."""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import grpc
import pytest

from simulated.test_steering import scope
from simulated.world import ONE_BROKER, SERVICES, World, live
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.config import load
from twinlog.model import Flow
from twinlog.testing.broker.compaction import compact
from twinlog.testing.virtual_time import LoopClock
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


async def write(
    world: World, numbers: range, *, partitions: int = 2, seconds: float = 0.4, to: str = "ABC"
) -> None:
    """Each cluster's applications write one record for each number."""
    for number in numbers:
        for alias in [each for each in world.on if each in to]:
            world.on[alias].produce("orders", number % partitions, f"{alias}{number}".encode())
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


@pytest.mark.parametrize(("seed", "ways"), [*((seed, 2) for seed in range(4)), (0, 1), (1, 1)])
def test_a_topic_that_is_created_again_while_it_is_written_gets_everything_once(
    tmp_path: Path, seed: int, ways: int
) -> None:
    """Also where configsync looks at topics much later. What nobody had copied is lost with the topic. One
    way the copy keeps the offsets."""
    random = Random(seed)
    file = FILE if ways == 2 else FILE.replace("B->A.enabled = true\n", "")
    rarely = file.replace("refresh.topics.interval.seconds = 10", "refresh.topics.interval.seconds = 600")
    sides = "AB"[:ways]

    async def life() -> None:
        async with World(tmp_path, random.choice((file, rarely)), seed=seed) as world:
            emptied, other = random.sample(("A", "B"), 2) if ways == 2 else ("B", "A")
            for application in world.on.values():
                application.cluster.create_topic("orders", partition_count=2)
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
            a.commit("nothing", "orders", {0: 1})
            await world.until(lambda: b.committed("everything"))
            await world.until(lambda: a.committed("nearly everything"))
            assert b.committed("everything")["orders", 0] == b.ends("orders")[0]
            await world.until(lambda: b.committed("nothing"))
            assert b.committed("nothing")["orders", 0] == 0, "the log begins there: no sync is as old"
            await write(world, range(6, 20), partitions=1)
            a.commit("everything", "orders", {0: a.ends("orders")[0] - 3})
            for number in range(20, 40):
                await write(world, range(number, number + 1), partitions=1, seconds=0)
                await world.pause(2)
                for group in ("everything", "nearly everything"):
                    assert not skipped(world, group)

    live(life())


def test_a_group_in_the_middle_reads_again_what_lies_between_two_syncs(tmp_path: Path) -> None:
    """Of older syncs, which are 100 offsets apart, Kafka's store has none after a restart."""

    async def life() -> None:
        async with World(tmp_path, FILE, seed=7) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders")
            world.start(*SERVICES)
            await write_hundreds(world, 60)
            await world.kill("checkpoint")
            world.start("checkpoint")
            world.on["A"].commit("everything", "orders", {0: 6000})
            await world.until(lambda: world.on["B"].committed("everything"))
            assert not skipped(world, "everything")
            assert world.on["B"].committed("everything")["orders", 0] > 5500

    live(life())


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_topic_that_is_created_again_gives_no_place_to_groups_of_the_former_one(
    tmp_path: Path, is_restarted: bool
) -> None:
    """The new log grows before anything of it is copied: what is known of the former one fits it."""

    async def life() -> None:
        async with World(tmp_path, FILE, seed=7) as world:
            a, b = world.on["A"], world.on["B"]
            for application in world.on.values():
                application.cluster.create_topic("orders")
            world.start(*SERVICES)
            await write_hundreds(world, 10)
            b.commit("nearly everything", "orders", {0: 1500})
            await world.until(lambda: a.committed("nearly everything"))
            assert a.committed("nearly everything")["orders", 0] > 1000
            await world.kill("source")
            if is_restarted:
                await world.kill("checkpoint")
            a.cluster.delete_topic("orders")
            assert not a.committed("nearly everything")
            a.cluster.create_topic("orders")
            a.produce("orders", 0, *(b"A again %d" % number for number in range(2000)))
            if is_restarted:
                world.start("checkpoint")
            for _ in range(40):
                await world.pause(1)
                assert not skipped(world, "nearly everything")
            world.start("source")
            await world.until(lambda: a.committed("nearly everything"))
            for _ in range(40):
                await world.pause(1)
                assert not skipped(world, "nearly everything")
            assert both_have_all(world)
            assert a.committed("nearly everything")["orders", 0] == 0, "it has read none of what lies first"
            b.commit("nearly everything", "orders", {0: b.ends("orders")[0] - 100})
            await world.until(lambda: a.committed("nearly everything")["orders", 0] > 1700)
            assert not skipped(world, "nearly everything")
            a.commit("everything", "orders", {0: a.ends("orders")[0]})
            b.commit("nearly everything", "orders", {0: b.ends("orders")[0]})
            await world.until(lambda: b.committed("everything") == {("orders", 0): b.ends("orders")[0]})
            await world.until(
                lambda: a.committed("nearly everything") == {("orders", 0): a.ends("orders")[0]}
            )

    live(life())


def test_a_source_that_does_not_answer_takes_no_group_its_place(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=7) as world:
            a, b = world.on["A"], world.on["B"]
            for application in world.on.values():
                application.cluster.create_topic("orders")
            world.start(*SERVICES)
            await write_hundreds(world, 3)
            a.commit("readers", "orders", {0: a.ends("orders")[0]})
            await world.until(lambda: b.committed("readers") == {("orders", 0): b.ends("orders")[0]})
            await world.kafka["A"].stop_node(1)
            b.commit("readers", "orders", {0: 0})
            await world.until(lambda: b.committed("readers") == {("orders", 0): b.ends("orders")[0]})
            await world.move("failover", accept_loss=True)
            assert not skipped(world, "readers")

    live(life())


def test_a_group_past_the_end_of_a_log_that_lost_records_skips_no_record_written_since(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=3) as world:
            a, b = world.on["A"], world.on["B"]
            for application in world.on.values():
                application.cluster.create_topic("orders")
            world.start(*SERVICES)
            await write_hundreds(world, 2)
            a.produce("orders", 0, *(b"A2-%d" % number for number in range(20)))
            await world.until(lambda: both_have_all(world))
            (end,) = a.ends("orders")
            a.commit("readers", "orders", {0: end})
            await world.until(lambda: b.committed("readers") == {("orders", 0): b.ends("orders")[0]})
            a.cluster.lose_tail(a.partition("orders"), end - 15)
            a.produce("orders", 0, *(b"new %d" % number for number in range(10)))
            await world.pause(60)
            new = next(each.offset for each in b.read("orders") if each.value == b"new 0")
            assert b.committed("readers")["orders", 0] <= new
            *_, last = await world.move("failover", accept_loss=True)
            assert not last.report.left_behind
            assert b.committed("readers")["orders", 0] <= new

    live(life())


async def write_hundreds(world: World, rounds: int) -> None:
    """Until all is copied."""
    for number in range(rounds):
        for alias, application in world.on.items():
            application.produce("orders", 0, *(f"{alias}{number}-{i}".encode() for i in range(100)))
        await world.pause(0.4)
    await world.until(lambda: both_have_all(world))


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


@pytest.mark.parametrize("seconds", [0.5, 15])
def test_rules_that_make_a_topic_go_both_ways_while_both_sides_write(tmp_path: Path, seconds: float) -> None:
    """One after the other, in both orders: nothing is copied round, and each record is once on each side."""

    async def life() -> None:
        async with World(tmp_path, FILE.replace("topics = orders.*", "topics = bills"), seed=23) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders", partition_count=2)
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


async def verified(
    world: World, flow: Flow, *, complete: bool = True, file: Path | None = None
) -> tuple[str, int]:
    """The verdict, of a replicator that has stopped for good if `complete`, and how many records differ."""
    request = VerifyRequest(flow=flow, topics=frozenset({"orders"}), complete=complete)
    report = await Verification(
        configuration=load(file or world.file, environ={}), request=request, clock=LoopClock()
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

    live(life())


def test_a_file_for_each_direction(tmp_path: Path) -> None:
    """No process has the flow back: that there is one is known by the positions topic of it."""
    ports = {"source": 27401, "configsync": 27404}
    listen = "".join(f"twinlog.{name}.listen = 127.0.0.1:{port}\n" for name, port in ports.items())

    async def life() -> None:
        async with World(tmp_path, FILE.replace("B->A.enabled = true\n", ""), seed=19) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders", partition_count=2)
            back = tmp_path / "back.properties"
            back.write_text(world.file.read_text().replace("A->B.enabled", "B->A.enabled") + listen)
            world.start("configsync", "source")
            world.start("configsync 2", "source 2", arguments=("--config", str(back)))
            await write(world, range(60), seconds=0.5)
            await all_once(world, 120)
            for file, flow in ((world.file, Flow("A", "B")), (back, Flow("B", "A"))):
                assert await verified(world, flow, file=file) == ("EQUAL", 0)
            assert not [each for each in world.logged if each["level"] in ("error", "critical")]

    live(life())


def test_a_move_says_that_what_it_waits_for_may_come_from_the_other_side(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=17) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders")
            world.start(*SERVICES)
            await write(world, range(3), partitions=1)
            await all_once(world, 6)
            pause = source.PauseReplicationRequest(scope=scope("orders"), by="ann")
            await world.order("PauseReplication", pause)
            await write(world, range(3, 8), partitions=1, to="B")
            await world.until(lambda: len(values(world, "A")) == 11)
            world.on["A"].commit("readers", "orders", {0: 2})
            told = r"orders-0: 5 records \(PAUSED.*; records that came from there count, too\)"
            with pytest.raises(grpc.RpcError, match=told):
                await world.move("failover", groups=["readers"])

    live(life())


def test_a_group_before_an_open_transaction_skips_nothing_of_the_other_side(tmp_path: Path) -> None:
    """It has read all that it can, and copies lie behind the transaction."""

    async def life() -> None:
        async with World(tmp_path, FILE, seed=18) as world:
            for application in world.on.values():
                application.cluster.create_topic("orders")
            world.start(*SERVICES)
            await write(world, range(3), partitions=1)
            await all_once(world, 6)
            a, b = world.on["A"], world.on["B"]
            stands_at = a.ends("orders")[0]
            a.open_transaction("orders", b"A3")
            await write(world, range(4, 9), partitions=1, to="B")
            await world.until(lambda: a.ends("orders")[0] >= stands_at + 6)
            await world.pause(30)
            a.commit("everything", "orders", {0: stands_at})
            await world.until(lambda: b.committed("everything"))
            await world.pause(30)
            assert not skipped(world, "everything")

    live(life())
