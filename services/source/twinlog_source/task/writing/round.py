"""The content of one transaction of a task, from its first record until its commit is answered.

How many bytes one round may have: what the target takes in a moment. Pure.

With a quota or a slow line a large round lasts for minutes, and every other partition of the slot waits for
its end. So rounds are bounded by time: the first one is small, and each next one has at most twice as much,
and no more than has been seen to pass in `ROUND_SECONDS`.

How a round is sent: small batches are joined for a distant target, and partitions that failed last time do
not delay the others for long.

What an acknowledged batch means for its partition, however it was written.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, Self

import structlog

from twinlog.batches import Lane, NewRecord, OutgoingBatch, RawHeaders, build_batch
from twinlog.batches.joining import join
from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer
from twinlog.model import TopicPartition
from twinlog.offsets import OffsetSyncWriter, PacedSyncs
from twinlog.service.waiting import wait_for_any, wait_or_stop
from twinlog.wire.offset_sync import OFFSET_SYNCS_PARTITION, OffsetSync, encode_offset_sync
from twinlog.wire.topic_ids import TopicIds, topic_ids_headers
from twinlog_source.log.facts import EpochStart
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import PreparedChunk, Routed
from twinlog_source.task.writing.transport import Transaction, Transport

# Offset syncs of a task: written after the commit, in proportion to what is copied (`PacedSyncs`), by a
# plain idempotent producer of their own.
#
# A lost sync costs precision, never correctness. A failing syncs topic is shown in the status, and never
# stops the copy.

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
    topic_ids: Callable[[TopicPartition], TopicIds | None] = lambda _partition: None
    """Of the topic and its copy; None for a route."""
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
        self.paced.acknowledged(partition, batch.runs, target_base_offset, self.clock.monotonic())

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
            records = [
                NewRecord(*encode_offset_sync(sync), now_ms, self._headers(sync.partition)) for sync in due
            ]
            try:
                sent = self._producer.send(
                    TopicPartition(self.topic, OFFSET_SYNCS_PARTITION), build_batch(records)
                )
            except KafkaError as error:
                self._not_arrived(due)
                await self._lost(error)
                return
            sent.add_done_callback(partial(self._completed, due))

    def _headers(self, partition: TopicPartition) -> RawHeaders:
        headers = topic_ids_headers(self.topic_ids(partition))
        return tuple((name.encode(), value) for name, value in headers)

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


ROUND_MAX_BYTES = 8 << 20
ROUND_FIRST_BYTES = 1 << 20
ROUND_LEAST_BYTES = 256 << 10
"""What is tried however slow the target is: about a batch, which is never split."""
ROUND_SECONDS = 2.0
_TELLING_SHARE = 0.4
"""A round that is this full shows that more may be tried. (A fetch brings at most half of a round, less what
is cut off its last batch.) Less full rounds show nothing, because a quota lets bursts pass."""


GROWTH_SECONDS = 0.5
"""For how long rounds of one size have to be in time before a larger one is tried, because a quota lets
bursts pass."""


@dataclass(slots=True)
class RoundSize:
    """Invariant: `ROUND_LEAST_BYTES <= size_bytes <= ROUND_MAX_BYTES`."""

    size_bytes: int = ROUND_FIRST_BYTES
    _in_time_seconds: float = 0.0
    """How long full rounds of this size have taken, all in time."""

    def passed(self, round_bytes: int, seconds: float) -> None:
        """A round of this many bytes was committed after this time.

        A small round in time does not show how long a large one would take.
        """
        was_slow = seconds > ROUND_SECONDS and round_bytes > ROUND_LEAST_BYTES
        if was_slow or round_bytes >= _TELLING_SHARE * self.size_bytes:
            in_time = int(round_bytes * ROUND_SECONDS / max(seconds, 0.001))
            self._in_time_seconds += seconds
            if in_time < self.size_bytes or self._in_time_seconds >= GROWTH_SECONDS:
                self._become(min(in_time, 2 * self.size_bytes))

    def timed_out(self, round_bytes: int) -> None:
        """A round of this many bytes timed out."""
        self._become(min(self.size_bytes, round_bytes) // 2)

    def _become(self, size_bytes: int) -> None:
        self._in_time_seconds = 0.0
        self.size_bytes = min(max(size_bytes, ROUND_LEAST_BYTES), ROUND_MAX_BYTES)


@dataclass(slots=True)
class Round:
    """The content of one transaction."""

    chunks: list[PreparedChunk] = field(default_factory=list)
    sent: list[tuple[PartitionCopy, OutgoingBatch, "asyncio.Future[int]"]] = field(default_factory=list)
    routed: list[tuple[PartitionCopy, Routed, "asyncio.Future[int]"]] = field(default_factory=list)
    size_bytes: int = 0
    began_at: float = 0.0
    """Monotonic seconds."""
    transaction: Transaction | None = None
    epochs: dict[TopicPartition, tuple[EpochStart, ...]] = field(default_factory=dict)
    """The leader epochs after it, of partitions that continue under another leader."""
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """The positions that it stores."""
    moved: dict[TopicPartition, int] = field(default_factory=dict)
    """Those of them that moved without data."""
    told_epochs: dict[TopicPartition, tuple[EpochStart, ...]] = field(default_factory=dict)
    """The leader epochs of these."""
    extra_count: int = 0
    """The number of Twinlog's own records that it stores."""
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its commit was requested: only then may another round begin."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its commit succeeded or failed."""
    failure: KafkaError | None = None

    def stores(self, copy: PartitionCopy) -> bool:
        """Whether it stores the copy's present position. Not if the copy was moved again since: that position
        has to be stored in one transaction with the records that explain it."""
        stored, moved = self.positions.get(copy.partition), self.moved.get(copy.partition)
        return stored is not None and (stored != moved or moved == copy.committed)


