"""One partition with a preserved copy: what was read of it, and what of that is on the target. No I/O.

`PartitionCopy` decides what is read and where the partition stands, `AppendLog` what is written. What is
fetched is offered to the log at once, so `fetched`, `sent` and the log's `wanted` are the same offset;
`committed` follows the acknowledgements.

Source offsets between `skip_from` and `skip_to` are not copied (offsets before the beginning of the copy, a
lost range, a range that an operator skipped). If the copy ends among them they are filled. A copy that ends
anywhere else below its position has lost records, and they are copied again.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from twinlog.batches import OutgoingBatch
from twinlog.batches.prepared import LeaderEpoch
from twinlog.errors import KafkaError
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.model import TopicPartition
from twinlog_source.preserved.append_log import AppendLog, Phase
from twinlog_source.preserved.append_steps import Hole, PreservedReason, items_of
from twinlog_source.preserved.fill_limits import HoleCost, is_visible
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import PreparedChunk
from twinlog_source.task.reading.bounds import extended
from twinlog_source.task.reading.fetch_schedule import ReadShares

Why = tuple[str, str]
"""Reason and message."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class PreservedCopy:
    copy: PartitionCopy
    appends: AppendLog
    topic_id: str = ""
    """The id of the target topic that the driver knows; "" = brokers without topic ids."""
    common_until: int = 0
    """Below this offset, records of other producers are copies of the source's."""
    skip_from: int = 0
    skip_to: int = 0
    since: int = 0
    """The source offset of the copy's first record."""
    required: bool = False
    """The configuration requires the source's offsets: high costs are no reason to give them up."""
    may_fill_at: float = 0.0
    """Monotonic seconds: a range that former tasks may have fetched is filled only when none of them can
    write any more (rule 6 of docs/adr/0008)."""
    alone_at: float = 0.0
    """Monotonic seconds: the same for a range that no earlier task knew about."""
    settle: Callable[[PartitionCopy, OutgoingBatch, int], None] = lambda *_: None
    """Count a batch that is on the target."""
    is_stored: Callable[[], bool] = lambda: True
    """Whether the position, and what is left out before it, is on the log."""
    fill_later: Callable[["PreservedCopy"], None] = lambda _: None
    """Call `fill_skipped` soon, and not before `may_fill_at`."""
    giving_up: Why | None = None
    """Why the copy has to end where it comes to rest."""
    shares: ReadShares = field(default_factory=ReadShares)
    """The bytes that all preserved copies of the task hold."""
    is_end_known: bool = False
    preserved_until: int = 0
    """After the copy has ended: below this offset it has the source's offsets."""
    waits_to_fill: bool = False
    """A range has to be filled, and former owners may still write: nothing is read."""
    connection: DataConnection | None = None
    """The connection to its leader, by which its end was read or a batch was last sent. Only on one
    connection does the leader get the batches in flight in order."""
    retry_at: float = 0.0
    """Nothing is written before this time, in monotonic seconds."""
    failures: int = 0
    """The number of failed writes in a row."""
    problem: KafkaError | None = None
    """Why nothing is written; None while there is no problem."""
    problem_since: float = 0.0
    """Since when, in monotonic seconds."""
    lost_at: float = -math.inf
    """Monotonic seconds: when an answer was lost last. Until its request has timed out, the batch may still
    come."""
    filling_since: float = 0.0
    hole_cost: HoleCost = field(default_factory=HoleCost)
    _batches: deque[OutgoingBatch] = field(default_factory=deque)
    """Those that were offered and are not acknowledged yet; and the leader epochs of what was."""
    _epochs: deque[LeaderEpoch] = field(default_factory=deque)
    _chunks: deque[PreparedChunk] = field(default_factory=deque)
    """The acknowledgement of all of a chunk frees its room and reports its fault."""
    _generation: int = 0

    def __post_init__(self) -> None:
        self.copy.keeps_offsets = True
        self.copy.is_full = True  # Until the end of the copy tells where to read.
        self._generation = self.appends.generation

    @property
    def target(self) -> TopicPartition:
        return self.copy.target

    @property
    def skipped(self) -> tuple[int, int]:
        return self.skip_from, self.skip_to

    @property
    def leader_epoch(self) -> int | None:
        """The leader epoch of the target's log in which the copy was checked; None = unknown."""
        return self.appends.leader_epoch

    @property
    def is_idle(self) -> bool:
        """Whether everything offered is on the target, and nothing has to be filled."""
        return self.appends.is_idle and not self.waits_to_fill

    @property
    def is_examined(self) -> bool:
        """Nothing is read: where it ends or what others wrote is being found out, or a former task may still
        write."""
        is_judged = not self.is_end_known or self.appends.phase is Phase.FOREIGN
        return is_judged or self.waits_to_fill or (self.giving_up is not None and self.is_idle)

    @property
    def is_at_rest(self) -> bool:
        """As `is_idle`, and nothing that was refused or is unanswered may still arrive."""
        appends = self.appends
        return self.is_idle and appends.phase is Phase.SURE and not appends.is_proving

    @property
    def is_quiet(self) -> bool:
        """Whether this task has neither filled anything nor lost an answer, and nothing is unanswered: its
        end is being read, compared or judged."""
        has_filled = self.filling_since > 0 or self.appends.phase is Phase.FILLING
        return not has_filled and self.lost_at == -math.inf and not self.appends.in_flight_bytes

    def offer(self, chunk: PreparedChunk, now: float) -> None:
        """What was fetched at the log's `wanted`."""
        prepared, appends = chunk.prepared, self.appends
        self._batches += prepared.batches
        self._epochs += prepared.leader_epochs
        self._chunks.append(chunk)
        self._hold(chunk.held_bytes)
        appends.offer(items_of(prepared, from_offset=appends.wanted), next_offset=prepared.next_offset)
        self.copy.send_to(self.copy.fetched, prepared.leader_epochs)
        self._settle(now)

    def visible_hole(self, chunk: PreparedChunk, most_markers: int) -> Hole | None:
        """The first hole, before or in what was fetched at the log's `wanted`, that consumers of the copy
        would see as empty records; None = there is none, or nothing is filled now."""
        appends = self.appends
        if appends.is_proving:
            return None
        before = appends.last_hole
        for item in items_of(chunk.prepared, from_offset=appends.wanted):
            if isinstance(item, Hole) and is_visible(before + item.count, most_markers):
                return Hole(item.first - before, before + item.count)
            before = 0
        return None

    def changed(self, now: float) -> None:
        """The log got an answer."""
        appends = self.appends
        if appends.phase is Phase.FOREIGN or self.copy.needs_translation:
            return  # The position of a copy that has ended is where its successor begins.
        if not self.is_end_known:
            if appends.phase is not Phase.SURE:
                return
            self.is_end_known = True
            self._continue(now)
        elif appends.generation != self._generation:
            self._continue(now)
        self._settle(now)
        if not appends.is_proving:
            # Also if only a task before has written to it. What is only compared is there.
            self.copy.target_end = (
                min(self.copy.target_end or appends.acknowledged, appends.acknowledged) or None
            )

    def forget_queued(self, now: float) -> None:
        """What was offered and not sent is void."""
        self.appends.forget_queued()
        if self.is_end_known:
            self.changed(now)

    def skip(self, skip_to: int, now: float, *, may_fill_at: float) -> None:
        """Do not copy what lies between here and `skip_to`: it is filled once that is on the log, and not
        before `may_fill_at`. Only while idle."""
        assert self.copy.is_idle
        self.may_fill_at = may_fill_at
        self.skip_from, self.skip_to = self.appends.acknowledged, skip_to
        self._continue(now)

    def fill_skipped(self, now: float) -> None:
        """Fill the rest of the skipped range, when the copy ends there and it is time."""
        wanted = self.appends.wanted
        is_waiting, self.waits_to_fill = self.waits_to_fill, False
        appends = self.appends
        is_written = appends.phase is not Phase.FOREIGN and (self.giving_up is None or appends.is_proving)
        if self._not_copied(wanted) and is_written:
            # No task can have fetched what lies before the beginning of the copy.
            others_may_write = self.skip_from > 0 and now < self.may_fill_at
            # Once it is filled, the end of the copy no longer shows it: the log has to.
            if others_may_write or not self.is_stored():
                self.waits_to_fill = True
                if not is_waiting:
                    self.fill_later(self)
            else:
                appends.offer([Hole(wanted, self.skip_to - wanted)], next_offset=self.skip_to)
                if appends.generation != self._generation and appends.phase is not Phase.FOREIGN:
                    # It was compared with what the copy has, and the rest of it has to be filled.
                    self._continue(now)
        self._note_rest()

    def end(self, position: int, until: int, why: Why) -> None:
        """Write nothing more to the copy with the source's offsets, which it has below `until`."""
        reason, message = why
        self.preserved_until = until
        self._drop_from(0)
        if position != self.copy.committed:
            self.copy.restart_at(position)
        self.copy.give_up_offsets(reason=reason, message=message)
        log.warning(
            "preserved_copy_ended",
            partition=str(self.copy.partition),
            position=position,
            reason=reason,
            message=message,
        )

    def position_of(self, end: int) -> int:
        """The position of a copy that ends there."""
        return self.skip_to if self._not_copied(end) else end

    # ----------------------------------------------------------------------------------------------

    def _not_copied(self, offset: int) -> bool:
        return self.skip_from <= offset < self.skip_to

    def _continue(self, now: float) -> None:
        """What was offered is void from the log's `wanted` on: read or fill from there."""
        appends, copy = self.appends, self.copy
        self._generation = appends.generation
        self._drop_from(appends.wanted)
        self._settle(now)
        position = self.position_of(appends.acknowledged)
        if position < copy.committed or copy.sent <= position != copy.committed:
            # Nothing is lost where a proof begins: the copy is read again for the comparison.
            if position < copy.committed and not appends.is_proving:
                self._note_lost_tail(position)
            copy.restart_at(position)
        copy.send_from(self.position_of(appends.wanted))
        self.fill_skipped(now)

    def _note_lost_tail(self, position: int) -> None:
        counted = self.copy.counters.failures_by_reason
        reason = PreservedReason.TARGET_LOST_TAIL
        counted[reason] = counted.get(reason, 0) + 1
        log.warning(
            "target_lost_records",
            partition=str(self.copy.partition),
            reason=reason,
            from_offset=position,
            to_offset=self.copy.committed,
        )

    def _drop_from(self, offset: int) -> None:
        """What was offered from there on is void, and what goes beyond: an owner before may have packed the
        records into other batches, and written only the first of them."""
        while self._batches and self._batches[-1].end > offset:
            self._batches.pop()
        while self._epochs and self._epochs[-1].offset >= offset:
            self._epochs.pop()
        while self._chunks and self._chunks[-1].prepared.next_offset > offset:
            self._hold(-self._chunks.pop().held_bytes)

    def _settle(self, now: float) -> None:
        """Process acknowledgements: move the position, report the faults behind it."""
        copy, acknowledged = self.copy, self.appends.acknowledged
        while self._batches and self._batches[0].end <= acknowledged:
            batch = self._batches.popleft()
            self.settle(copy, batch, batch.first)
        while self._epochs and self._epochs[0].offset < acknowledged:
            copy.epochs = extended(copy.epochs, (self._epochs.popleft(),))
        if min(copy.sent, acknowledged) > copy.committed:
            copy.commit(min(copy.sent, acknowledged))
        while self._chunks and self._chunks[0].prepared.next_offset <= acknowledged:
            chunk = self._chunks.popleft()
            self._hold(-chunk.held_bytes)
            fault = chunk.prepared.fault
            if fault is not None and chunk.is_current:
                copy.fail(reason=fault.reason, message=fault.message, retriable=False, now=now)
        self._note_rest()

    def _hold(self, more_bytes: int) -> None:
        before_bytes = self.copy.held_bytes
        self.copy.held_bytes = before_bytes + more_bytes
        self.shares.change(before_bytes, self.copy.held_bytes)

    def _note_rest(self) -> None:
        """The partition is at rest only when its copy is: a failure meanwhile is not forgotten."""
        self.copy.rounds = int(not self.is_idle)


def hole_words(partition: TopicPartition, first: int, end: int) -> str:
    """Why a hole that consumers would see ends a copy."""
    return (
        f"the source shows no record of {partition} between offsets {first} and {end}: in a copy with its"
        " offsets, consumers with isolation.level=read_uncommitted would read empty records there"
        " (twinlog.offsets=preserved writes them)"
    )
