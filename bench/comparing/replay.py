"""Batches from memory into a topic as fast as the brokers take them: fills the source, and is the ceiling."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

from bench.comparing.loads import BatchPool
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer
from twinlog.model import TopicPartition

_MOST_UNDER_WAY_BYTES = 32 << 20
_REPORT_EVERY_BATCHES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    records: tuple[int, ...]
    """By partition."""
    seconds: float
    cpu_seconds: float
    """CPU time of this process."""

    @property
    def record_count(self) -> int:
        return sum(self.records)


async def replay(
    session: DataClientPool,
    topic: str,
    pool: BatchPool,
    *,
    partition_count: int,
    record_count: int,
    progress: Callable[[float], None],
    most_seconds: float = math.inf,
) -> Replayed:
    """Send at least `record_count` records, or for `most_seconds`, each batch to the next partition in turn,
    and wait for all acknowledgements. Raises KafkaError.
    """
    records = [0] * partition_count
    partitions = cycle([TopicPartition(topic, number) for number in range(partition_count)])
    under_way: deque[tuple[asyncio.Future[int], int]] = deque()
    under_way_bytes = sent = 0
    began, cpu_began = time.perf_counter(), time.process_time()
    async with RawProducer(session, ProducerSettings()) as producer:
        for number, (batch, partition) in enumerate(zip(cycle(pool.batches), partitions, strict=False)):
            if sent >= record_count or time.perf_counter() - began > most_seconds:
                break
            # Times go on: the same records again and again would look like records that go round.
            times = (batch.base_timestamp_ms + number, batch.max_timestamp_ms + number)
            sent_now = batch._replace(base_timestamp_ms=times[0], max_timestamp_ms=times[1])
            under_way.append((producer.send(partition, sent_now), batch.size_bytes))
            under_way_bytes += batch.size_bytes
            records[partition.partition] += batch.record_count
            sent += batch.record_count
            while under_way_bytes > _MOST_UNDER_WAY_BYTES:
                oldest, size_bytes = under_way.popleft()
                await oldest
                under_way_bytes -= size_bytes
            if number % _REPORT_EVERY_BATCHES == 0:
                progress(sent)
        await producer.flush()
    progress(sent)
    return Replayed(
        records=tuple(records),
        seconds=time.perf_counter() - began,
        cpu_seconds=time.process_time() - cpu_began,
    )
