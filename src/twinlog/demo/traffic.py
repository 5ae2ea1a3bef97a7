"""The shop: writes orders to cluster A in batches, each partition with another codec."""

import asyncio
import json
import random
from dataclasses import dataclass, field

from twinlog.batches import Codec, NewRecord, build_batch
from twinlog.clock import Clock
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop

# The demo's records: orders of an online shop, each derived from its number. Pure.

CITIES = ("Lisbon", "Aarhus", "Kraków", "Tromsø", "Valletta", "Ghent", "Łódź", "Málaga")
ITEMS = ("espresso beans", "teapot", "notebook", "raincoat", "bicycle bell", "desk lamp", "walnut cake")
STATUSES = ("placed", "paid", "packed", "shipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOrder:
    number: int
    key: bytes
    value: bytes | None
    """None: the customer asked to be forgotten (a tombstone)."""
    headers: tuple[tuple[bytes, bytes | None], ...]


def make_order(number: int) -> DemoOrder:
    """The order with this number: always the same. Every 97th is a tombstone, every 50th is large."""
    dice = random.Random(number)  # noqa: S311 - sample data
    key = f"customer-{dice.randrange(500):03d}".encode()
    headers = (
        (b"trace", f"{dice.getrandbits(64):016x}".encode()),
        (b"source", b"web" if number % 3 else None),
    )
    if number % 97 == 96:
        return DemoOrder(number=number, key=key, value=None, headers=headers)
    lines = [
        {"item": dice.choice(ITEMS), "quantity": dice.randint(1, 4), "cents": dice.randint(199, 9_999)}
        for _ in range(40 if number % 50 == 49 else dice.randint(1, 4))
    ]
    document = {
        "order": number,
        "status": dice.choice(STATUSES),
        "city": dice.choice(CITIES),
        "express": dice.random() < 0.2,
        "lines": lines,
        "total_cents": sum(line["quantity"] * line["cents"] for line in lines),  # type: ignore[operator]
    }
    return DemoOrder(
        number=number, key=key, value=json.dumps(document, ensure_ascii=False).encode(), headers=headers
    )


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
