"""Offset syncs of a task: written after the commit, in proportion to what is copied (`PacedSyncs`), by a
plain idempotent producer of their own.

A lost sync costs precision, never correctness. A failing syncs topic is shown in the status, and never stops
the copy.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, Self

import structlog

from twinlog.batches import NewRecord, OutgoingBatch, build_batch
from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer
from twinlog.model import TopicPartition
from twinlog.offsets import OffsetSyncWriter, PacedSyncs
from twinlog.service.waiting import wait_for_any, wait_or_stop
from twinlog.wire.offset_sync import OFFSET_SYNCS_PARTITION, OffsetSync, encode_offset_sync

PUBLISH_INTERVAL_SECONDS = 0.25
"""Limits the rate: syncs that become due meanwhile are sent together, the newest of each partition."""
HISTORY_PER_PARTITION = 32
MAX_IN_FLIGHT = 500
REOPEN_AFTER_SECONDS = 5.0
CLOSE_SECONDS = 2.0

log = structlog.get_logger(__name__)


def paced_syncs(offset_lag_max: int, *, flush_seconds: float) -> PacedSyncs:
    """MM2's rules, but more syncs are kept for each partition, and fewer are sent."""
    writer = OffsetSyncWriter(
        offset_lag_max=offset_lag_max,
        max_in_flight=MAX_IN_FLIGHT,
        history_per_partition=HISTORY_PER_PARTITION,
    )
    return PacedSyncs(writer, flush_seconds=flush_seconds)


class SyncProducer(Protocol):
    """The part of `RawProducer` that is used."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    def send(self, partition: TopicPartition, batch: OutgoingBatch) -> "asyncio.Future[int]": ...

    async def flush(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class OffsetSyncs:
    """Empty `topic`: none are written (emit.offset-syncs.enabled=false)."""

    topic: str
    session: DataClientPool
    settings: ProducerSettings
    paced: PacedSyncs
    clock: Clock
    nobody_goes_on: bool = False
    """No task follows this one, so `close` has to publish everything."""
    problem: KafkaError | None = None
    emitted: int = 0
    """The number of syncs that the cluster has acknowledged."""
    open_producer: Callable[[DataClientPool, ProducerSettings], SyncProducer] = RawProducer
    _producer: SyncProducer | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    reopen_at: float = 0.0
    _alone: set[TopicPartition] = field(default_factory=set)
    """Partitions of which `close` has to publish everything."""
    _queued: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to publish."""

    def acknowledged(self, partition: TopicPartition, batch: OutgoingBatch, target_base_offset: int) -> None:
        """Take a committed batch: every run of it is an exact piece of the offset map."""
        if not self.topic:
            return
        self._queued.set()
        downstream, now = target_base_offset, self.clock.monotonic()
        for first_source_offset, count in batch.runs:
            self.paced.acknowledged_run(partition, first_source_offset, downstream, count, now)
            downstream += count

    def acknowledged_route(
        self, partition: TopicPartition, batch: OutgoingBatch, target_base_offset: int
    ) -> None:
        """The same of a route; no other writer continues its syncs."""
        self._alone.add(partition)
        self.acknowledged(partition, batch, target_base_offset)

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`: publish what is due. Runs apart from the copy, which never waits for it."""
        self._queued.set()  # The previous task may have left some.
        while not stop.is_set():
            await wait_for_any(stop, self._queued)
            self._queued.clear()
            await self._publish(self.paced.take)
            # While some wait for their time, and once more for those that arrive meanwhile.
            await wait_or_stop(stop, PUBLISH_INTERVAL_SECONDS)
            if self.paced.is_waiting:
                self._queued.set()

    async def close(self) -> None:
        """Publish what is due, and wait for what is in flight, at most two seconds."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._publish(self.paced.take)
                await self._publish(
                    partial(self.paced.take_rest, of=None if self.nobody_goes_on else self._alone)
                )
                if self._producer is not None:
                    await self._producer.flush()
        except (TimeoutError, KafkaError) as error:
            log.warning("offset_syncs_lost", error=str(error) or "no acknowledgement in time")
        await self._stack.aclose()

    async def _publish(self, take: Callable[[float], list[OffsetSync]]) -> None:
        """Send what is due without waiting for the acknowledgement."""
        if not self.topic:
            return
        if self._producer is None:
            if self.clock.monotonic() < self.reopen_at or not self.paced.is_waiting:
                return
            await self._open()
        while self._producer is not None and (due := take(self.clock.monotonic())):
            now_ms = self.clock.now_ms()
            records = [NewRecord(*encode_offset_sync(sync), now_ms) for sync in due]
            try:
                sent = self._producer.send(
                    TopicPartition(self.topic, OFFSET_SYNCS_PARTITION), build_batch(records)
                )
            except KafkaError as error:
                self._not_arrived(due)
                await self._lost(error)
                return
            sent.add_done_callback(partial(self._completed, due))

    def _completed(self, due: list[OffsetSync], sent: "asyncio.Future[int]") -> None:
        if sent.cancelled() or sent.exception() is not None:
            self._not_arrived(due)
            return
        self.paced.completed(len(due))
        self.emitted += len(due)

    def _not_arrived(self, due: list[OffsetSync]) -> None:
        self.paced.completed(len(due))
        self.paced.lost({sync.partition for sync in due})
        self._queued.set()

    async def _open(self) -> None:
        producer = self.open_producer(self.session, self.settings)
        try:
            await self._stack.enter_async_context(producer)
        except KafkaError as error:
            await self._lost(error)
            return
        self._producer, self.problem = producer, None

    async def _lost(self, error: KafkaError) -> None:
        self.problem, self._producer = error, None
        self.reopen_at = self.clock.monotonic() + REOPEN_AFTER_SECONDS
        log.warning("offset_syncs_unavailable", reason=error.reason, error=str(error))
        await self._stack.aclose()