FAR_SECONDS = 0.008
"""A target whose answers take this long is distant: a round trip costs more than joining small batches and
keeping two transactions."""
FEW_BYTES = 128 << 10
"""A round with this few bytes takes as long as its round trips."""
DOUBTFUL_SECONDS = 1.0
"""The time for partitions that failed last time, after the others are written; more on a slow way with much
data."""


def doubtful_seconds(others_took: float, *, doubtful_bytes: int, other_bytes: int) -> float:
    """How much longer than the others doubtful partitions may take: twice the time that the same amount
    took."""
    return max(DOUBTFUL_SECONDS, 2 * others_took * doubtful_bytes / max(other_bytes, 1))


@dataclass(slots=True, kw_only=True)
class RoundSending:
    copies: Mapping[TopicPartition, PartitionCopy]
    target_throttled: Callable[[], bool]
    """Whether a quota of the target delays requests now."""
    clock: Clock
    dead_letters: TopicPartition | None = None
    """Where records go that could not be changed."""
    late: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    """Partitions of the present round that the others no longer wait for, with the error."""
    _way_seconds: float = 0.0
    """How long the target took for a round with few bytes, without its commit."""

    @property
    def is_far(self) -> bool:
        # Under a quota, overlapping rounds would only wait one behind the other.
        return self._way_seconds >= FAR_SECONDS and not self.target_throttled()

    def collect(self, current: Round, chunk: PreparedChunk) -> None:
        current.chunks.append(chunk)
        chunk.copy.send_to(chunk.prepared.next_offset, chunk.prepared.leader_epochs)
        chunk.copy.rounds += 1
        current.size_bytes += chunk.prepared.size_bytes

    def send(self, transport: Transport, current: Round) -> None:
        """Begins the transaction of the round when there is something to send."""
        for copy, batches in self._batches(current):
            for batch in batches:
                if current.transaction is None:
                    current.transaction = transport.begin()
                copy.wrote_nothing = False
                current.sent.append((copy, batch, current.transaction.send(copy.target, batch)))
        for copy, each in [(chunk.copy, each) for chunk in current.chunks for each in chunk.routed]:
            if current.transaction is None:
                current.transaction = transport.begin()
            current.routed.append((copy, each, current.transaction.send(each.target, each.batch)))
        for batch in [each for chunk in current.chunks for each in chunk.dead_letters]:
            assert self.dead_letters is not None
            if current.transaction is None:
                current.transaction = transport.begin()
            current.transaction.send(self.dead_letters, batch)

    async def await_doubtful(self, current: Round) -> None:
        """Partitions that failed last time must not delay the others for a whole delivery time-out. Raises
        KafkaError when they would; `late` has the error of each."""
        doubtful = [(copy, sent) for copy, _, sent in current.sent if copy.failures]
        others = [sent for copy, _, sent in current.sent if not copy.failures]
        if not doubtful or not others:
            return
        await asyncio.wait(others)  # Bounded by the producer's deadline.
        patience_seconds = doubtful_seconds(
            self.clock.monotonic() - current.began_at,
            doubtful_bytes=sum(batch.size_bytes for copy, batch, _ in current.sent if copy.failures),
            other_bytes=sum(batch.size_bytes for copy, batch, _ in current.sent if not copy.failures),
        )
        _, late = await asyncio.wait([sent for _, sent in doubtful], timeout=patience_seconds)
        for copy, sent in doubtful:
            if sent in late:
                reason = copy.reason_before or "KAFKA_TIMEOUT"
                error = TransientKafkaError(f"{copy.partition}: still not written", reason=reason)
                self.late[copy.partition] = error
        if self.late:
            raise next(iter(self.late.values()))

    def written(self, current: Round) -> None:
        """Return when all of the round, and its positions, are acknowledged."""
        if current.size_bytes <= FEW_BYTES and not self.target_throttled():
            self._way_seconds = self.clock.monotonic() - current.began_at

    def _batches(self, current: Round) -> Iterator[tuple[PartitionCopy, Sequence[OutgoingBatch]]]:
        if not self.is_far:
            for chunk in current.chunks:
                yield chunk.copy, chunk.prepared.batches
            return
        # A request takes one batch of a partition: small consecutive ones would wait in turn.
        by_copy: dict[TopicPartition, list[OutgoingBatch]] = {}
        for chunk in current.chunks:
            by_copy.setdefault(chunk.copy.partition, []).extend(chunk.prepared.batches)
        for partition, batches in by_copy.items():
            yield self.copies[partition], join(batches, target=self.copies[partition].policy.target)


def settle_batch(
    copy: PartitionCopy, batch: OutgoingBatch, base_offset: int, *, syncs: OffsetSyncs, now_ms: int
) -> tuple[int, int] | None:
    """The target has the batch at `base_offset`: count it, and queue its offset syncs. The caller moves the
    position. Returns the result of `PartitionCopy.written`."""
    unexplained = copy.written(base_offset, batch.record_count, batch.first)
    count_batch(copy, batch, now_ms)
    syncs.acknowledged(copy.partition, batch, base_offset)
    return unexplained


def count_batch(copy: PartitionCopy, batch: OutgoingBatch, now_ms: int) -> None:
    """Records of the partition are on the target, in its copy or elsewhere."""
    counters = copy.counters
    counters.records += batch.record_count
    counters.bytes += batch.size_bytes
    if batch.lane is Lane.RAW:
        counters.raw_records += batch.record_count
    else:
        recoded = counters.recoded_records
        recoded[batch.reason] = recoded.get(batch.reason, 0) + batch.record_count
    copy.lane = batch.lane
    copy.latency_seconds = max(0.0, (now_ms - batch.max_timestamp_ms) / 1000)
    counters.latency.add_batch(batch.max_timestamp_ms, batch.record_count, now_ms=now_ms)
