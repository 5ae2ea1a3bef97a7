"""The preserved copies of a task: passes what is read to their writer, moves positions by its
acknowledgements, and ends copies that cannot keep the source's offsets any more: each where it comes to rest,
and only once nothing can lengthen it.

Invariant A: a preserved copy is read only from where its end was seen.

Invariant B: the position at which a copy ends, and the fact that it ends there, are stored in one
transaction: the end of its log is no longer its position, and the next owner must not take it for that.

Invariant C: while a task has a copy, nothing else writes about it to the log.

Invariant D: a copy that cannot keep the offsets is not written any more before its exact position is known.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from twinlog.batches import Codec, NewRecord, OutgoingBatch
from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog_source.partitions import orders
from twinlog_source.partitions.orders import TaskAssignment
from twinlog_source.preserved.append_log import AppendLog, Phase
from twinlog_source.preserved.append_steps import PreservedReason
from twinlog_source.preserved.fill_limits import FillLimit, is_visible
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import PreparedChunk
from twinlog_source.task.reading.fetch_schedule import ReadShares
from twinlog_source.task.writing.filled_beginnings import DeleteBefore, FilledBeginnings
from twinlog_source.task.writing.foreign_judge import BOTH_WAYS, ForeignJudge, ReadForeignWrite
from twinlog_source.task.writing.positions_topic import PreservedPositions
from twinlog_source.task.writing.preserved_copy import PreservedCopy, Why, hole_words
from twinlog_source.task.writing.preserved_writer import PreservedWriter
from twinlog_source.task.writing.round import OffsetSyncs, settle_batch

IN_FLIGHT_BYTES = 8 << 20
"""The limit for one partition: 150 ms of latency at 50 MB/s. The writer bounds the sum."""
PACK_BELOW_BYTES = 64 << 10
DRAIN_SECONDS = 5.0
"""How long the end of a task waits for the answers to what was sent."""
LONGEST_FLUSH_SECONDS = 5.0
ROOM_SECONDS = 30.0
"""For how long a partition that cannot be written is not read while others need the room: as long as a leader
may take to answer. It is read earlier when the end of its copy was read again."""
LOOK_SECONDS = 0.02
"""How soon to check again whether a range may be filled, or a copy can no longer be lengthened."""


@dataclass(slots=True, kw_only=True)
class PreservedCopies:
    """Call `assign` for the partitions, then `run` once, and `drain` before its stop is set."""

    source_alias: str
    writer: PreservedWriter
    foreign_write: ReadForeignWrite
    tell_foreign: Callable[[TopicPartition, orders.ForeignWrite], None]
    """Called with each foreign stretch of a copy, by source partition."""
    delete_before: DeleteBefore
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
    judge: ForeignJudge = field(init=False)
    beginnings: FilledBeginnings = field(init=False)
    by_source: dict[TopicPartition, PreservedCopy] = field(default_factory=dict)
    _was_full: bool = False
    _is_draining: bool = False
    """The task ends: nothing that would take time is begun."""
    _looking: set[PreservedCopy] = field(default_factory=set)
    """Those whose end is read again once nothing can lengthen them any more."""
    _progress: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.writer.changed, self.writer.failed = self._changed, self._failed
        self.positions = PreservedPositions(
            source_alias=self.source_alias, store_position=self.store_position, clock=self.clock
        )
        self.judge = ForeignJudge(
            foreign_write=self.foreign_write,
            tell=self.tell_foreign,
            own_producer_id=self.writer.identity.producer_id,
            end_copy=self.end,
            seconds_before_still=self.seconds_before_still,
        )
        self.beginnings = FilledBeginnings(delete_before=self.delete_before, clock=self.clock)
        self.flush_seconds = min(self.flush_seconds, LONGEST_FLUSH_SECONDS)

    def assign(self, assignment: TaskAssignment, copy: PartitionCopy) -> None:
        """Take a partition; `run` finds out where its copy ends."""
        terms, now = assignment.preserved, self.clock.monotonic()
        assert terms is not None

        def no_longer_written(former_task_seconds: float | None) -> float:
            """When a task that lost its partition this long ago has stopped writing; None = there is none."""
            if former_task_seconds is None:
                return now
            return now + max(0.0, self.fill_after_seconds - former_task_seconds)

        taken = self.by_source[copy.partition] = PreservedCopy(
            copy=copy,
            appends=AppendLog.starting_at(
                assignment.position,
                max_in_flight_bytes=IN_FLIGHT_BYTES,
                pack_below_bytes=min(PACK_BELOW_BYTES, assignment.max_message_bytes // 2),
                leader_epoch=terms.leader_epoch,
            ),
            topic_id=assignment.target_topic_id,
            common_until=terms.common_until,
            skip_from=terms.skip_from,
            skip_to=terms.skip_to,
            since=terms.since,
            required=terms.required,
            may_fill_at=no_longer_written(terms.skip_former_task_seconds),
            alone_at=no_longer_written(terms.former_task_seconds),
            shares=self.shares,
            giving_up=(terms.end_reason, terms.end_message) if terms.end_reason else None,
            settle=self._settle,
            is_stored=partial(self.is_stored, copy.partition),
            fill_later=self._fill_later,
        )
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
        # While the end of the copy is compared they are as holes: given up, it would never come to rest.
        if chunk.prepared.echo_records and not taken.appends.is_proving:
            chunk.copy.drop_queued()
            self.give_up(taken, (PreservedReason.BOTH_WAYS, BOTH_WAYS))
            return
        hole = None if taken.required else taken.visible_hole(chunk, self.writer.filler.most_markers)
        if hole is not None:
            chunk.copy.drop_queued()
            words = hole_words(chunk.copy.partition, hole.first, hole.end)
            self.give_up(taken, (PreservedReason.HOLE_TOO_LONG, words))
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
            if now >= (longest if self.writer.is_filling else give_up_at):
                break
            self._progress.clear()
            await wait_or_stop(self._progress, 0.2 if self.writer.is_filling else min(0.2, give_up_at - now))
        if self.writer.is_filling:
            raise TransientKafkaError(
                "a hole of a preserved copy is still being filled", reason="KAFKA_TIMEOUT"
            )
        self.store_positions()
        self.judge.is_over = True

    def store_positions(self) -> None:
        """Pass on the positions that have moved since the last call."""
        self.positions.store_touched()

    def skip(self, taken: PreservedCopy, skip_to: int) -> None:
        """Leave out what lies between the end of the copy and `skip_to`. Only while it is at rest, and
        `positions.fact_of` is stored or will be."""
        now = self.clock.monotonic()
        taken.skip(skip_to, now, may_fill_at=now + self.seconds_before_still(taken))
        self._changed(taken)
        self.writer.wake(taken)

    def fills(self, taken: PreservedCopy, first: int, end: int) -> bool:
        """Whether the copy fills a range that the source has lost; otherwise it ends there."""
        return taken.required or not is_visible(end - first, self.writer.filler.most_markers)

    def seconds_before_still(self, taken: PreservedCopy) -> float:
        """How long a batch of the task before, or of this one whose answer was lost, may still lengthen the
        copy."""
        answered_at = taken.lost_at + self.writer.settings.request_timeout_seconds
        return max(0.0, max(taken.alone_at, answered_at) - self.clock.monotonic())

    def look_when_still(self, taken: PreservedCopy) -> float:
        """How long something may still lengthen a copy at rest; its end is read again then: what comes late
        would be copied again behind it. 0 = no longer."""
        seconds = self.seconds_before_still(taken)

        def look() -> None:
            self._looking.discard(taken)
            if not taken.copy.needs_translation and not self._is_draining:
                self.doubt(taken)

        if seconds > 0 and taken not in self._looking:
            self._looking.add(taken)
            asyncio.get_running_loop().call_later(seconds + LOOK_SECONDS, look)
        return seconds

    def resting_end(self, partition: TopicPartition) -> int | None:
        """Where the copy ends if only this writer wrote it; None: unknown, or about to change."""
        taken = self.by_source.get(partition)
        if taken is None or not taken.is_end_known or taken.copy.needs_translation:
            return None
        return taken.appends.acknowledged if taken.is_at_rest and not self._is_draining else None

    def doubt(self, taken: PreservedCopy) -> None:
        """Read the end of a copy at rest again."""
        taken.appends.doubt()
        self.writer.wake(taken)

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

    def give_up(self, taken: PreservedCopy, why: Why) -> None:
        """End the copy where it comes to rest: it does not keep the offsets from there on."""
        if taken.giving_up is not None:
            return
        taken.giving_up = why
        taken.copy.is_full = True
        if taken.is_end_known:
            taken.forget_queued(self.clock.monotonic())
        self._end_at_rest(taken)

    def end(self, taken: PreservedCopy, position: int, until: int, why: Why) -> None:
        """Write nothing more to a copy at rest: it has the source's offsets below `until`, and what follows
        from `position` on cannot have them."""
        self.writer.remove(taken)
        taken.end(position, until, why)
        self.positions.store_end(taken, until=until, reason=why[0])
        self._progress.set()

    # ----------------------------------------------------------------------------------------------

    def _end_at_rest(self, taken: PreservedCopy) -> None:
        """End a copy that is given up, if it has come to rest. If that would no longer get on the log, the
        next task ends it."""
        if taken.giving_up is None or taken.copy.needs_translation or self.judge.is_over:
            return
        if not taken.is_at_rest or self.look_when_still(taken) > 0:
            return
        if not taken.appends.is_end_read:
            # The next owner recognises by the leader epoch of the end whether the copy loses records.
            self.doubt(taken)
            return
        position = taken.copy.committed
        # A range that is left out and not filled yet lies behind the end of the copy.
        self.end(taken, position, min(position, taken.appends.acknowledged), taken.giving_up)

    def _changed(self, taken: PreservedCopy) -> None:
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
                self._end_at_rest(taken)
            elif not taken.required and taken.hole_cost.is_too_high(now):
                words = f"filling the holes of {taken.copy.partition} takes more than half of the time"
                self.give_up(taken, (PreservedReason.HOLES_TOO_FREQUENT, words))
        self._bound(taken)
        self._progress.set()

    def _failed(self, taken: PreservedCopy, error: KafkaError) -> float | None:
        """Only a failure that retrying does not heal sets a partition aside: its records would be refused
        again. After another one it gives its room to partitions with leaders that answer, if they need it."""
        copy = taken.copy
        if error.reason == PreservedReason.FILL_REFUSED and not taken.required:
            self.give_up(taken, (error.reason, str(error)))
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
        asyncio.get_running_loop().call_later(max(wait_seconds, 0.0) + LOOK_SECONDS, fill)

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
