"""A copy of one partition by batches, with topics, writers and readers of another library around it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition

from twinlog.batches import (
    CopyPolicy,
)
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.kafka.raw import (
    RawProducer,
    TransactionRotation,
    list_offsets,
)
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import (
    PATIENCE_SECONDS,
    KafkaPair,
    eventually,
    make_topics,
)
from twinlog.testing.raw_copying import QUICK, RawPartitionCopy, open_fetcher, open_session

_NOON_MS = 1_700_000_000_000


@asynccontextmanager
async def admin_of(cluster: BlockingCluster) -> AsyncIterator[KafkaCluster]:
    async with open_cluster("X", cluster.client_properties()) as admin:
        yield admin


async def create(cluster: BlockingCluster, topic: str, configs: Mapping[str, str] | None = None) -> None:
    async with admin_of(cluster) as admin:
        kept = {"retention.ms": "-1", **(configs or {})}
        new = NewTopic(name=topic, partition_count=1, replication_factor=1, configs=kept)
        await make_topics(admin, new)


@asynccontextmanager
async def producer_of(cluster: BlockingCluster, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def read_back(
    cluster: BlockingCluster, topic: str, stop_offset: int, isolation_level: str = "read_committed"
) -> list[tuple[Any, ...]]:
    """Every record below `stop_offset`, as aiokafka's consumer sees it."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        partition = AioTopicPartition(topic, 0)
        consumer.assign([partition])
        records: list[tuple[Any, ...]] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await consumer.position(partition) < stop_offset:
                for got in (await consumer.getmany(timeout_ms=200)).values():
                    records += [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in got]
        return records
    finally:
        await consumer.stop()


async def end_of(cluster: BlockingCluster, topic: str, spec: OffsetSpec = OffsetSpec.LATEST) -> int:
    async with open_session("X", cluster.client_properties()) as session:
        offsets = await list_offsets(session, spec, [TopicPartition(topic, 0)])
        end = offsets[TopicPartition(topic, 0)]
        assert isinstance(end, int)
        return end


async def settled(cluster: BlockingCluster, topic: str) -> None:
    """A transaction's end is acknowledged before its markers are written: wait for them."""

    async def stable() -> bool:
        return await end_of(cluster, topic, OffsetSpec.LAST_STABLE) == await end_of(cluster, topic)

    await eventually(stable)


async def copied(
    pair: KafkaPair,
    topic: str,
    *,
    policy: CopyPolicy | None = None,
    transactional: bool = True,
    from_offset: int = 0,
    fetch: Mapping[str, str] | None = None,
) -> RawPartitionCopy:
    """Copy `topic` of A to the topic of the same name on B, up to its stable end."""
    stop_offset = await end_of(pair.a, topic, OffsetSpec.LAST_STABLE)
    copy = RawPartitionCopy(TopicPartition(topic, 0), TopicPartition(topic, 0), policy or CopyPolicy())
    copy.position = from_offset
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_session("A", pair.a.client_properties()))
        target = await stack.enter_async_context(open_session("B", pair.b.client_properties()))
        fetcher = await stack.enter_async_context(open_fetcher(source, fetch))
        ids = (f"{topic}-0", f"{topic}-1")
        sink: RawProducer | TransactionRotation
        if transactional:
            sink = await stack.enter_async_context(TransactionRotation(target, ids, QUICK))
        else:
            sink = await stack.enter_async_context(RawProducer(target, QUICK))
        await copy.copy(fetcher, sink, stop_offset)
    return copy


async def assert_same(pair: KafkaPair, topic: str, copy: RawPartitionCopy) -> None:
    """The target holds the source's visible records, at the offsets the map says."""
    source = await read_back(pair.a, topic, await end_of(pair.a, topic, OffsetSpec.LAST_STABLE))
    target = await read_back(pair.b, topic, await end_of(pair.b, topic))
    assert [record[1:] for record in target] == [record[1:] for record in source]
    assert copy.target_offsets == {s[0]: t[0] for s, t in zip(source, target, strict=True)}


async def write_mixed(producer: AIOKafkaProducer, topic: str, count: int) -> None:
    headers = [("trace", b"\x00\xff"), ("empty", b""), ("null", None)]
    acks = []
    for number in range(count):
        key, value = [(b"k", b"v" * number), (None, b""), (b"", None), (b"only key", None)][number % 4]
        acks.append(
            await producer.send(
                topic,
                key=key,
                value=value,
                partition=0,
                timestamp_ms=_NOON_MS + (number * 7919) % 1000,
                headers=headers if number % 3 == 0 else None,
            )
        )
    await asyncio.wait(acks)
