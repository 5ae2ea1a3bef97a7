"""README: compacted topics, whose batches have holes, arrive as they are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from e2e.conftest import MirrorRig
from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as source_pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import compare
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, retry_admin, unique_name, write_batches

KEYS = 200
COMPACT_AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}


async def _offsets(cluster: KafkaCluster, topic: str) -> list[int]:
    partition, offsets, offset = TopicPartition(topic, 0), list[int](), 0
    end = (await cluster.list_offsets(OffsetSpec.LAST_STABLE, [partition]))[partition]
    assert isinstance(end, int)
    async with cluster.reader() as reader:
        while offset < end:
            fetched = await reader.fetch(partition, offset, max_wait_seconds=0.5, max_bytes=4 << 20)
            offsets += [record.offset for record in fetched.records]
            offset = fetched.next_offset
    return offsets


@asynccontextmanager
async def _paused(mirror: MirrorRig) -> AsyncIterator[None]:
    """Nothing is copied meanwhile."""
    scope = source_pb2.Scope(flow=types_pb2.Flow(source=mirror.source_alias, target=mirror.target_alias))
    pause = source_pb2.PauseReplicationRequest(scope=scope, by="test")
    resume = source_pb2.ResumeReplicationRequest(scope=scope, by="test")
    async with grpc.aio.insecure_channel(mirror.run.endpoints["source"]) as channel:
        source = SourceServiceStub(channel)

        async def is_paused() -> bool:
            try:
                await source.PauseReplication(pause, timeout=30)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    return False  # the run has just begun, and is taking the flow over
                raise
            return True

        await eventually(is_paused)
        try:
            yield
        finally:
            await source.ResumeReplication(resume, timeout=30)


async def test_a_compacted_topic_with_holes_arrives_as_it_is(mirror: MirrorRig) -> None:
    topic = unique_name("e2e-holes")
    async with mirror.source() as source, mirror.target() as target:
        async with _paused(mirror):
            new = NewTopic(name=topic, partition_count=1, replication_factor=1, configs=COMPACT_AT_ONCE)
            await retry_admin(lambda: source.create_topics([new]))
            await _write_laps(mirror.pair.a, topic)

            async def only_the_newest_are_left() -> list[int] | None:
                offsets = await _offsets(source, topic)
                return offsets if len(offsets) == KEYS + 1 else None

            offsets = await eventually(only_the_newest_are_left)
            assert offsets != list(range(offsets[0], offsets[0] + len(offsets))), "compaction left no hole"

        remote = mirror.remote(topic)

        async def all_there() -> bool:
            return remote in await target.list_topics() and len(await _offsets(target, remote)) == KEYS + 1

        await eventually(all_there)
        result = await compare(source, topic, target, remote, partition_count=1)
        assert result.identical, result


async def _write_laps(cluster: BlockingCluster, topic: str) -> None:
    """The same keys again and again, and a last record that opens a new segment."""
    now_ms = SystemClock().now_ms() - 60_000
    for lap, step in enumerate((1, 2, 3)):
        # A segment rolls by the records' own times, and only closed ones are compacted.
        at_ms = now_ms + lap * 1_000
        records = [NewRecord(b"k%d" % i, b"lap %d" % lap, at_ms) for i in range(0, KEYS, step)]
        await write_batches(cluster, topic, [(0, Codec.LZ4, records)])
    await write_batches(cluster, topic, [(0, Codec.NONE, [NewRecord(b"last", b"one", now_ms + 9_000)])])
