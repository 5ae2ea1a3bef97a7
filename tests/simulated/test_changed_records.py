"""A flow whose records are changed on the way: each arrives as it has to and once, whatever is killed."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simulated.world import ONE_BROKER, World, live, lives_in
from twinlog.api.source.v1 import source_service_pb2 as source_api
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.batches.bodies import OpenRecord, decode_record, encode_body
from twinlog.comparison.model import DifferenceKind
from twinlog.config import load
from twinlog.errors import StateError, TransientKafkaError
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.rpc import MemoryRpc
from twinlog.testing.virtual_time import LoopClock
from twinlog.transforms.expressions import Expressions
from twinlog.verify.report import FlowReport
from twinlog_source.pipeline.runner import NO_CORE_SECONDS
from twinlog_source.records.frames import Back
from twinlog_source.records.pipe import PipeJob, RunJob, TransformFailedError
from twinlog_source.verify.engine import Verification
from twinlog_source.verify.request import VerifyRequest

FILE = (
    ONE_BROKER
    + """
A->B.enabled = true
A->B.topics = orders, plain
A->B.twinlog.transform.topics = orders
A->B.twinlog.transform.where = in the pipe below
A->B.twinlog.transform.value = in the pipe below
A->B.twinlog.provenance.headers = true
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
"""
)


SHORT_EPOCHS = "twinlog.epoch.seconds = 1\ntwinlog.epoch.max.seconds = 1\n"


def change(value: bytes) -> bytes | None:
    """None: the record is dropped."""
    return None if value.startswith(b"drop") else value.upper()


class Pipe:
    """Spark, row by row in Python; it is lost now and then."""

    lost = 0.2

    def __init__(self, _run_job: RunJob, _expressions: Expressions, strict: bool, _idle: float) -> None:
        self.strict = strict

    async def run(self) -> None: ...

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Back:
        assert partition.topic == "orders"
        await asyncio.wait(
            [asyncio.get_running_loop().create_future()], timeout=random.choice((0.01, 0.2, 2))
        )
        if random.random() < self.lost:
            raise TransientKafkaError("the JVM was killed", reason="SPARK_UNAVAILABLE")
        back = Back([], {}, {})
        for record in records:
            offset, timestamp_ms, key, value, headers = decode_record(record)
            assert value is not None
            if value == b"too large":
                back.passed.append((offset, timestamp_ms, encode_body(key, bytes(2 << 20), headers)))
                continue
            if value == b"breaks":
                raise TransformFailedError("the function raised")
            if value == b"fails":
                if self.strict:
                    raise TransformFailedError("a bad cast")
                back.failed[offset] = 1
            elif (changed := change(value)) is not None:
                back.passed.append((offset, timestamp_ms, encode_body(key, changed, headers)))
        return back


class Steady(Pipe):
    lost = 0.0


class Slow(Steady):
    """Opens for much longer than an epoch lasts."""

    seconds = 15.0

    def __init__(self, run_job: RunJob, expressions: Expressions, strict: bool, idle: float) -> None:
        super().__init__(run_job, expressions, strict, idle)
        self.is_open = asyncio.Event()

    async def run(self) -> None:
        await wait_or_stop(asyncio.Event(), self.seconds)
        self.is_open.set()

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Back:
        await self.is_open.wait()
        return await super().change(partition, records)


class Sluggish(Steady):
    """Each record takes longer than an epoch lasts."""

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Back:
        await wait_or_stop(asyncio.Event(), 4.0 * len(records))
        return await super().change(partition, records)


@pytest.mark.parametrize("seed", range(3))
def test_records_arrive_changed_and_once_whatever_is_killed(tmp_path: Path, seed: int) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, seed=seed, make_pipe=Pipe) as world:
            source = world.on["A"]
            source.cluster.create_topic("orders", partition_count=2)
            source.cluster.create_topic("plain")
            source.produce("plain", 0, b"unchanged")
            world.start("configsync", "source")
            for number in range(12):
                dropped = [b"drop %d" % number] * (number % 3)
                source.produce("orders", number % 2, b"a %d" % number, *dropped, b"b %d" % number)
                source.transaction("orders", b"paid %d" % number, partitions=2)
                source.transaction("orders", b"not paid", partitions=2, commits=False)
                await world.pause(random.random() * 4)
                if number % 4 == 1:
                    await world.kill_tasks()
                elif number % 4 == 3:
                    await world.kill("source")
                    world.start("source")
            source.produce("orders", 0, *[b"drop at the end"] * 5)
            await world.until(lambda: values(world, "B") == wanted(world))
            await world.until(lambda: world.on["B"].read("plain") == source.read("plain"))
            await world.pause(60)
            assert values(world, "B") == wanted(world)
            origins = {(each.partition, each.offset): each for each in source.read("orders")}
            for copied in world.on["B"].read("orders"):
                told = dict(copied.headers)[b"twinlog.origin"] or b""
                *named, at, ms = told.split(b"/")
                origin = origins[copied.partition, int(at)]
                assert named == [b"A", b"orders", b"%d" % copied.partition]
                assert (copied.value, int(ms)) == (change(origin.value or b""), origin.timestamp_ms)
            (flow,) = (await asked(world, "ListFlows", source_api.ListFlowsRequest())).flows
            assert flow.lag_records == 0
            assert flow.left_out_records["FILTERED"] >= 5
            for service in ("source", "configsync"):
                await world.stop(service)

    live(life())


@lives_in(World, f"{FILE}{SHORT_EPOCHS}", make_pipe=Slow)
async def test_a_pipe_that_opens_for_longer_than_an_epoch_serves_the_next_one(world: World) -> None:
    source = world.on["A"]
    source.cluster.create_topic("orders")
    world.start("configsync", "source")
    for patience_seconds in (60, Slow.seconds / 2):
        source.produce("orders", 0, b"a", b"drop", b"b")
        await world.until(lambda: values(world, "B") == wanted(world), patience_seconds)
    for service in ("source", "configsync"):
        await world.stop(service)


class Late(Slow):
    """Opens when its partition has stood for long."""

    seconds = 80.0


class Coreless(Late):
    """Finds no core before that."""

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Back:
        await wait_or_stop(self.is_open, NO_CORE_SECONDS / 2 + 6 * random.random())
        if not self.is_open.is_set():
            raise TransientKafkaError("no core", reason="NO_FREE_CORE")
        return await super().change(partition, records)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("pipe", "reason"), [(Late, "SPARK_UNAVAILABLE"), (Coreless, "NO_FREE_CORE")])
def test_partitions_whose_records_are_with_spark_say_why_in_each_epoch(
    tmp_path: Path, pipe: type[Pipe], reason: str, seed: int
) -> None:
    async def life() -> None:
        epochs = SHORT_EPOCHS.replace("= 1", "= 5")
        async with World(tmp_path, f"{FILE}{epochs}", seed=seed, make_pipe=pipe) as world:
            source = world.on["A"]
            source.cluster.create_topic("orders", partition_count=2)
            for partition in range(2):
                source.produce("orders", partition, b"a")
            world.start("configsync", "source")
            await world.pause(45)
            request = source_api.ListPartitionsRequest(source_topic="orders")
            for _ in range(100):
                told = (await asked(world, "ListPartitions", request)).partitions
                assert {each.reason for each in told} == {reason}, told
                await world.pause(0.3)
            await world.until(lambda: values(world, "B") == wanted(world), 60)
            for service in ("source", "configsync"):
                await world.stop(service)

    live(life())


@lives_in(World, f"{FILE}{SHORT_EPOCHS}", make_pipe=Sluggish)
async def test_records_that_take_longer_than_an_epoch_are_changed_once_for_the_next_one(world: World) -> None:
    source = world.on["A"]
    source.cluster.create_topic("orders")
    source.produce("orders", 0, b"a", b"drop", b"b")
    world.start("configsync", "source")
    await world.pause(8)
    source.produce("orders", 0, b"c")
    await world.until(lambda: values(world, "B") == wanted(world), 60)
    for service in ("source", "configsync"):
        await world.stop(service)


@pytest.mark.parametrize(
    ("bad", "on_error"),
    [(b"fails", "skip"), (b"breaks", "dead-letter"), (b"too large", "dead-letter"), (b"fails", "stop")],
)
def test_a_record_that_cannot_be_changed_stops_its_partition_or_is_left_out(
    tmp_path: Path, bad: bytes, on_error: str
) -> None:
    file = f"{FILE}A->B.twinlog.transform.on.error = {on_error}\nA->B.twinlog.dead.letter.topic = dead\n"

    async def life() -> None:
        async with World(tmp_path, file, make_pipe=Pipe) as world:
            source = world.on["A"]
            source.cluster.create_topic("orders", partition_count=2)
            source.produce("orders", 0, b"before")
            source.produce("orders", 0, b"one", bad, b"two")
            source.produce("orders", 1, b"other")
            world.start("configsync", "source")
            copied = [(0, b"BEFORE"), (1, b"OTHER")]
            if on_error != "stop":
                copied[1:1] = [(0, b"ONE"), (0, b"TWO")]
            await world.until(lambda: values(world, "B") == copied)
            source.produce("orders", 1, b"later")
            copied.append((1, b"LATER"))
            await world.until(lambda: values(world, "B") == copied)
            await world.pause(2)
            (flow,) = (await asked(world, "ListFlows", source_api.ListFlowsRequest())).flows
            left_out = {"skip": {"SKIPPED": 1}, "dead-letter": {"DEAD_LETTERED": 1}, "stop": {}}
            assert flow.left_out_records == left_out[on_error]
            if on_error == "dead-letter":
                (dead,) = world.on["B"].read("dead")
                (there,) = [seen for seen in source.read("orders") if seen.value == bad]
                assert dead[2:5] == there[2:5]
                told = dict(dead.headers)
                assert told[b"__connect.errors.topic"] == b"orders"
                assert told[b"__connect.errors.offset"] == b"%d" % there.offset
                assert told[b"__connect.errors.exception.message"]
            for service in ("source", "configsync"):
                await world.stop(service)

    live(life())


@pytest.mark.parametrize(("on_error", "is_last"), [("skip", False), ("dead-letter", True), ("stop", False)])
def test_a_corrupt_batch_stops_its_partition_or_is_a_gap(
    tmp_path: Path, on_error: str, is_last: bool
) -> None:
    file = f"{FILE}A->B.twinlog.transform.on.error = {on_error}\nA->B.twinlog.dead.letter.topic = dead\n"

    async def life() -> None:
        async with World(tmp_path, file, make_pipe=Steady) as world:
            source = world.on["A"]
            source.cluster.create_topic("orders")
            source.produce("orders", 0, b"before")
            source.produce("orders", 0, b"bad", b"bad too")
            if not is_last:
                source.produce("orders", 0, b"behind")
            log = source.partition("orders").log
            sound, copied = log.batches[1], [(0, b"BEFORE")]
            log.batches[1] = sound._replace(data=sound.data.replace(b"bad", b"BAD"))
            world.start("configsync", "source")
            await world.until(lambda: values(world, "B") == copied)
            copied += [] if is_last or on_error == "stop" else [(0, b"BEHIND")]
            await world.pause(90)
            assert values(world, "B") == copied
            gaps = (await asked(world, "ListGaps", source_api.ListGapsRequest())).gaps
            found = [(gap.reason, gap.from_offset, gap.to_offset) for gap in gaps]
            assert found == ([] if on_error == "stop" else [("CORRUPT_BATCH", 1, 3)])
            if on_error == "stop":
                request = source_api.ListPartitionsRequest(source_topic="orders")
                (told,) = (await asked(world, "ListPartitions", request)).partitions
                assert (told.reason, told.position) == ("CORRUPT_BATCH", 1)
                log.batches[1] = sound
                copied += [(0, b"BAD"), (0, b"BAD TOO"), (0, b"BEHIND")]
            source.produce("orders", 0, b"later")
            copied.append((0, b"LATER"))
            await world.until(lambda: values(world, "B") == copied, 90)
            assert world.on["B"].read("dead") == []
            for service in ("source", "configsync"):
                await world.stop(service)

    live(life())


def test_verify_names_what_is_missing_doubled_changed_otherwise_or_left_out(
    tmp_path: Path,
) -> None:
    file = f"{FILE}A->B.twinlog.transform.on.error = skip\n"

    async def verified(world: World) -> FlowReport:
        report = await Verification(
            configuration=load(world.file, environ={}),
            request=VerifyRequest(flow=Flow("A", "B"), topics=frozenset({"orders"}), complete=True),
            clock=LoopClock(),
            run_pipe=nobody,
            make_pipe=Steady,
        ).run()
        assert not report.failures
        left_out = [(each.reason, each.from_offset) for proof in report.proofs for each in proof.not_compared]
        assert left_out == [("RECORD_TOO_LARGE", 7)]
        return report

    async def life() -> None:
        async with World(tmp_path, file, seed=4, make_pipe=Steady) as world:
            source, target = world.on["A"], world.on["B"]
            source.cluster.create_topic("orders")
            source.produce(
                "orders",
                0,
                *(b"a %d" % number for number in range(5)),
                b"drop",
                b"fails",
                b"too large",
                b"breaks",
            )
            world.start("configsync", "source")
            copied = [(0, b"A %d" % number) for number in range(5)]
            await world.until(lambda: values(world, "B") == copied)
            await world.pause(5)
            for service in ("source", "configsync"):
                await world.stop(service)
            report = await verified(world)
            assert (str(report.verdict), report.proofs[0].records) == ("EQUAL", 5)

            seen = target.read("orders")
            for wrong, kind in (
                (seen[:2] + seen[3:], DifferenceKind.MISSING),
                (seen[:3] + seen[2:], DifferenceKind.DUPLICATE),
                ([*seen[:2], seen[2]._replace(value=b"a 2"), *seen[3:]], DifferenceKind.CHANGED),
            ):
                target.cluster.delete_topic("orders")
                target.cluster.create_topic("orders")
                target.copy("orders", wrong)
                (proof,) = (await verified(world)).proofs
                assert [(each.kind, each.source_offset) for each in proof.differences] == [(kind, 2)]

    live(life())


def test_verify_compares_what_was_copied_with_the_transform_of_its_file(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, FILE, make_pipe=Steady) as world:
            source = world.on["A"]
            source.cluster.create_topic("orders")
            files, transforms = [], []
            for number, value in enumerate(("as before", "in the pipe below", "otherwise")):
                text = world.file.read_text()
                keys = [line for line in text.splitlines() if not line.startswith("A->B.twinlog.transform.v")]
                world.file.write_text("\n".join([*keys, f"A->B.twinlog.transform.value = {value}"]))
                files.append(tmp_path / f"{number}.properties")
                files[-1].write_text(world.file.read_text())
                source.produce("orders", 0, *(b"%d a %d" % (number, each) for each in range(10)))
                world.start("configsync", "source")
                await world.until(lambda: values(world, "B") == wanted(world))
                await world.pause(5)
                request = source_api.ListPartitionsRequest(source_topic="orders")
                (told,) = (await asked(world, "ListPartitions", request)).partitions
                transforms.append((told.transform, told.transform_since))
                for service in ("source", "configsync"):
                    await world.stop(service)
            assert [since for _, since in transforms] == [0, 10, 20]
            assert len(dict(transforms)) == 3
            for number, file in enumerate(files):
                report = await Verification(
                    configuration=load(file, environ={}),
                    request=VerifyRequest(flow=Flow("A", "B"), topics=frozenset({"orders"}), complete=True),
                    clock=LoopClock(),
                    run_pipe=nobody,
                    make_pipe=Steady,
                ).run()
                (proof,) = report.proofs
                left_out = [(each.from_offset, each.to_offset) for each in proof.not_compared]
                ends = [(0, 10 * number), (10 * (number + 1), 30)]
                assert left_out == [(begin, end) for begin, end in ends if begin < end]
                assert {str(each.reason) for each in proof.not_compared} == {"OTHER_TRANSFORMS"}
                assert (proof.records, proof.differences) == (10, [])

    live(life())


@lives_in(World, FILE, make_pipe=Steady)
async def test_a_copy_with_the_sources_offsets_that_gets_expressions_has_offsets_of_its_own_for_good(
    world: World,
) -> None:
    changes = world.file.read_text()
    copies = "\n".join(line for line in changes.splitlines() if "A->B.twinlog" not in line)
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("orders")
    stood, arrived = [], []
    for text, value in ((copies, b"a"), (changes, b"b"), (copies, b"c")):
        world.file.write_text(text)
        source.produce("orders", 0, value, b"drop")
        arrived.extend([value.upper()] if text is changes else [value, b"drop"])
        world.start("configsync", "source")
        await world.until(lambda: [each.value for each in target.read("orders")] == arrived)
        await world.pause(5)
        request = source_api.ListPartitionsRequest(source_topic="orders")
        (told,) = (await asked(world, "ListPartitions", request)).partitions
        stood.append((told.offsets, told.offsets_since, bool(told.transform), told.transform_since))
        for service in ("source", "configsync"):
            await world.stop(service)
    assert stood == [
        ("preserved", 0, False, 0),
        ("translated", 2, True, 2),
        ("translated", 2, False, 4),
    ]


async def nobody(_flow: Flow, _expressions: Expressions, _job: PipeJob) -> None: ...


@lives_in(World, FILE, make_pipe=Pipe)
async def test_expressions_are_looked_at_before_a_record_is_fetched(world: World) -> None:
    source = world.on["A"]
    for topic in ("orders", "plain"):
        source.cluster.create_topic(topic)
        source.produce(topic, 0, b"first")
    world.refusal = TransientKafkaError("no JVM", reason="SPARK_UNAVAILABLE")
    world.start("configsync", "source")
    await world.until(lambda: world.on["B"].read("plain") == source.read("plain"))
    world.refusal = StateError("twinlog.transform.value: no", reason="TRANSFORM_REFUSED")
    await world.pause(60)
    assert values(world, "B") == []
    await world.stop("source")
    world.refusal = None
    world.start("source")
    await world.until(lambda: values(world, "B") == [(0, b"FIRST")])
    for service in ("source", "configsync"):
        await world.stop(service)


async def asked(world: World, name: str, request: Any) -> Any:
    async with MemoryRpc(world.rpc).insecure_channel("127.0.0.1:17401") as channel:
        return await getattr(SourceServiceStub(channel), name)(request, timeout=60)


def values(world: World, alias: str) -> list[tuple[int, bytes | None]]:
    return [(seen.partition, seen.value) for seen in world.on[alias].read("orders")]


def wanted(world: World) -> list[tuple[int, bytes | None]]:
    found = values(world, "A")
    return [(partition, change(value)) for partition, value in found if value and change(value) is not None]
