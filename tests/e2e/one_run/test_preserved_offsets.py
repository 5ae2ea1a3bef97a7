"""README: where it is possible, every record of a copy has the offset that it has on the source."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import grpc
from psutil import Process

from e2e.conftest import MirrorRig
from twinlog.api.source.v1.source_service_pb2 import ListPartitionsRequest
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.local.twinlog_run import SERVICES
from twinlog.model import Record, TopicPartition
from twinlog.testing.brokers import awkward_records, eventually, make_topics, unique_name, write_batches

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
    """A topic with everything that leaves holes, and its copy."""

    mirror: MirrorRig
    source: KafkaCluster
    target: KafkaCluster
    topic: str = field(default_factory=lambda: unique_name("e2e-preserved"))

    @property
    def remote(self) -> str:
        return self.mirror.remote(self.topic)

    async def write(self, *, rounds: int = 1) -> None:
        """Plain records, transactions, aborted ones, with every codec, into every partition."""
        now_ms = SystemClock().now_ms()
        for number in range(rounds):
            for partition in range(PARTITIONS):
                codec = CODECS[(number + partition) % len(CODECS)]
                records = awkward_records(now_ms)
                few = [NewRecord(b"k%d" % i, b"%d" % number, now_ms + i) for i in range(3)]
                await write_batches(self.mirror.pair.a, self.topic, [(partition, codec, records)])
                await write_batches(
                    self.mirror.pair.a, self.topic, [(partition, codec, few)], transactional_id=self.topic
                )
                await write_batches(
                    self.mirror.pair.a,
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

    async def statuses(self) -> list[tuple[str, str, int]]:
        async with grpc.aio.insecure_channel(self.mirror.run.endpoints["source"]) as channel:
            answer = await SourceServiceStub(channel).ListPartitions(ListPartitionsRequest(), timeout=30)
        return [
            (each.offsets, each.offsets_reason, each.offsets_since)
            for each in answer.partitions
            if each.source.topic == self.topic
        ]


async def test_every_record_has_its_sources_offset_through_restarts_and_kills(mirror: MirrorRig) -> None:
    run = mirror.run
    async with mirror.source() as source, mirror.target() as target:
        mirrored = Mirrored(mirror=mirror, source=source, target=target)
        assert await run.stop() == 0
        configs = {"retention.ms": "-1"}
        new = NewTopic(name=mirrored.topic, partition_count=PARTITIONS, replication_factor=1, configs=configs)
        await make_topics(source, new)
        await mirrored.write()
        # The log of one partition does not start at 0 any more.
        trimmed = TopicPartition(mirrored.topic, 1)
        assert await source.delete_records({trimmed: 20}) == {trimmed: None}
        await run.start()
        await eventually(mirrored.same_offsets)
        start = await target.list_offsets(OffsetSpec.EARLIEST, [TopicPartition(mirrored.remote, 1)])
        assert list(start.values()) == [20], "what was filled before it is deleted"
        whole = ("preserved", "", 0)
        assert await mirrored.statuses() == [whole, ("preserved", "", 20), whole]
        others = {name: run.service(name).pid for name in SERVICES if name != "source"}
        for end in (Process.kill, Process.terminate):
            before = run.service("source")
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(mirrored.write(rounds=2), name="write while the copier ends")
                end(before)

                def back_again(before: Process = before) -> bool:
                    return run.service("source").pid != before.pid

                await eventually(back_again)
                await writing
            await eventually(mirrored.same_offsets)
        assert {name: run.service(name).pid for name in others} == others
