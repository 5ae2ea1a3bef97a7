"""A line of half a megabyte a second, or a quota, with a backlog before it: everything arrives, no partition
is set aside, and quiet partitions do not wait for the backlogs of others."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from twinlog.batches import CopyPolicy, NewRecord, build_batch
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic, QuotaEntity
from twinlog.kafka.raw import DataClientPool, RawProducer
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, retry_admin
from twinlog.testing.raw_copying import QUICK, open_fetcher, open_session
from twinlog.testing.slow_way import slow_session
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.source_reader import SourceReader
from twinlog_source.task.reading.throttle import Throttle
from twinlog_source.task.writing.positions_topic import PositionsTopic
from twinlog_source.task.writing.producer_settings import producer_settings
from twinlog_source.task.writing.syncs import OffsetSyncs, paced_syncs
from twinlog_source.task.writing.target_writer import TargetWriter
from twinlog_source.task.writing.transport import ExactlyOnce

BYTES_PER_SECOND = 500_000
PARTITIONS = 5


@asynccontextmanager
async def way(cluster: BlockingCluster, *, slow: bool) -> AsyncIterator[DataClientPool]:
    properties = cluster.client_properties()
    if slow:
        async with slow_session("X", properties, bytes_per_second=BYTES_PER_SECOND) as session:
            yield session
    else:
        async with open_session("X", properties, timeout_seconds=30) as session:
            yield session


async def fill(
    cluster: BlockingCluster, topic: str, batch_bytes: int, total_bytes: int, partitions: int = PARTITIONS
) -> int:
    """Batches in each partition."""
    per_partition = total_bytes // batch_bytes // partitions
    async with (
        open_session("A", cluster.client_properties()) as session,
        RawProducer(session, QUICK) as producer,
    ):
        for _ in range(per_partition):
            for number in range(partitions):
                batch = build_batch([NewRecord(None, bytes(batch_bytes), SystemClock().now_ms())])
                producer.send(TopicPartition(topic, number), batch)
        await producer.flush()
    return per_partition


async def make_copied_topics(pair: KafkaPair, topic: str) -> None:
    """The topic on A, its copy and the positions on B."""
    for cluster, topics in (
        (pair.a, {topic: PARTITIONS}),
        (pair.b, {f"A.{topic}": PARTITIONS, f"{topic}-positions": 1}),
    ):
        async with open_cluster("X", cluster.client_properties()) as admin:
            new = [
                NewTopic(name=t, partition_count=n, replication_factor=1, configs={})
                for t, n in topics.items()
            ]
            await make_topics(admin, *new)


@asynccontextmanager
async def copying(source: DataClientPool, target: DataClientPool, topic: str) -> AsyncIterator[TargetWriter]:
    """Both halves of a task, at work on all partitions of the topic."""
    remote = f"A.{topic}"
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    copies = {
        each: PartitionCopy(partition=each, target_topic=remote, committed=0, random=lambda: 1.0)
        for each in partitions
    }
    nothing: Any = None

    async def take_over(_committed: Collection[TopicPartition]) -> None:
        return None

    async def ask_driver() -> Mapping[TopicPartition, int]:
        return {}

    async with open_fetcher(source) as fetcher, asyncio.TaskGroup() as group:
        source_reader = SourceReader(
            fetcher=fetcher,
            copies=copies,
            policies=dict.fromkeys(partitions, CopyPolicy()),
            throttle=Throttle(),
            read_committed=True,
            clock=SystemClock(),
            on_out_of_range=nothing,
            on_other_leaders=nothing,
            max_buffered_bytes=8 << 20,
        )
        settings = producer_settings({}, alias="B")
        target_writer = TargetWriter(
            positions_topic=PositionsTopic(
                topic=f"{topic}-positions", partition_count=1, source_alias="A", connector_name="C"
            ),
            source_reader=source_reader,
            copies=copies,
            by_target={TopicPartition(remote, each.partition): copy for each, copy in copies.items()},
            take_over=take_over,
            open_transport=lambda: ExactlyOnce(target, (f"{remote}-0", f"{remote}-1"), settings),
            ask_driver=ask_driver,
            syncs=OffsetSyncs(
                topic="",
                session=nothing,
                settings=nothing,
                paced=paced_syncs(100, flush_seconds=60),
                clock=SystemClock(),
            ),
            clock=SystemClock(),
            random=lambda: 0.0,
            target_throttled=lambda: target.is_throttled,
        )
        stop = asyncio.Event()
        await target_writer.open()
        group.create_task(source_reader.run(stop), name="source_reader")
        group.create_task(target_writer.run(stop), name="target_writer")
        try:
            yield target_writer
        finally:
            stop.set()
            source_reader.wake()
            source_reader.arrived.set()
    await target_writer.close()


@pytest.mark.parametrize(
    ("slow_side", "batch_bytes", "total_bytes"),
    [("target", 100_000, 11_000_000), ("target", 1_000, 3_000_000), ("source", 100_000, 9_000_000)],
)
async def test_a_slow_way_makes_steady_progress(
    kafka_pair: KafkaPair, unique_topic: str, slow_side: str, batch_bytes: int, total_bytes: int
) -> None:
    await make_copied_topics(kafka_pair, unique_topic)
    batches = await fill(kafka_pair.a, unique_topic, batch_bytes, total_bytes)
    async with (
        way(kafka_pair.a, slow=slow_side == "source") as source,
        way(kafka_pair.b, slow=slow_side == "target") as target,
        copying(source, target, unique_topic) as writer,
    ):
        copies = writer.copies.values()
        await eventually(lambda: all(copy.committed == batches for copy in copies))
        failures_by_reason = [copy.counters.failures_by_reason for copy in copies]
    assert failures_by_reason == [{}] * PARTITIONS
    assert writer.aborted_rounds == 0


async def test_a_quiet_partition_overtakes_the_backlogs_of_others_under_a_producer_quota(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    """The backlogs take more than a minute."""
    await make_copied_topics(kafka_pair, unique_topic)
    quiet = TopicPartition(unique_topic, PARTITIONS - 1)
    batches = await fill(kafka_pair.a, unique_topic, 50_000, 15_000_000, partitions=PARTITIONS - 1)
    client_id = f"client-{unique_topic}"
    entity = QuotaEntity((("client-id", client_id),))
    async with open_cluster("B", kafka_pair.b.client_properties()) as admin:
        await retry_admin(lambda: admin.alter_client_quotas({entity: {"producer_byte_rate": 200_000.0}}))

        async def is_in_force() -> bool:
            return entity in await admin.describe_client_quotas()

        await eventually(is_in_force)
    limited = {**kafka_pair.b.client_properties(), "client.id": client_id}
    async with (
        way(kafka_pair.a, slow=False) as source,
        open_session("B", limited, timeout_seconds=30) as target,
        copying(source, target, unique_topic) as writer,
        RawProducer(source, QUICK) as producer,
    ):
        await eventually(lambda: target.is_throttled)
        producer.send(quiet, build_batch([NewRecord(None, b"", SystemClock().now_ms())]))
        await eventually(lambda: writer.copies[quiet].committed == 1)
        copied = sum(copy.committed for copy in writer.copies.values()) - 1
    assert copied < batches * (PARTITIONS - 1) / 2, "it waited for the backlogs"
    assert writer.aborted_rounds == 0
