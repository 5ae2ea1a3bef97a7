"""The preserved copies of a task: passes what is read to their writer, and moves positions by its
acknowledgements.

Invariant A: a preserved copy is read only from where its end was seen.

Invariant B: the position at which a copy ends, and the fact that it ends there, are stored in one
transaction: the end of its log is no longer its position, and the next owner must not take it for that.

Invariant C: while a task has a copy, nothing else writes about it to the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from twinlog.batches import Codec, NewRecord, OutgoingBatch
from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog_source.partitions import reports
from twinlog_source.partitions.orders import TaskAssignment
from twinlog_source.preserved.append_log import Phase
from twinlog_source.preserved.fill_limits import FillLimit, is_visible
from twinlog_source.preserved.partition import PreservedPartition
from twinlog_source.preserved.reasons import PreservedReason
from twinlog_source.preserved.writer import PreservedWriter
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.source_reader import PreparedChunk
from twinlog_source.task.reading.throttle import ReadShares
from twinlog_source.task.writing.copy_endings import CopyEndings, FilledBeginnings, preserved_copy_of
from twinlog_source.task.writing.foreign_judge import BOTH_WAYS, ForeignJudge, ReadForeignWrite
from twinlog_source.task.writing.positions_topic import PreservedPositions
from twinlog_source.task.writing.preserved_copy import PreservedCopy, hole_words
from twinlog_source.task.writing.round import settle_batch
from twinlog_source.task.writing.syncs import OffsetSyncs

DRAIN_SECONDS = 5.0
"""How long the end of a task waits for the answers to what was sent."""
LONGEST_FLUSH_SECONDS = 5.0
ROOM_SECONDS = 30.0
"""For how long a partition that cannot be written is not read while others need the room: as long as a leader
may take to answer. It is read earlier when the end of its copy was read again."""
FILL_LOOK_SECONDS = 0.02
"""How soon to check again whether a range may be filled."""


@dataclass(slots=True, kw_only=True)
class PreservedCopies:
    """Call `assign` for the partitions, then `run` once, and `drain` before its stop is set."""

    source_alias: str
    writer: PreservedWriter
    foreign_write: ReadForeignWrite
    tell_foreign: Callable[[TopicPartition, reports.ForeignWrite], None]
    """Called with each foreign stretch of a copy, by source partition."""
    delete_before: Callable[
        [Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, int | KafkaError]]
    ]
    """Let logs of the target start at these offsets. Raises KafkaError."""
    store_position: Callable[[TopicPartition, list[NewRecord]], None]
    """Store the position of a partition soon, with these records in the same transaction. Does not wait."""
    is_stored: Callable[[TopicPartition], bool]
    """Whether all of that is on the log."""
    wake_reader: Callable[[], None]
    shares: ReadShares
    """What these copies hold; the reader reads no more of them while that is enough."""
    syncs: OffsetSyncs
    clock: Clock
    flush_seconds: float
    """How often positions are stored; at least every five seconds, because the next task checks everything
    behind them."""
    fill_after_seconds: float
    """How long a task that lost its partitions may still write."""
    positions: PreservedPositions = field(init=False)
    endings: CopyEndings = field(init=False)
    judge: ForeignJudge = field(init=False)
    beginnings: FilledBeginnings = field(init=False)
    by_source: dict[TopicPartition, PreservedCopy] = field(default_factory=dict)
    _was_full: bool = False
    _is_draining: bool = False
    _progress: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.writer.changed, self.writer.failed = self._changed, self._failed
        self.positions = PreservedPositions(
            source_alias=self.source_alias, store_position=self.store_position, clock=self.clock
        )
        self.endings = CopyEndings(
            writer=self.writer,
            positions=self.positions,
            clock=self.clock,
            is_draining=lambda: self._is_draining,
            is_over=lambda: self.judge.is_over,
            ended=self._ended,
        )
        self.judge = ForeignJudge(
            foreign_write=self.foreign_write,
            tell=self.tell_foreign,
            own_producer_id=self.writer.identity.producer_id,
            end_copy=self.end_at,
            seconds_before_still=self.endings.seconds_before_still,
        )
        self.beginnings = FilledBeginnings(delete_before=self.delete_before, clock=self.clock)
        self.flush_seconds = min(self.flush_seconds, LONGEST_FLUSH_SECONDS)

    def assign(self, assignment: TaskAssignment, copy: PartitionCopy) -> None:
        """Take a partition; `run` finds out where its copy ends."""
        taken = preserved_copy_of(
            assignment,
            copy,
            now=self.clock.monotonic(),
            fill_after_seconds=self.fill_after_seconds,
            shares=self.shares,
            settle=self._settle,
            is_stored=partial(self.is_stored, copy.partition),
            fill_later=self._fill_later,
        )
        self.by_source[copy.partition] = taken
        if assignment.position_stored:
            self.positions.note_stored(taken)
        keeps_codec = assignment.compression_type in ("", "producer", Codec.ZSTD.name.lower())
        self.writer.filler.note_limit(
            taken.target, FillLimit(assignment.max_message_bytes, keeps_codec=keeps_codec)
        )
        self.writer.add(taken)

    def offer(self, chunk: PreparedChunk) -> None:
        """What was fetched of a preserved copy."""
        taken = self.by_source[chunk.copy.partition]
        if self._stands_still(taken) or taken.copy.sent != taken.appends.wanted:
            chunk.copy.drop_queued()
            return
        if chunk.prepared.echo_records:
            chunk.copy.drop_queued()
            self.give_up(
                chunk.copy.partition,
                reason=PreservedReason.BOTH_WAYS,
                message=BOTH_WAYS,
            )
            return
        hole = None if taken.required else taken.visible_hole(chunk, self.writer.filler.most_markers)
        if hole is not None:
            chunk.copy.drop_queued()
            self.give_up(
                chunk.copy.partition,
                reason=PreservedReason.HOLE_TOO_LONG,
                message=hole_words(chunk.copy.partition, hole.first, hole.end),
            )
            return
        is_compared = taken.appends.is_proving
        taken.offer(chunk, self.clock.monotonic())
        if is_compared:
            self._changed(taken)
        self._bound(taken)
        self.writer.wake(taken)

    async def run(self, stop: asyncio.Event) -> None:
        """Write until `stop`. Raises KafkaError when this task may no longer write."""
        failure: KafkaError | None = None
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(self._store_now_and_then(over), name="positions of preserved copies"),
                group.create_task(self.judge.run(over), name="judge what others wrote"),
                group.create_task(self.beginnings.run(over), name="delete filled beginnings"),
            ]
            try:
                await self.writer.run(stop)
            except KafkaError as error:
                failure = error
            finally:
                over.set()
                for task in beside:
                    task.cancel()
        if failure is not None:
            raise failure

    async def drain(self) -> None:
        """Wait until everything sent is acknowledged, and batches at wrong offsets are judged, because no
        other task knows about them. What was only queued is dropped. Raises KafkaError when a hole is still
        being filled, because its outcome is unknown."""
        self._is_draining = True
        self.writer.holes.drop()
        now = self.clock.monotonic()
        for taken in self.by_source.values():
            taken.copy.is_full = True
            taken.forget_queued(now)
            self.positions.touch(taken)
        give_up_at = now + DRAIN_SECONDS
        longest = give_up_at + self.writer.settings.delivery_timeout_seconds
        while not self.writer.is_idle or self.judge.is_about_to_judge:
            now = self.clock.monotonic()
            is_filling = any(each.appends.phase is Phase.FILLING for each in self.writer.partitions.values())
            if now >= (longest if is_filling else give_up_at):
                break
            self._progress.clear()
            await wait_or_stop(self._progress, min(0.2, give_up_at - now) if not is_filling else 0.2)
        if any(each.appends.phase is Phase.FILLING for each in self.writer.partitions.values()):
            raise TransientKafkaError(
                "a hole of a preserved copy is still being filled", reason="KAFKA_TIMEOUT"
            )
        self.store_positions()
        self.judge.is_over = True

    def store_positions(self) -> None:
        """Pass on the positions that have moved since the last call."""
        self.positions.store_touched()

    def skip(self, partition: TopicPartition, skip_to: int) -> None:
        """Leave out what lies between the end of the copy and `skip_to`. Only while it is at rest, and
        `fact_of` is stored or will be."""
        taken = self.by_source[partition]
        now = self.clock.monotonic()
        taken.skip(skip_to, now, may_fill_at=now + self.endings.seconds_before_still(taken))
        self._changed(taken)
        self.writer.wake(taken)

    def fills(self, partition: TopicPartition, first: int, end: int) -> bool:
        """Whether the copy fills a range that the source has lost; otherwise it ends there."""
        return self.by_source[partition].required or not is_visible(
            end - first, self.writer.filler.most_markers
        )

    def seconds_before_still(self, partition: TopicPartition) -> float:
        """How long something may still lengthen a copy at rest; its end is read again then. 0 = no longer."""
        taken = self.by_source[partition]
        seconds = self.endings.seconds_before_still(taken)
        if seconds > 0:
            self.endings.check_later(taken)
        return seconds

    def fact_of(self, partition: TopicPartition, *, skip_to: int | None = None) -> NewRecord:
        """The record about what a copy leaves out: as it is, or after `skip`."""
        return self.positions.fact_of(self.by_source[partition], skip_to=skip_to)

    def is_at_rest(self, partition: TopicPartition) -> bool:
        """Whether all of it is on the target for certain."""
        return self.by_source[partition].is_at_rest

    def resting_end(self, partition: TopicPartition) -> int | None:
        """Where the copy ends if only this writer wrote it; None: unknown, or about to change."""
        taken = self.by_source.get(partition)
        if taken is None or not taken.is_end_known or taken.copy.needs_translation:
            return None
        appends = taken.appends
        is_at_rest = appends.is_idle and self.is_at_rest(partition)
        return appends.acknowledged if is_at_rest and not self._is_draining else None

    def doubt(self, partition: TopicPartition) -> None:
        """A copy at rest ends later than it was written: check it."""
        self.endings.check(self.by_source[partition])

    def believe(self, partition: TopicPartition, until: int | None = None) -> bool:
        """Accept the filled offsets below `until`, or all of them, although they were not compared with the
        source. False when there was nothing to compare."""
        taken = self.by_source.get(partition)
        if taken is None or not taken.appends.is_proving:
            return False
        lost_from = taken.copy.source_lost_from
        taken.appends.believe(until)
        self._changed(taken)
        # An operator still has to decide about that, wherever the copy ends.
        taken.copy.source_lost_from = lost_from
        self.writer.wake(taken)
        return True

    def give_up(self, partition: TopicPartition, *, reason: str, message: str) -> None:
        """End the copy where it comes to rest: it does not keep the offsets from there on."""
        self.endings.give_up(self.by_source[partition], reason=reason, message=message)

    def end_at(
        self, partition: TopicPartition, position: int, *, until: int, reason: str, message: str
    ) -> None:
        """Write nothing more to a copy at rest: it has the source's offsets below `until`, and what follows
        from `position` on cannot have them."""
        self.endings.end(self.by_source[partition], position, until=until, reason=reason, message=message)

    # ----------------------------------------------------------------------------------------------

    def _changed(self, taken: PreservedPartition) -> None:
        assert isinstance(taken, PreservedCopy)
        now = self.clock.monotonic()
        generation = taken.copy.generation
        taken.changed(now)
        if taken.copy.generation != generation:
            self.wake_reader()  # It is read from elsewhere.
        appends = taken.appends
        if appends.phase is Phase.FOREIGN:
            if appends.is_idle and not taken.copy.needs_translation:
                self.judge.add(taken)
        elif taken.is_end_known:
            if taken.skip_from == 0 < taken.skip_to <= appends.acknowledged:
                self.beginnings.delete(taken.target, taken.skip_to)
            if taken.giving_up is not None:
                if appends.phase is Phase.SURE and not appends.is_proving:
                    # Also the rest of a hole that cannot be filled.
                    taken.forget_queued(now)
                self.endings.end_at_rest(taken)
            elif not taken.required and taken.hole_cost.is_too_high(now):
                self.give_up(
                    taken.copy.partition,
                    reason=PreservedReason.HOLES_TOO_FREQUENT,
                    message=f"filling the holes of {taken.copy.partition} takes more than half of the time",
                )
        self._bound(taken)
        self._progress.set()

    def _ended(self) -> None:
        self._progress.set()

    def _failed(self, taken: PreservedPartition, error: KafkaError) -> float | None:
        """Only a failure that retrying does not heal sets a partition aside: its records would be refused
        again. After another one it gives its room to partitions with leaders that answer, if they need it."""
        assert isinstance(taken, PreservedCopy)
        copy = taken.copy
        if error.reason == PreservedReason.FILL_REFUSED and not taken.required:
            self.give_up(copy.partition, reason=error.reason, message=str(error))
            return None
        now = self.clock.monotonic()
        if error.retriable:
            failures_by_reason = copy.counters.failures_by_reason
            failures_by_reason[error.reason] = failures_by_reason.get(error.reason, 0) + 1
            if self.shares.is_full and taken.is_end_known:
                taken.forget_queued(now)
                copy.wait_until(now + ROOM_SECONDS, "")
            return None
        copy.fail(
            reason=error.reason, message=f"target: {error}", retriable=False, now=now, keep_in_flight=True
        )
        taken.forget_queued(now)
        self.wake_reader()  # It checks again when the partition is retried.
        assert copy.retry_at is not None
        return copy.retry_at - now

    def _settle(self, copy: PartitionCopy, batch: OutgoingBatch, base_offset: int) -> None:
        settle_batch(copy, batch, base_offset, syncs=self.syncs, now_ms=self.clock.now_ms())

    def _fill_later(self, taken: PreservedCopy) -> None:
        def fill() -> None:
            if taken.copy.needs_translation or self._is_draining:
                return
            taken.waits_to_fill = False
            taken.fill_skipped(self.clock.monotonic())
            # A copy that has to end may be at rest by this.
            self._changed(taken)
            self.writer.wake(taken)

        wait_seconds = taken.may_fill_at - self.clock.monotonic() if taken.skip_from else 0.0
        asyncio.get_running_loop().call_later(max(wait_seconds, 0.0) + FILL_LOOK_SECONDS, fill)

    def _bound(self, taken: PreservedCopy) -> None:
        """Fetch no more of a partition that has its share in flight; fetch it again when it has room.

        Only for the partition of the event: a full one gets an answer soon.
        """
        self.positions.touch(taken)
        copy, was_full = taken.copy, self._was_full
        is_full = self._stands_still(taken) or copy.held_bytes >= self.shares.share_bytes
        is_open_again = copy.is_full and not is_full
        copy.is_full, self._was_full = is_full, self.shares.is_full
        if is_open_again or (was_full and not (copy.held_bytes and self._was_full)):
            self.wake_reader()

    def _stands_still(self, taken: PreservedCopy) -> bool:
        """Whether nothing more of it may be read now, however little is in flight."""
        return (
            self._is_draining
            or not taken.is_end_known
            or taken.waits_to_fill
            or (taken.giving_up is not None and not taken.appends.is_proving)
            or taken.appends.phase is Phase.FOREIGN
        )

    async def _store_now_and_then(self, stop: asyncio.Event) -> None:
        while not await wait_or_stop(stop, self.flush_seconds):
            self.store_positions()
