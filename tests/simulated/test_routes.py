"""A flow whose records go to several topics: each arrives once, where it has to, whatever is killed, and
groups find their place in each of these topics."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from simulated.clients import Seen
from simulated.test_changed_records import Pipe
from simulated.world import ONE_BROKER, World, live, lives_in
from twinlog.api.source.v1.source_service_pb2 import ListGapsRequest
from twinlog.batches.bodies import OpenRecord, decode_record
from twinlog.cli.verdict.verdict import verdict_of
from twinlog.comparison.model import DifferenceKind
from twinlog.config import load
from twinlog.errors import ConfigError, TransientKafkaError
from twinlog.model import Flow, TopicPartition
from twinlog.testing.virtual_time import LoopClock
from twinlog.verify.repair import remedies
from twinlog.verify.report import FlowReport, FlowVerdict, document, safe_ranges
from twinlog.verify.standing import by_log, standings
from twinlog_source.records.frames import Back
from twinlog_source.verify.engine import Verification
from twinlog_source.verify.request import VerifyRequest

FILE = (
    ONE_BROKER
    + """
A->B.enabled = true
A->B.topics = orders, plain
A->B.sync.group.offsets.enabled = true
A->B.transforms = minutes, big
A->B.transforms.minutes.type = org.apache.kafka.connect.transforms.TimestampRouter
A->B.transforms.minutes.timestamp.format = yyyyMMdd-HHmm
A->B.transforms.minutes.predicate = isPlain
A->B.transforms.minutes.negate = true
A->B.transforms.big.type = org.apache.kafka.connect.transforms.RegexRouter
A->B.transforms.big.regex = A.plain
A->B.transforms.big.replacement = A.plain-big
A->B.transforms.big.predicate = isBig
A->B.predicates = isPlain, isBig
A->B.predicates.isPlain.type = org.apache.kafka.connect.transforms.predicates.TopicNameMatches
A->B.predicates.isPlain.pattern = A\\\\.plain
A->B.predicates.isBig.type = org.apache.kafka.connect.transforms.predicates.HasHeaderKey
A->B.predicates.isBig.name = big
"""
)
NO_SYNC = FILE.replace("offsets.enabled = true", "offsets.enabled = false")
_APART_MS = 17_000
"""Between two records: some are of the same minute."""
Place = tuple[str, int]
BIG = "A.plain-big", 0


@pytest.mark.parametrize("seed", range(3))
def test_records_arrive_once_under_their_routes_whatever_is_killed(tmp_path: Path, seed: int) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=seed) as world:
            source, target = world.on["A"], world.on["B"]
            source.times_ms = count(source.cluster.clock.now_ms(), _APART_MS)
            source.cluster.create_topic("orders", partition_count=2)
            source.cluster.create_topic("plain")
            world.start("configsync", "source", "checkpoint")
            for number in range(16):
                source.produce("orders", number % 2, b"a %d" % number, b"b %d" % number)
                source.transaction("orders", b"paid %d" % number, partitions=2)
                source.transaction("orders", b"not paid", partitions=2, commits=False)
                source.produce("plain", 0, b"c %d" % number)
                source.produce("plain", 0, b"d %d" % number, headers=((b"big", b""),))
                for topic in ("orders", "plain"):
                    reads_on(world, topic)
                await world.pause(random.random() * 20)
                if number % 4 == 1:
                    await world.kill_tasks()
                elif number % 4 == 3:
                    await world.kill("source")
                    world.start("source")
                elif number == 6:
                    await world.kill("checkpoint")
                    world.start("checkpoint")
                assert not ahead(world)
            await world.until(lambda: copied(world) == wanted(world))
            assert len(wanted(world)) > 6
            assert target.read("A.orders") == []
            # A task that is killed loses the newest offset syncs, and groups read some records again.
            before = set(wanted(world))
            for number in range(8):
                source.produce("orders", number % 2, b"e %d" % number)
            await world.until(lambda: copied(world) == wanted(world))
            for topic in ("orders", "plain"):
                source.commit("group", topic, dict(enumerate(source.ends(topic))))
            await world.until(lambda: not behind(world).keys() - before)
            await world.pause(60)
            assert copied(world) == wanted(world)
            assert not ahead(world)
            report = await verified(world)
            assert (report.verdict, sum(proof.records for proof in report.proofs)) == (
                FlowVerdict.EQUAL,
                sum(map(len, wanted(world).values())),
            )
            status = await world.status()
            assert {each.about for each in verdict_of(status).pressing} == {"heartbeat"}  # It is not started.
            assert (status.flows["A->B"].lag_records, status.flows["A->B"].partitions) == (0, {"RUNNING": 3})
            for service in ("source", "configsync", "checkpoint"):
                await world.stop(service)

    live(life())


def test_a_new_route_waits_for_no_refresh_of_topics(tmp_path: Path) -> None:
    async def life() -> None:
        text = FILE + "A->B.refresh.topics.enabled = false\n"
        async with World(tmp_path, text) as world:
            source = world.on["A"]
            source.cluster.create_topic("plain")
            world.start("configsync", "source")
            source.produce("plain", 0, b"a")
            await world.until(lambda: copied(world) == wanted(world))
            source.produce("plain", 0, b"b", headers=((b"big", b""),))
            await world.until(lambda: copied(world) == wanted(world))
            for service in ("source", "configsync"):
                await world.stop(service)

    live(life())


@lives_in(World, FILE + "refresh.topics.interval.seconds = 20\n")
async def test_routes_outlive_the_registry_that_is_deleted_under_the_running_services(world: World) -> None:
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("plain")
    world.start("configsync", "source")
    source.produce("plain", 0, b"c")
    source.produce("plain", 0, b"d", headers=((b"big", b""),))
    await world.until(lambda: target.read("A.plain-big"))
    await world.pause(60)
    target.cluster.delete_topic("mm2-configsync.A.internal")
    await world.pause(60)
    report = await verified(world)
    assert (report.verdict, sum(proof.records for proof in report.proofs)) == ("EQUAL", 2)


@lives_in(World, FILE)
async def test_a_route_whose_topic_was_deleted_gets_it_again_with_the_next_record(world: World) -> None:
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("plain")
    world.start("configsync", "source", "checkpoint")
    for number in range(3):
        source.produce("plain", 0, b"c %d" % number)
        source.produce("plain", 0, b"d %d" % number, headers=((b"big", b""),))
        source.commit("group", "plain", {0: 2 * number + 1})
        await world.until(lambda: target.read("A.plain-big"))
        await world.pause(60)
        assert [seen.value for seen in target.read("A.plain-big")] == [b"d %d" % number]
        # What only the former topic had is no difference, and not on the target either.
        report = await verified(world)
        (safe,) = safe_ranges(report.proofs, None)
        assert (report.verdict, safe.reason) == ("EQUAL", "BEFORE_FIRST_COPY" if number else "")
        target.cluster.delete_topic("A.plain-big")
        await world.pause(90)
        assert "A.plain-big" not in target.cluster.topics
        report = await verified(world)
        assert (report.verdict, [proof.records for proof in report.proofs]) == ("EQUAL", [number + 1])
        # What only that topic had is not on the target any more.
        (safe,) = safe_ranges(report.proofs, None)
        assert (safe.until, safe.reason) == (1, "ROUTED")
    await world.move("failover")
    for service in ("source", "configsync", "checkpoint"):
        await world.stop(service)


@lives_in(World, FILE)
async def test_a_copy_that_is_created_again_while_records_are_routed_has_each_record_or_a_gap(
    world: World,
) -> None:
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("plain")
    world.start("configsync", "source")

    def produce(number: int) -> None:
        source.produce("plain", 0, b"c %d" % number)
        source.produce("plain", 0, b"d %d" % number, headers=((b"big", b""),))

    produce(0)
    await world.until(lambda: copied(world) == wanted(world))
    for number in range(1, 4):
        target.cluster.delete_topic("A.plain")
        target.cluster.create_topic("A.plain")
        produce(number)
        await world.until(lambda: copied(world).get(BIG) == wanted(world)[BIG])
        await world.pause(90)
        gaps = (await world.order("ListGaps", ListGapsRequest())).gaps
        there = {seen.value for seen in target.read("A.plain")}
        for seen in source.read("plain"):
            is_lost = any(gap.from_offset <= seen.offset < gap.to_offset for gap in gaps)
            assert seen.headers or is_lost != (seen.value in there), (number, seen)
    for service in ("source", "configsync"):
        await world.stop(service)


@lives_in(World, NO_SYNC)
async def test_a_failover_places_groups_in_each_route_and_none_of_them_leads_back(world: World) -> None:
    source, target = world.on["A"], world.on["B"]
    source.times_ms = count(source.cluster.clock.now_ms(), _APART_MS)
    source.cluster.create_topic("orders", partition_count=2)
    source.cluster.create_topic("plain")
    world.start("configsync", "source", "checkpoint")
    for number in range(8):
        source.produce("orders", number % 2, b"a %d" % number, b"b %d" % number)
        source.produce("plain", 0, b"c %d" % number)
        source.produce("plain", 0, b"d %d" % number, headers=((b"big", b""),))
    source.commit("group", "orders", {0: 5, 1: 8})
    source.commit("group", "plain", {0: 9})
    # Not copied: what a group has read of it says nothing of the records that go to A.plain-big.
    source.cluster.create_topic("plain-big")
    source.produce("plain-big", 0, *(b"e" for _ in range(99)))
    source.commit("other", "plain-big", {0: 99})
    await world.until(lambda: copied(world) == wanted(world))
    await world.pause(30)
    await world.move("failover", accept_loss=True)
    assert not ahead(world)
    put = target.committed("group")
    read = {place for place, first in places(world).items() if first is None or first > 0}
    assert read <= {place for place, offset in put.items() if offset > 0}
    assert target.committed("other") == {}

    # It reads all there is in one of the topics on B, and nothing of the others.
    (end,) = target.ends("A.plain")
    target.commit("group", "A.plain", {0: end})
    stood = source.committed("group")
    await world.move("failback", accept_loss=True)
    assert source.committed("group") == stood
    for service in ("source", "configsync", "checkpoint"):
        await world.stop(service)


@pytest.mark.parametrize(
    "names", ["", "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"]
)
def test_a_failback_skips_no_record_that_took_a_route_before_the_routers_left_the_file(
    tmp_path: Path, names: str
) -> None:
    async def life() -> None:
        prefix = "" if names else "A."
        async with World(
            tmp_path, names + NO_SYNC.replace("A.plain", f"{prefix}plain").replace(r"A\\.", prefix)
        ) as world:
            source, target = world.on["A"], world.on["B"]
            source.cluster.create_topic("plain")
            world.start("configsync", "source", "checkpoint")
            for number in range(8):
                source.produce("plain", 0, b"c %d" % number)
                source.produce("plain", 0, b"d %d" % number, headers=((b"big", b""),))
            source.commit("group", "plain", {0: 9})
            await world.until(lambda: len(target.read(f"{prefix}plain-big")) == 8)
            for service in ("source", "configsync", "checkpoint"):
                await world.stop(service)
            world.file.write_text(
                "\n".join(
                    line
                    for line in world.file.read_text().splitlines()
                    if ".transforms" not in line and ".predicates" not in line
                )
            )
            world.start("configsync", "source", "checkpoint")
            source.produce("plain", 0, b"e")
            await world.until(lambda: target.read(f"{prefix}plain")[-1].value == b"e")
            await world.pause(90)
            await world.move("failover", accept_loss=True)
            (end,) = target.ends(f"{prefix}plain")
            target.commit("group", f"{prefix}plain", {0: end})
            await world.move("failback", accept_loss=True)
            assert source.committed("group") == {("plain", 0): 9}
            for service in ("source", "configsync", "checkpoint"):
                await world.stop(service)

    live(life())


BY_CONTENT = (
    ONE_BROKER
    + """
