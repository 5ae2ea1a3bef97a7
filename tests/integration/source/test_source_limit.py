"""A limit on real brokers: what it takes account of is what is copied, to the byte."""

import asyncio
from dataclasses import dataclass
from typing import Any

from twinlog.batches import CopyPolicy, NewRecord, build_batch
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.raw import RawProducer
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics
from twinlog.testing.raw_copying import QUICK, open_fetcher, open_session
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.source_reader import SourceReader
from twinlog_source.task.reading.throttle import Throttle

LIMIT = 1_000_000
BATCHES = 12
PARTITIONS = 2


@dataclass(kw_only=True)
class Account(Throttle):
    """A limit that tells what it was charged."""

    charged_bytes: int = 0

    def spend(self, topic: str, size_bytes: int, now: float) -> None:
        self.charged_bytes += size_bytes
        super().spend(topic, size_bytes, now)


async def test_a_limit_charges_large_batches_once_however_fetches_cut_them(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    """A fetch brings a quarter of a second's worth: of batches of 128 KB one, and nearly all of the next."""
    partitions = [TopicPartition(unique_topic, number) for number in range(PARTITIONS)]
    properties = kafka_pair.a.client_properties()
    async with open_cluster("A", properties) as admin:
        await make_topics(
            admin, NewTopic(name=unique_topic, partition_count=PARTITIONS, replication_factor=1, configs={})
        )
    throttle, copied_bytes = Account(), 0
    throttle.set_limits(LIMIT, {}, SystemClock().monotonic())
    copies = {
        partition: PartitionCopy(partition=partition, target_topic="t", committed=0, random=lambda: 1.0)
        for partition in partitions
    }
    nothing: Any = None
    async with (
        open_session("A", properties) as session,
        RawProducer(session, QUICK) as producer,
        open_fetcher(session) as fetcher,
        asyncio.TaskGroup() as group,
    ):
        for number in range(BATCHES):
            large = build_batch([NewRecord(None, bytes(128 << 10), SystemClock().now_ms())])
            await producer.send(partitions[number % PARTITIONS], large)
        source_reader = SourceReader(
            fetcher=fetcher,
            copies=copies,
            policies=dict.fromkeys(partitions, CopyPolicy()),
            throttle=throttle,
            read_committed=True,
            clock=SystemClock(),
            on_out_of_range=nothing,
            on_other_leaders=nothing,
            max_buffered_bytes=8 << 20,
        )
        stop = asyncio.Event()
        group.create_task(source_reader.run(stop), name="source_reader")

        async def all_copied() -> bool:
            nonlocal copied_bytes
            while (chunk := source_reader.pop()) is not None:
                copied_bytes += sum(batch.size_bytes for batch in chunk.prepared.batches)
            source_reader.release()
            return sum(copy.fetched for copy in copies.values()) == BATCHES and not source_reader.chunks

        try:
            await eventually(all_copied)
        finally:
            stop.set()
            source_reader.wake()
    assert copied_bytes > BATCHES * (128 << 10)
    assert throttle.charged_bytes == copied_bytes
