"""What the demo writes, and what its live view shows: partitions from source, delays from heartbeat."""

import asyncio
import json
import os
import random
import sys
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint_pb
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2_grpc as checkpoint_grpc
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat_pb
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2_grpc as heartbeat_grpc
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1 import source_service_pb2_grpc as source_grpc
from twinlog.batches import Codec, NewRecord, build_batch
from twinlog.clock import Clock
from twinlog.demo.screen import TopicRow
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer
from twinlog.local.processes.process import GuardedProcess
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop

# The live page of the demo: `twinlog ui` as a separate process.

START_SECONDS = 60.0
STOP_SECONDS = 10.0
_POLL_SECONDS = 0.1
_READY = "ready: "


@asynccontextmanager
async def live_page(file: Path, directory: Path) -> AsyncIterator[str]:
    """A line with the page's address, or why there is none. The demo continues without it."""
    log = directory / "ui.log"
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "twinlog",
        "ui",
        "--config",
        file,
        "--listen",
        "127.0.0.1:0",
    ]
    process = GuardedProcess(command, output=log)
    try:
        url = await _address(process, log)
        if url is None:
            yield f"the live page did not start: {_told(log).strip() or 'it said nothing'}"
        else:
            if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
                await asyncio.to_thread(webbrowser.open, url)
            yield f"live page: {url}"
    finally:
        await asyncio.to_thread(process.stop, STOP_SECONDS)


def _told(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""


async def _address(process: GuardedProcess, log: Path) -> str | None:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + START_SECONDS
    never = asyncio.Event()
    while process.running and loop.time() < give_up_at:
        lines = _told(log).splitlines(keepends=True)
        line = next((each for each in lines if each.startswith(_READY)), "")
        if line.endswith("\n"):
            return line.removeprefix(_READY).strip()
        await wait_or_stop(never, _POLL_SECONDS)
    return None


CALL_TIMEOUT_SECONDS = 5.0
_OF_THE_RECORD = (checkpoint_pb.VERDICT_PRESERVED, checkpoint_pb.VERDICT_EXACT)


class Watching:
    """Asks the services of a running Twinlog. Raises grpc.aio.AioRpcError when one does not answer."""

    def __init__(
        self, source: grpc.aio.Channel, heartbeat: grpc.aio.Channel, checkpoint: grpc.aio.Channel
    ) -> None:
        self._source = source_grpc.SourceServiceStub(source)
        self._checkpoint = checkpoint_grpc.CheckpointServiceStub(checkpoint)
        self._heartbeat = heartbeat_grpc.HeartbeatServiceStub(heartbeat)

    async def partitions(self) -> list[source_pb.PartitionStatus]:
        answer = await self._source.ListPartitions(
            source_pb.ListPartitionsRequest(page_size=10_000), timeout=CALL_TIMEOUT_SECONDS
        )
        return list(answer.partitions)

    async def topics(self) -> list[TopicRow]:
        """One row per replicated topic, without heartbeats."""
        by_topic: dict[str, list[source_pb.PartitionStatus]] = {}
        for partition in await self.partitions():
            if not partition.source.topic.endswith("heartbeats"):
                by_topic.setdefault(partition.source.topic, []).append(partition)
        return [_row(topic, partitions) for topic, partitions in sorted(by_topic.items())]

    async def group_is_settled(
        self, group: str, on_source: Mapping[TopicPartition, int], *, copied_at_ms: int
    ) -> bool:
        """Whether the group's offsets on the target are those of exactly these offsets on the source.
        `copied_at_ms`: since when everything is on the target."""
        answer = await self._checkpoint.ListGroups(
            checkpoint_pb.ListGroupsRequest(group=group), timeout=CALL_TIMEOUT_SECONDS
        )
        settled = {
            TopicPartition(row.source.topic, row.source.partition): row.upstream_offset
            for row in answer.groups
            if is_settled(row, copied_at_ms=copied_at_ms)
        }
        return settled == dict(on_source)

    async def delay_seconds(self) -> float | None:
        """End to end, of the last heartbeat; None before the first one arrived."""
        answer = await self._heartbeat.ListDelays(
            heartbeat_pb.ListDelaysRequest(), timeout=CALL_TIMEOUT_SECONDS
        )
        for delay in answer.delays:
            if (delay.flow.source, delay.flow.target) == ("A", "B") and delay.HasField("last_delay"):
                return delay.last_delay.ToTimedelta().total_seconds()
        return None


def is_settled(row: checkpoint_pb.GroupPartition, *, copied_at_ms: int) -> bool:
    """Whether the offset on the target is final. A group that is ahead of the copy is at the end of the copy
    so far (UP_TO_DATE): where it continues is known once its record is copied. Pure."""
    if not row.committed_on_target or row.as_of.ToMilliseconds() <= copied_at_ms:
        return False
    at_the_end = row.verdict == checkpoint_pb.VERDICT_UP_TO_DATE and row.HasField("source_lag")
    return row.verdict in _OF_THE_RECORD or (at_the_end and not row.source_lag)


def _row(topic: str, partitions: list[source_pb.PartitionStatus]) -> TopicRow:
    states = {source_pb.PartitionState.Name(p.state).removeprefix("PARTITION_STATE_") for p in partitions}
    return TopicRow(
        source_topic=topic,
        target_topic=partitions[0].target_topic,
        partitions=len(partitions),
        records=sum(max(p.position, 0) for p in partitions),
        records_per_second=sum(p.records_per_second for p in partitions),
        megabytes_per_second=sum(p.bytes_per_second for p in partitions) / 1e6,
        lag_records=sum(p.lag_records for p in partitions)
        if all(p.HasField("lag_records") for p in partitions)
        else None,
        state=states.pop() if len(states) == 1 else "MIXED",
    )


# The shop: writes orders to cluster A in batches, each partition with another codec.

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
PATIENCE_SECONDS = 240.0
"""How long a broker may take to answer: on a machine without a free core, minutes."""


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
    _settings: ProducerSettings = field(
        default_factory=lambda: ProducerSettings(delivery_timeout_seconds=PATIENCE_SECONDS)
    )

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
