"""README: where it is possible, every record of a copy has the offset that it has on the source."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from e2e.conftest import FAST_AND_SMALL
from twinlog.api.checkpoint.v1.checkpoint_service_pb2 import VERDICT_PRESERVED, ListGroupsRequest
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.source.v1.source_service_pb2 import ListPartitionsRequest
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import read_some
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Record, TopicPartition
from twinlog.testing.brokers import (
    KafkaPair,
    awkward_records,
    eventually,
    make_topics,
    unique_name,
    write_batches,
)

PARTITIONS = 3
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)

Log = dict[int, Record]
"""What a read_committed reader sees, by offset."""


async def read_log(cluster: KafkaCluster, partition: TopicPartition) -> tuple[int, int, Log]:
    """Start, end and records of a partition."""
    start = (await cluster.list_offsets(OffsetSpec.EARLIEST, [partition]))[partition]
    end = (await cluster.list_offsets(OffsetSpec.LAST_STABLE, [partition]))[partition]
    assert isinstance(start, int), start
    assert isinstance(end, int), end
    found: Log = {}
    async with cluster.reader() as reader:
        at = start
        while at < end:
            fetched = await reader.fetch(partition, at, max_wait_seconds=0.2, max_bytes=4 << 20)
            found.update((record.offset, record) for record in fetched.records)
            at = max(fetched.next_offset, at)
    return start, end, found


def content(log: Log) -> dict[int, Any]:
    return {
        offset: (record.timestamp_ms, record.key, record.value, tuple(record.headers))
        for offset, record in log.items()
    }


@dataclass(slots=True, kw_only=True)
class Mirrored:
    """Two clusters, a topic with everything that leaves holes, and runs of one file."""

    pair: KafkaPair
    directory: Path
    source: KafkaCluster
    target: KafkaCluster
    east: str = field(default_factory=lambda: unique_name("east"))
    west: str = field(default_factory=lambda: unique_name("west"))
    topic: str = field(default_factory=lambda: unique_name("e2e-preserved"))

    @property
    def remote(self) -> str:
        return f"{self.east}.{self.topic}"

    def run(self) -> TwinlogRun:
        return TwinlogRun(
            f"""
clusters = {self.east}, {self.west}
{self.east}.bootstrap.servers = {self.pair.a.bootstrap_servers}
{self.west}.bootstrap.servers = {self.pair.b.bootstrap_servers}
{self.east}->{self.west}.enabled = true
{self.west}->{self.east}.emit.heartbeats.enabled = false
topics = {self.topic}
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
twinlog.offsets = auto
{FAST_AND_SMALL}""",
            self.directory,
        )

    async def write(self, *, rounds: int = 1, awkward: bool = True) -> None:
        """Plain records, transactions, aborted ones, with every codec, into every partition."""
        now_ms = SystemClock().now_ms()
        for number in range(rounds):
            for partition in range(PARTITIONS):
                codec = CODECS[(number + partition) % len(CODECS)]
                many = [NewRecord(b"key", b"%d" % i, now_ms + i) for i in range(60)]
                records = awkward_records(now_ms) if awkward else many
                few = [NewRecord(b"k%d" % i, b"%d" % number, now_ms + i) for i in range(3)]
                await write_batches(self.pair.a, self.topic, [(partition, codec, records)])
                await write_batches(
                    self.pair.a, self.topic, [(partition, codec, few)], transactional_id=self.topic
                )
                await write_batches(
                    self.pair.a,
                    self.topic,
                    [(partition, codec, few)],
                    transactional_id=self.topic,
                    abort=True,
                )

    async def same_offsets(self) -> bool:
        """Whether each partition has the same records at the same offsets; fails where one differs."""
        for number in range(PARTITIONS):
            _, end, here = await read_log(self.source, TopicPartition(self.topic, number))
            try:
                start, copied, there = await read_log(self.target, TopicPartition(self.remote, number))
            except (AssertionError, KafkaError):
                return False  # not created yet
            mine, theirs = content(here), content(there)
            assert theirs.items() <= mine.items(), f"partition {number}: a record is not where it was"
            if copied < end or set(theirs) != {offset for offset in mine if offset >= start}:
                return False
            assert copied == end
        return True

    async def statuses(self, run: TwinlogRun) -> list[tuple[str, str, int]]:
        async with grpc.aio.insecure_channel(run.endpoints["source"]) as channel:
            answer = await SourceServiceStub(channel).ListPartitions(ListPartitionsRequest(), timeout=30)
        return [
            (each.offsets, each.offsets_reason, each.offsets_since)
            for each in answer.partitions
            if each.source.topic == self.topic
        ]


@pytest.fixture
async def mirrored(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Mirrored]:
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_cluster("A", kafka_pair.a.client_properties()))
        target = await stack.enter_async_context(open_cluster("B", kafka_pair.b.client_properties()))
        found = Mirrored(pair=kafka_pair, directory=tmp_path, source=source, target=target)
        new = NewTopic(
            name=found.topic,
            partition_count=PARTITIONS,
            replication_factor=1,
            configs={"retention.ms": "-1"},
        )
        await make_topics(source, new)
        yield found


async def test_every_record_has_its_sources_offset_through_restarts_and_kills(mirrored: Mirrored) -> None:
    await mirrored.write()
    # The log of one partition does not start at 0 any more.
    trimmed = TopicPartition(mirrored.topic, 1)
    assert await mirrored.source.delete_records({trimmed: 20}) == {trimmed: None}
    async with mirrored.run() as run:
        await eventually(mirrored.same_offsets)
        start = await mirrored.target.list_offsets(OffsetSpec.EARLIEST, [TopicPartition(mirrored.remote, 1)])
        assert list(start.values()) == [20], "what was filled before it is deleted"
        assert await mirrored.statuses(run) == [
            ("preserved", "", 0),
            ("preserved", "", 20),
            ("preserved", "", 0),
        ]
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(mirrored.write(rounds=4), name="write while the copier dies")
            killed = run.kill_service("source")

            def back_again() -> bool:
                return run.service("source").pid != killed

            await eventually(back_again)
            await writing
        await eventually(mirrored.same_offsets)
    await mirrored.write()
    async with mirrored.run():
        await mirrored.write()
        await eventually(mirrored.same_offsets)


async def test_a_group_continues_at_the_same_offset(mirrored: Mirrored) -> None:
    group, plain = unique_name("app"), mirrored.pair.a.client_properties()
    await mirrored.write(awkward=False)
    read = await read_some("A", plain, group=group, topic=mirrored.topic, at_least=60, max_idle_polls=60)
    async with mirrored.run() as run:
        await eventually(mirrored.same_offsets)

        async def settled() -> bool:
            async with grpc.aio.insecure_channel(run.endpoints["checkpoint"]) as channel:
                answer = await CheckpointServiceStub(channel).ListGroups(
                    ListGroupsRequest(group=group), timeout=30
                )
            return len(answer.groups) == len(read.next_offsets) and all(
                row.verdict == VERDICT_PRESERVED
                and row.downstream_offset == row.upstream_offset
                and row.committed_on_target
                for row in answer.groups
            )

        await eventually(settled)
        committed = (await mirrored.target.group_offsets([group]))[group]
        assert not isinstance(committed, KafkaError)
        before = (await mirrored.source.group_offsets([group]))[group]
        assert not isinstance(before, KafkaError)
        assert {tp.partition: each.next_offset for tp, each in committed.items()} == {
            tp.partition: each.next_offset for tp, each in before.items()
        }