A->B.enabled = true
A->B.topics = orders
A->B.sync.group.offsets.enabled = true
A->B.twinlog.transform.topics = orders
A->B.twinlog.transform.topic = in the pipe below
A->B.twinlog.transform.on.error = dead-letter
A->B.twinlog.dead.letter.topic = dead
"""
)


class ByFirstWord(Pipe):
    """Spark: the first word of a value is the topic, but for `own`."""

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Back:
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=random.choice((0.01, 2)))
        if random.random() < self.lost:
            raise TransientKafkaError("the JVM was killed", reason="SPARK_UNAVAILABLE")
        back = Back(list(records), {}, {})
        for record in records:
            route = (decode_record(record).value or b"").split()[0].decode()
            if route != "own":
                back.routes[record[0]] = route
        return back


class SteadyByFirstWord(ByFirstWord):
    lost = 0.0


@pytest.mark.parametrize("seed", range(2))
def test_an_expression_routes_records_and_what_is_no_topic_is_treated_as_an_error(
    tmp_path: Path, seed: int
) -> None:
    async def life() -> None:
        async with World(tmp_path, BY_CONTENT, seed=seed, make_pipe=ByFirstWord) as world:
            source, target = world.on["A"], world.on["B"]
            source.cluster.create_topic("orders", partition_count=2)
            world.start("configsync", "source", "checkpoint")
            sent: dict[tuple[str, int], list[bytes | None]] = {}
            for number in range(40):
                word = random.choice((b"own", b"eu", b"us", b"eu", b"no/topic"))
                topic = {b"own": "A.orders", b"no/topic": "dead"}.get(word, f"A.{word.decode()}")
                value = b"%b %d" % (word, number)
                source.produce("orders", number % 2, value)
                sent.setdefault((topic, 0 if topic == "dead" else number % 2), []).append(value)
                await world.pause(random.random() * 4)
                if number % 9 == 4:
                    await world.kill_tasks()
                elif number % 9 == 8:
                    await world.kill("source")
                    world.start("source")

            def arrived() -> dict[tuple[str, int], list[bytes | None]]:
                found: dict[tuple[str, int], list[bytes | None]] = {}
                for topic in ("A.orders", "A.eu", "A.us", "dead"):
                    for seen in target.read(topic):
                        found.setdefault((topic, seen.partition), []).append(seen.value)
                return found

            def in_order(found: dict[tuple[str, int], list[bytes | None]]) -> dict[object, object]:
                """Dead letters of two partitions have no order."""
                return {at: sorted(each, key=str) if at[0] == "dead" else each for at, each in found.items()}

            await world.until(lambda: in_order(arrived()) == in_order(sent))
            await world.pause(60)
            assert in_order(arrived()) == in_order(sent)
            report = await verified(world)
            copies = [len(each) for (topic, _), each in sent.items() if topic != "dead"]
            assert (report.verdict, sum(proof.records for proof in report.proofs)) == ("EQUAL", sum(copies))
            for service in ("source", "configsync", "checkpoint"):
                await world.stop(service)

    live(life())


@lives_in(World, FILE)
async def test_verify_compares_each_route_with_what_takes_it(world: World) -> None:
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("plain")
    world.start("configsync", "source")
    for number in range(5):
        source.produce("plain", 0, b"c %d" % number)
        source.produce("plain", 0, b"d %d" % number, headers=((b"big", b""),))
    await world.until(lambda: copied(world) == wanted(world))
    await world.pause(5)
    in_force = (await world.status()).flows["A->B"].in_force
    assert [each.message for each in in_force if each.kind == "TRANSFORM"] == [
        "records that transforms kept out of their copy: 5 ROUTED"
    ]
    for service in ("source", "configsync"):
        await world.stop(service)
    report = await verified(world)
    assert [(str(each.source), each.records, each.routed_from) for each in report.proofs] == [
        ("plain-0", 5, ""),
        ("plain-big-0", 5, "plain"),
    ]
    log = TopicPartition("plain", 0)
    assert [(each.source, each.until, each.reason) for each in safe_ranges(report.proofs, None)] == [
        (log, 10, "")
    ]
    seen = target.read("A.plain-big")
    for wrong, kind in (
        (seen[:2] + seen[3:], DifferenceKind.MISSING),
        (seen[:3] + seen[2:], DifferenceKind.DUPLICATE),
        ([*seen[:2], seen[2]._replace(value=b"x"), *seen[3:]], DifferenceKind.CHANGED),
    ):
        target.cluster.delete_topic("A.plain-big")
        target.cluster.create_topic("A.plain-big")
        target.copy("A.plain-big", wrong)
        own, routed = (await verified(world, show=True)).proofs
        assert not own.differences
        assert [(each.kind, each.source_offset) for each in routed.differences] == [(kind, 5)]
        (safe,) = safe_ranges([own, routed], None)
        assert (safe.source, safe.until, safe.reason) == (log, 5, kind)
        stands = standings({}, [own, routed], now_ms=1)
        (standing,) = by_log(stands, {"plain-big": "plain", "plain": "plain"}.__getitem__).values()
        assert (standing.verdict, standing.proven_until) == (FlowVerdict.DIFFERENT, 5)
    told = document(await verified(world))
    with pytest.raises(ConfigError, match="its other routes"):
        remedies(told)
    # A route that nobody has told: what is proven ends at the first record that takes it.
    target.produce("mm2-configsync.A.internal", 0, None, key=b'["route","plain-big"]')
    report = await verified(world)
    (proof,) = report.proofs
    assert (report.verdict, proof.records) == (FlowVerdict.INCOMPLETE, 5)
    assert [(each.reason, each.from_offset) for each in proof.not_compared] == [("ROUTED", 1)]
    (standing,) = standings({}, [proof], now_ms=1).values()
    assert (standing.verdict, standing.proven_until) == (FlowVerdict.EQUAL, 1)


async def verified(world: World, *, show: bool = False) -> FlowReport:
    return await Verification(
        configuration=load(world.file, environ={}),
        request=VerifyRequest(flow=Flow("A", "B"), complete=True, show=show),
        clock=LoopClock(),
        run_pipe=nobody,
        make_pipe=SteadyByFirstWord,
    ).run()


async def nobody(*_: object) -> None:
    raise AssertionError


def reads_on(world: World, topic: str) -> None:
    """The group commits some way ahead of where it is."""
    source = world.on["A"]
    before = source.committed("group")
    source.commit(
        "group",
        topic,
        {
            number: random.randint(before.get((topic, number), 0), end)
            for number, end in enumerate(source.ends(topic))
        },
    )


def route(topic: str, seen: Seen) -> Place:
    if topic == "orders":
        at = datetime.fromtimestamp(seen.timestamp_ms / 1000, UTC)
        return f"A.orders-{at:%Y%m%d-%H%M}", seen.partition
    return ("A.plain-big" if seen.headers else "A.plain"), seen.partition


def wanted(world: World) -> Mapping[Place, list[bytes | None]]:
    found: dict[Place, list[bytes | None]] = {}
    for topic in ("orders", "plain"):
        for seen in world.on["A"].read(topic):
            found.setdefault(route(topic, seen), []).append(seen.value)
    return found


def copied(world: World) -> Mapping[Place, list[bytes | None]]:
    found: dict[Place, list[bytes | None]] = {}
    target = world.on["B"]
    for topic in target.cluster.topics:
        for seen in target.read(topic) if topic.startswith(("A.orders", "A.plain")) else ():
            found.setdefault((topic, seen.partition), []).append(seen.value)
    return found


def places(world: World) -> dict[Place, int | None]:
    """By topic and partition of the target: the first record there that the group has not read."""
    source, target = world.on["A"], world.on["B"]
    stands, found = source.committed("group"), dict[Place, int | None]()
    offsets = {
        (place, seen.value): seen.offset
        for place in copied(world)
        for seen in target.read(place[0])
        if seen.partition == place[1]
    }
    for topic in ("orders", "plain"):
        for seen in reversed(source.read(topic)):
            place = route(topic, seen)
            found.setdefault(place, None)
            if seen.offset >= stands.get((topic, seen.partition), 0):
                found[place] = offsets.get((place, seen.value), found[place])
    return found


def ahead(world: World) -> dict[Place, tuple[int, int]]:
    put = world.on["B"].committed("group")
    return {
        place: (put[place], first)
        for place, first in places(world).items()
        if first is not None and put.get(place, 0) > first
    }


def behind(world: World) -> dict[Place, int | None]:
    """Of a group that has read everything."""
    put, target = world.on["B"].committed("group"), world.on["B"]
    last = {
        place: max(seen.offset for seen in target.read(place[0]) if seen.partition == place[1])
        for place in copied(world)
    }
    return {place: put.get(place) for place, offset in last.items() if put.get(place, 0) <= offset}
