"""Offset syncs of a task: emitted by MM2's rules after the commit, by a plain idempotent producer of their
own.

A sync that is lost costs precision, never correctness: a failing syncs topic is a status, and never stops
the copy.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

import structlog

from twinlog.batches import NewRecord, OutgoingBatch, build_batch
from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.raw import DataSession, ProducerSettings, RawProducer
from twinlog.model import TopicPartition
from twinlog.offsets import OffsetSyncWriter
from twinlog.service.waiting import wait_or_stop
from twinlog.wire.offset_sync import OFFSET_SYNCS_PARTITION, encode_offset_sync

PUBLISH_INTERVAL_SECONDS = 0.1
"""Bounds the rate: what is due meanwhile goes out together, the newest of each partition first kept."""
HISTORY_PER_PARTITION = 32
MAX_IN_FLIGHT = 500
REOPEN_AFTER_SECONDS = 5.0
CLOSE_SECONDS = 2.0

log = structlog.get_logger(__name__)


def sync_writer(offset_lag_max: int) -> OffsetSyncWriter:
    """MM2's rules, with more syncs kept for each partition than MM2 keeps."""
    return OffsetSyncWriter(
        offset_lag_max=offset_lag_max,
        max_in_flight=MAX_IN_FLIGHT,
        history_per_partition=HISTORY_PER_PARTITION,
    )


@dataclass(slots=True, kw_only=True)
class OffsetSyncs:
    """`topic` empty: none are emitted (emit.offset-syncs.enabled=false)."""

    topic: str
    session: DataSession
    settings: ProducerSettings
    writer: OffsetSyncWriter
    clock: Clock
    problem: KafkaError | None = None
    emitted: int = 0
    _producer: RawProducer | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _reopen_at: float = 0.0

    def acknowledged(self, partition: TopicPartition, batch: OutgoingBatch, target_base_offset: int) -> None:
        """Take a committed batch: every run of it is an exact piece of the offset map."""
        if not self.topic:
            return
        downstream = target_base_offset
        for first_source_offset, count in batch.runs:
            self.writer.acknowledged_run(partition, first_source_offset, downstream, count)
            downstream += count

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`: publish what is due. Apart from the copy, which never waits for it."""
        while not await wait_or_stop(stop, PUBLISH_INTERVAL_SECONDS):
            await self._publish()

    async def close(self) -> None:
        """Publish the rest and wait for what is on its way, at most two seconds."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._publish()
                if self._producer is not None:
                    await self._producer.flush()
        except (TimeoutError, KafkaError) as error:
            log.warning("offset_syncs_lost", error=str(error) or "no acknowledgement in time")
        await self._stack.aclose()

    async def _publish(self) -> None:
        """Send what is due, and what waits for a commit, without waiting for the acknowledgement."""
        if not self.topic:
            return
        self.writer.commit()
        if not self.writer.pending:
            return
        if self._producer is None and self.clock.monotonic() >= self._reopen_at:
            await self._open()
        while self._producer is not None and (due := self.writer.take()):
            now_ms = self.clock.now_ms()
            records = [NewRecord(*encode_offset_sync(sync), now_ms) for sync in due]
            try:
                sent = self._producer.send(
                    TopicPartition(self.topic, OFFSET_SYNCS_PARTITION), build_batch(records)
                )
            except KafkaError as error:
                self.writer.completed(len(due))
                await self._lost(error)
                return
            sent.add_done_callback(partial(self._completed, len(due)))
            self.emitted += len(due)

    def _completed(self, count: int, _sent: "asyncio.Future[int]") -> None:
        self.writer.completed(count)

    async def _open(self) -> None:
        producer = RawProducer(self.session, self.settings)
        try:
            await self._stack.enter_async_context(producer)
        except KafkaError as error:
            await self._lost(error)
            return
        self._producer, self.problem = producer, None

    async def _lost(self, error: KafkaError) -> None:
        self.problem, self._producer = error, None
        self._reopen_at = self.clock.monotonic() + REOPEN_AFTER_SECONDS
        log.warning("offset_syncs_unavailable", reason=error.reason, error=str(error))
        await self._stack.aclose()
