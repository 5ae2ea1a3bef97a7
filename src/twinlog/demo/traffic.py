"""The shop: writes orders to cluster A in batches, each partition with another codec."""

import asyncio
from dataclasses import dataclass, field

from twinlog.batches import Codec, NewRecord, build_batch
from twinlog.clock import Clock
from twinlog.demo.orders import make_order
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer
from twinlog.model import TopicPartition
from twinlog.service.runtime import wait_or_stop

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
BATCH_INTERVAL_SECONDS = 0.1


@dataclass(slots=True, kw_only=True)
class OrderStream:
    """`run` writes `records_per_second` orders to the partitions in turn until `stop`."""

    session: DataClientPool
    topic: str
    partition_count: int
    records_per_second: int
    clock: Clock
    written: int = 0
    _next_partition: int = 0
    _settings: ProducerSettings = field(default_factory=lambda: ProducerSettings(delivery_timeout_seconds=30))

    async def run(self, stop: asyncio.Event) -> None:
        async with RawProducer(self.session, self._settings) as producer:
            started, before = self.clock.monotonic(), self.written
            while not await wait_or_stop(stop, BATCH_INTERVAL_SECONDS):
                wanted = before + int((self.clock.monotonic() - started) * self.records_per_second)
                due = wanted - self.written
                if due > 0:
                    await self._write(producer, due)

    async def write(self, count: int) -> None:
        """Write `count` orders at once, and return when the cluster has acknowledged them."""
        async with RawProducer(self.session, self._settings) as producer:
            await self._write(producer, count)

    async def _write(self, producer: RawProducer, count: int) -> None:
        while count > 0:
            size = min(count, 500)
            partition = self._next_partition
            self._next_partition = (partition + 1) % self.partition_count
            now_ms = self.clock.now_ms()
            orders = [make_order(number) for number in range(self.written, self.written + size)]
            records = [NewRecord(o.key, o.value, now_ms + i, o.headers) for i, o in enumerate(orders)]
            batch = build_batch(records, codec=CODECS[partition % len(CODECS)])
            producer.send(TopicPartition(self.topic, partition), batch)
            self.written += size
            count -= size
        await producer.flush()
