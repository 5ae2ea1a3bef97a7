"""A line of half a megabyte a second, with a backlog before it: everything arrives, and no partition is set
aside."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from twinlog.batches import CopyPolicy, NewRecord, build_batch
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.raw import DataClientPool, RawProducer
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics
from twinlog.testing.raw_copying import QUICK, open_fetcher, open_session
from twinlog.testing.slow_way import slow_session
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.producer_settings import producer_settings
from twinlog_source.task.source_reader import SourceReader
from twinlog_source.task.syncs import OffsetSyncs, paced_syncs
from twinlog_source.task.target_writer import PositionsTopic, TargetWriter
from twinlog_source.task.throttle import Throttle
from twinlog_source.task.transport import ExactlyOnce

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


async def fill(cluster: BlockingCluster, topic: str, batch_bytes: int, total_bytes: int) -> int:
    """Batches in each partition."""
    per_partition = total_bytes // batch_bytes // PARTITIONS
    async with (
        open_session("A", cluster.client_properties()) as session,
        RawProducer(session, QUICK) as producer,
    ):
        for _ in range(per_partition):
            for number in range(PARTITIONS):
                batch = build_batch([NewRecord(None, bytes(batch_bytes), SystemClock().now_ms())])
                producer.send(TopicPartition(topic, number), batch)
        await producer.flush()
    return per_partition


@pytest.mark.parametrize(
    ("slow_side", "batch_bytes", "total_bytes"),
    [("target", 100_000, 11_000_000), ("target", 1_000, 3_000_000), ("source", 100_000, 9_000_000)],
)
async def test_a_slow_way_makes_steady_progress(
    kafka_pair: KafkaPair, unique_topic: str, slow_side: str, batch_bytes: int, total_bytes: int
) -> None:
    remote, positions = f"A.{unique_topic}", f"{unique_topic}-positions"
    for cluster, topics in (
        (kafka_pair.a, {unique_topic: PARTITIONS}),
        (kafka_pair.b, {remote: PARTITIONS, positions: 1}),
    ):
        async with open_cluster("X", cluster.client_properties()) as admin:
            new = [
                NewTopic(name=t, partition_count=n, replication_factor=1, configs={})
                for t, n in topics.items()
            ]
            await make_topics(admin, *new)
    batches = await fill(kafka_pair.a, unique_topic, batch_bytes, total_bytes)
    partitions = [TopicPartition(unique_topic, number) for number in range(PARTITIONS)]
    copies = {
        each: PartitionCopy(partition=each, target_topic=remote, committed=0, random=lambda: 1.0)
        for each in partitions
    }
    nothing: Any = None

    async def take_over(_committed: Collection[TopicPartition]) -> None:
        return None

    async def ask_driver() -> None:
        return None

    async def read_positions() -> Mapping[TopicPartition, int]:
        return {}

    async with (
        way(kafka_pair.a, slow=slow_side == "source") as source,
        way(kafka_pair.b, slow=slow_side == "target") as target,
        open_fetcher(source) as fetcher,
        asyncio.TaskGroup() as group,
    ):
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
                topic=positions, partition_count=1, source_alias="A", connector_name="C"
            ),
            source_reader=source_reader,
            copies=copies,
            by_target={TopicPartition(remote, each.partition): copy for each, copy in copies.items()},
            take_over=take_over,
            open_transport=lambda: ExactlyOnce(target, (f"{remote}-0", f"{remote}-1"), settings),
            ask_driver=ask_driver,
            read_positions=read_positions,
            syncs=OffsetSyncs(
                topic="",
                session=nothing,
                settings=nothing,
                paced=paced_syncs(100, flush_seconds=60),
                clock=SystemClock(),
            ),
            clock=SystemClock(),
            random=lambda: 0.0,
        )
        stop = asyncio.Event()
        await target_writer.open()
        group.create_task(source_reader.run(stop), name="source_reader")
        group.create_task(target_writer.run(stop), name="target_writer")
        try:
            await eventually(lambda: all(copy.committed == batches for copy in copies.values()))
        finally:
            stop.set()
            source_reader.wake()
            source_reader.arrived.set()
        setbacks = [copy.counters.setbacks for copy in copies.values()]
    await target_writer.close()
    assert setbacks == [{}] * PARTITIONS
    assert target_writer.aborted_rounds == 0
