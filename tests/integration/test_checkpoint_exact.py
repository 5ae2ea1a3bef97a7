"""Exact translation on real logs: of a mirror that the real MM2 made, and of our own through crashes.

TWINLOG_EXACT_RECORDS says how many records the second test mirrors (default 12,000; the promise is made for
1,000,000).
"""

import asyncio
import os
import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1.types_pb2 import Flow as FlowMessage
from twinlog.api.common.v1.types_pb2 import TopicPartition as PartitionMessage
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.mm2 import MirrorMaker2, quick_mm2_properties
from twinlog.model import Flow, Record, TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.records import write_batches
from twinlog.testing.service_process import run_service
from twinlog.testing.twinlog_run import TwinlogRun

PARTITIONS = 2
OFFSETS = 1000
GOOD = (pb2.VERDICT_EXACT, pb2.VERDICT_UP_TO_DATE)


@dataclass(slots=True, kw_only=True)
class Writer:
    """Fills a topic with everything that makes offsets of two logs differ."""

    cluster: BlockingCluster
    topic: str
    rng: random.Random
    written: int = 0
    now_ms: int = field(default_factory=lambda: SystemClock().now_ms() - 60_000)
    """Not long ago: the broker's retention is a week."""

    async def write(self, count: int, *, batch_records: int = 40) -> None:
        """Plain batches, transactions and aborted ones, each with its markers; values tell records apart."""
        while count > 0:
            size = min(count, self.rng.randint(1, 10) * batch_records)
            count -= size
            batches = []
            for start in range(0, size, batch_records):
                names = range(self.written + start, self.written + min(size, start + batch_records))
                records = [
                    NewRecord(b"key %d" % (name % 50), b"%d" % name, self.now_ms + name // 9)
                    for name in names
                ]
                batches.append((self.rng.randrange(PARTITIONS), self.rng.choice(list(Codec)), records))
            kind = self.rng.random()
            transactional_id = self.topic if kind > 0.4 else None
            await write_batches(
                self.cluster, self.topic, batches, transactional_id=transactional_id, abort=kind > 0.85
            )
            self.written += size


async def visible(
    cluster: KafkaCluster, partition: TopicPartition, *, last_offsets: int | None = None
) -> list[Record]:
    """All committed records of a log, or those of its last offsets."""
    end = (await cluster.list_offsets(OffsetSpec.LAST_STABLE, [partition]))[partition]
    start = (await cluster.list_offsets(OffsetSpec.EARLIEST, [partition]))[partition]
    assert isinstance(end, int)
    assert isinstance(start, int)
    if last_offsets is not None:
        start = max(start, end - last_offsets)
    found: list[Record] = []
    async with cluster.reader() as reader:
        while start < end:
            fetched = await reader.fetch(partition, start, max_wait_seconds=1, max_bytes=4 << 20)
            found += fetched.records
            start = fetched.next_offset
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Both logs of one partition, read whole."""

    source: Sequence[Record]
    target: Sequence[Record]

    def check(self, offset: int, translated: int) -> None:
        """The first record at `translated` is the one that the group at `offset` reads next."""
        mine = self.source[bisect_left(self.source, offset, key=lambda record: record.offset) :]
        there = self.target[bisect_left(self.target, translated, key=lambda record: record.offset) :]
        if not mine:
            assert not there, f"{offset} -> {translated} reads {there[0].value!r} again"
            return
        assert there, f"{offset} -> {translated} skips {mine[0].value!r}"
        assert there[0].value == mine[0].value, f"{offset} -> {translated}"
        assert there[0].timestamp_ms == mine[0].timestamp_ms


async def truths(source: KafkaCluster, topic: str, target: KafkaCluster, remote: str) -> dict[int, Truth]:
    return {
        number: Truth(
            source=await visible(source, TopicPartition(topic, number)),
            target=await visible(target, TopicPartition(remote, number)),
        )
        for number in range(PARTITIONS)
    }


async def all_copied(source: KafkaCluster, topic: str, target: KafkaCluster, remote: str) -> bool:
    """Whether both sides end with the same record."""
    if remote not in await target.list_topics():
        return False
    for number in range(PARTITIONS):
        mine = await visible(source, TopicPartition(topic, number), last_offsets=5000)
        there = await visible(target, TopicPartition(remote, number), last_offsets=5000)
        if not there or there[-1].value != mine[-1].value:
            return False
    return True


async def translated(
    channel: grpc.aio.Channel, flow: Flow, topic: str, offsets: Sequence[tuple[int, int]]
) -> list[pb2.OffsetTranslation]:
    request = pb2.TranslateOffsetsRequest(
        flow=FlowMessage(source=flow.source, target=flow.target),
        queries=[
            pb2.OffsetQuery(partition=PartitionMessage(topic=topic, partition=number), offset=offset)
            for number, offset in offsets
        ],
    )
    stub = CheckpointServiceStub(channel)

    async def ready() -> bool:
        listed = await stub.ListGroups(pb2.ListGroupsRequest(), timeout=10)
        return request.flow in listed.ready_flows

    await eventually(ready, 60)
    return list((await stub.TranslateOffsets(request, timeout=120)).translations)


async def check_random_offsets(
    channel: grpc.aio.Channel, flow: Flow, topic: str, logs: dict[int, Truth], rng: random.Random
) -> dict[tuple[int, int], int]:
    offsets = [
        (number, rng.randrange(logs[number].source[-1].offset + 1))
        for number in (rng.randrange(PARTITIONS) for _ in range(OFFSETS))
    ]
    offsets += [(number, 0) for number in logs]
    answers = await translated(channel, flow, topic, offsets)
    wrong = [answer for answer in answers if answer.verdict not in GOOD]
    assert not wrong, wrong[:3]
    for (number, offset), answer in zip(offsets, answers, strict=True):
        logs[number].check(offset, answer.translated_offset)
    return {place: answer.translated_offset for place, answer in zip(offsets, answers, strict=True)}


@pytest.mark.java
async def test_a_mirror_that_mm2_made_is_translated_exactly(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    topic, flow = unique_name("exact-mm2"), Flow(unique_name("east"), unique_name("west"))
    clients = {
        flow.source: kafka_pair.a.client_properties(),
        flow.target: kafka_pair.b.client_properties(),
    }
    extra = {"topics": topic, f"{flow.source}.consumer.isolation.level": "read_committed"}
    text = quick_mm2_properties(clients, [flow], extra)
    mm2_file = tmp_path / "for-mm2.properties"
    mm2_file.write_text(text, encoding="latin-1")
    remote = f"{flow.source}.{topic}"
    rng = random.Random(17)
    writer = Writer(cluster=kafka_pair.a, topic=topic, rng=rng)
    async with (
        open_cluster("a", clients[flow.source]) as source,
        open_cluster("b", clients[flow.target]) as target,
    ):
        new = NewTopic(name=topic, partition_count=PARTITIONS, replication_factor=1)
        assert (await source.create_topics([new])) == {topic: None}
        await writer.write(4000)
        for lap in range(2):
            mm2 = MirrorMaker2(mm2_file, log_file=tmp_path / f"mm2-{lap}.log", quick_start=True)
            await asyncio.to_thread(mm2.start)
            try:
                await eventually(lambda: all_copied(source, topic, target, remote), 90)
                await writer.write(3000)
                await eventually(lambda: all_copied(source, topic, target, remote), 90)
            finally:
                await asyncio.to_thread(mm2.stop)
            await writer.write(1000)
        # What MM2 has not copied yet is no part of the copy: the truth ends where the target does.
        logs = await truths(source, topic, target, remote)
        logs = {number: _as_far_as_copied(truth) for number, truth in logs.items()}
        async with run_service("checkpoint", tmp_path / "service", text) as service:
            await check_random_offsets(service.channel, flow, topic, logs, rng)


def _as_far_as_copied(truth: Truth) -> Truth:
    last = truth.target[-1].value
    end = next(index for index, record in enumerate(truth.source) if record.value == last)
    return Truth(source=truth.source[: end + 1], target=truth.target)


@pytest.mark.parametrize("exactly_once", [True, False], ids=["eos", "at-least-once"])
async def test_our_own_mirror_is_translated_exactly_through_crashes(
    kafka_pair: KafkaPair, tmp_path: Path, exactly_once: bool
) -> None:
    total = int(os.environ.get("TWINLOG_EXACT_RECORDS", "12000"))
    topic, flow = unique_name("exact"), Flow(unique_name("east"), unique_name("west"))
    clients = {
        flow.source: kafka_pair.a.client_properties(),
        flow.target: kafka_pair.b.client_properties(),
    }
    extra = {
        "topics": topic,
        "twinlog.epoch.seconds": "5",
        f"{flow.target}.exactly.once.source.support": "enabled" if exactly_once else "disabled",
    }
    text = quick_mm2_properties(clients, [flow], extra)
    remote = f"{flow.source}.{topic}"
    rng = random.Random(23)
    writer = Writer(cluster=kafka_pair.a, topic=topic, rng=rng)
    async with (
        open_cluster("a", clients[flow.source]) as source,
        open_cluster("b", clients[flow.target]) as target,
    ):
        new = NewTopic(name=topic, partition_count=PARTITIONS, replication_factor=1)
        assert (await source.create_topics([new])) == {topic: None}
        directory = tmp_path / "run"
        directory.mkdir()
        async with TwinlogRun(text, directory) as run:
            for lap in range(4):
                await writer.write(total // 4, batch_records=max(40, total // 4000))
                if lap in (1, 2):
                    run.kill_service("source")
            await eventually(lambda: all_copied(source, topic, target, remote), 120)
            logs = await truths(source, topic, target, remote)
            async with grpc.aio.insecure_channel(run.endpoints["checkpoint"]) as channel:
                before = await check_random_offsets(channel, flow, topic, logs, rng)
            run.kill_service("checkpoint")
            async with grpc.aio.insecure_channel(run.endpoints["checkpoint"]) as channel:
                again = await _after_restart(channel, flow, topic, list(before))
            assert again == before


async def _after_restart(
    channel: grpc.aio.Channel, flow: Flow, topic: str, offsets: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    async def answer() -> list[pb2.OffsetTranslation] | None:
        try:
            return await translated(channel, flow, topic, offsets)
        except grpc.aio.AioRpcError:
            return None

    answers = await eventually(answer, 60)
    return {place: answer.translated_offset for place, answer in zip(offsets, answers, strict=True)}
