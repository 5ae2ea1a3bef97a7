"""What tests of the producer of prepared batches share: a topic, a batch, what a consumer finds."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition

from twinlog.batches import NewRecord, OutgoingBatch, build_batch
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic, OffsetSpec
from twinlog.kafka.raw import (
    DataClientPool,
    list_offsets,
)
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, make_topics
from twinlog.testing.raw_copying import open_session


def a_batch(*values: bytes, key: bytes | None = b"k", timestamp_ms: int = 1_700_000_000_000) -> OutgoingBatch:
    return build_batch([NewRecord(key, value, timestamp_ms) for value in values])


async def create_topic(
    cluster: BlockingCluster,
    topic: str,
    configs: Mapping[str, str] | None = None,
    partition_count: int = 1,
    replication_factor: int = -1,
) -> None:
    async with open_cluster("B", cluster.client_properties()) as admin:
        kept = {"retention.ms": "-1", **(configs or {})}
        new = NewTopic(
            name=topic, partition_count=partition_count, replication_factor=replication_factor, configs=kept
        )
        await make_topics(admin, new)


@asynccontextmanager
async def open_target(cluster: BlockingCluster) -> AsyncIterator[DataClientPool]:
    async with open_session("B", cluster.client_properties()) as session:
        yield session


async def committed_values(cluster: BlockingCluster, partition: TopicPartition) -> list[bytes]:
    """What a read_committed consumer finds. A commit is acknowledged before its markers are written: they are
    awaited."""
    async with open_target(cluster) as session:

        async def stable_end() -> int:
            stable = (await list_offsets(session, OffsetSpec.LAST_STABLE, [partition]))[partition]
            latest = (await list_offsets(session, OffsetSpec.LATEST, [partition]))[partition]
            assert isinstance(stable, int)
            assert stable == latest
            return stable + 1

        end = await eventually(stable_end) - 1
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        there = AioTopicPartition(*_parts(partition))
        consumer.assign([there])
        values: list[bytes] = []
        async with asyncio.timeout(60):
            while await consumer.position(there) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()


def _parts(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition
