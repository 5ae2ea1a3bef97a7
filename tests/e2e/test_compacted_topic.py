"""README: compacted topics, whose batches have holes, arrive as they are."""

from pathlib import Path

from e2e.conftest import FAST_AND_SMALL
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import compare
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.records import write_batches
from twinlog.testing.twinlog_run import TwinlogRun

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


async def test_a_compacted_topic_with_holes_arrives_as_it_is(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    topic, source_alias, target_alias = unique_name("e2e-holes"), unique_name("east"), unique_name("west")
    a = open_cluster(source_alias, kafka_pair.a.client_properties())
    b = open_cluster(target_alias, kafka_pair.b.client_properties())
    async with a as source, b as target:
        new = NewTopic(name=topic, partition_count=1, replication_factor=1, configs=COMPACT_AT_ONCE)
        assert (await source.create_topics([new])) == {topic: None}
        now_ms = SystemClock().now_ms() - 60_000
        for lap, step in enumerate((1, 2, 3)):
            # A segment rolls by the records' own times, and only closed ones are compacted.
            at_ms = now_ms + lap * 1_000
            records = [NewRecord(b"k%d" % i, b"lap %d" % lap, at_ms) for i in range(0, KEYS, step)]
            await write_batches(kafka_pair.a, topic, [(0, Codec.LZ4, records)])
        await write_batches(
            kafka_pair.a, topic, [(0, Codec.NONE, [NewRecord(b"last", b"one", now_ms + 9_000)])]
        )

        async def only_the_newest_are_left() -> list[int] | None:
            offsets = await _offsets(source, topic)
            return offsets if len(offsets) == KEYS + 1 else None

        offsets = await eventually(only_the_newest_are_left, 60)
        assert offsets != list(range(offsets[0], offsets[0] + len(offsets))), "compaction left no hole"
        properties = f"""
clusters = {source_alias}, {target_alias}
{source_alias}.bootstrap.servers = {kafka_pair.a.bootstrap_servers}
{target_alias}.bootstrap.servers = {kafka_pair.b.bootstrap_servers}
{source_alias}->{target_alias}.enabled = true
{target_alias}->{source_alias}.emit.heartbeats.enabled = false
topics = {topic}
{FAST_AND_SMALL}"""
        remote = f"{source_alias}.{topic}"

        async def all_there() -> bool:
            return remote in await target.list_topics() and len(await _offsets(target, remote)) == KEYS + 1

        async with TwinlogRun(properties, tmp_path):
            await eventually(all_there, 60)
            result = await compare(source, topic, target, remote, partition_count=1)
        assert result.identical, result
