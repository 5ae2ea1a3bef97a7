"""The row of one partition: position, ends, copy, and its task's newest report. Only events and `transitions`
change it.

Estimates when a partition will have caught up. Pure: takes `now`.

The estimate uses the speed at which the lag shrinks, which includes what producers write meanwhile. Only the
last seconds count, because an older pace says nothing about now.

The rate of a counter: a slow one for planning, a quick one for display. Pure: takes `now`.

Since when a partition that should make progress has made none. Pure: takes `now`.
"""

import math
from collections import Counter
from dataclasses import dataclass, field, replace

from twinlog.batches.header import BatchHeader
from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog_source.log.facts import CheckedEnd, CopyFact, EpochStart
from twinlog_source.partitions.latency import LagTime
from twinlog_source.partitions.orders import ForeignWrite, PartitionReport, PartitionState

WINDOW_SECONDS = 30.0
LEAST_SECONDS = 5.0
"""Batches come in bursts, so a pace over less time is not reliable."""
_APART_SECONDS = 3.0
"""A flow may have a hundred thousand of these, so only few points are kept, and in lists: an empty deque
takes 0.7 KB."""


@dataclass(slots=True, kw_only=True)
class CatchUp:
    """Invariant: nothing counts from before the partition last caught up, or was moved."""

    sightings: list[tuple[float, int, int]] = field(default_factory=list)
    """Time, position and end, rising."""

    def observe(self, position: int, end_offset: int, now: float) -> None:
        """Take the present position and end."""
        seen = self.sightings
        if position >= end_offset:
            seen.clear()
            return
        if seen and (position < seen[-1][1] or end_offset < seen[-1][2]):
            seen.clear()
        if not seen or now - seen[-1][0] >= _APART_SECONDS:
            seen.append((now, position, end_offset))
        while seen[0][0] < now - WINDOW_SECONDS:
            seen.pop(0)

    def seconds(self, lag_records: int, now: float) -> float | None:
        """Seconds until `lag_records` are copied; None while the lag does not shrink, or was observed for too
        short a time."""
        pace = self.shrinks_per_second(now)
        return lag_records / pace if pace is not None and pace > 0 else None

    def shrinks_per_second(self, now: float) -> float | None:
        """Records by which the lag becomes smaller each second, negative while it grows; None when it was
        observed for too short a time."""
        seen = [each for each in list(self.sightings) if each[0] >= now - WINDOW_SECONDS]
        if len(seen) < 2 or seen[-1][0] - seen[0][0] < LEAST_SECONDS:
            return None
        (first, *before), (last, *after) = seen[0], seen[-1]
        return ((before[1] - before[0]) - (after[1] - after[0])) / (last - first)


PLANNING_SECONDS = 10.0
"""A plan must not follow every burst."""
SHOWN_SECONDS = 5.0
"""The displayed rate covers the last seconds only."""


@dataclass(slots=True, kw_only=True)
class Rate:
    """The rate of a counter that starts at 0 with every task."""

    per_second: float | None = None
    """Exponentially weighted, as of the last value; None = not measured yet."""
    _count: float = 0.0
    _at: float | None = None
    _recent: list[tuple[float, float]] = field(default_factory=list)
    """The time of each value, and its increase."""

    def begin(self, now: float) -> None:
        """A new task counts from 0."""
        self._count, self._at = 0.0, now

    def observe(self, count: float, now: float) -> float:
        """Take the counter's value, and return its increase."""
        if self._at is None or count < self._count:
            self.begin(now)
        assert self._at is not None
        added, elapsed = count - self._count, now - self._at
        self._count, self._at = count, now
        if elapsed > 0:
            weight = 1 - math.exp(-elapsed / PLANNING_SECONDS)
            before = added / elapsed if self.per_second is None else self.per_second
            self.per_second = before + weight * (added / elapsed - before)
        if added:
            self._forget(now)
            self._recent.append((now, added))
        return added

    def current(self, now: float) -> float:
        """The planning rate now, if nothing was counted since the last value."""
        if not self.per_second or self._at is None:
            return 0.0
        return self.per_second * math.exp(-max(0.0, now - self._at - 1) / PLANNING_SECONDS)

    def shown(self, now: float) -> float:
        """The mean of the last seconds. May be called from any thread."""
        return sum(added for at, added in list(self._recent) if at > now - SHOWN_SECONDS) / SHOWN_SECONDS

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - SHOWN_SECONDS:
            self._recent.pop(0)


@dataclass(slots=True, kw_only=True)
class StallWatch:
    """Invariant: a partition that makes progress, has nothing to copy, or is paused is never stalled."""

    _position: int | None = None
    _since: float | None = None

    def observe(self, position: int | None, *, must_move: bool, now: float) -> None:
        """Take the present position. `must_move`: it has records to copy, and nobody paused it."""
        if not must_move:
            self._since = None
        elif self._since is None or position != self._position:
            self._since = now
        self._position = position

    def since(self, stalled_seconds: float, *, now: float) -> float | None:
        """The time of its last progress, if that is at least `stalled_seconds` ago; otherwise None."""
        if self._since is None or now - self._since < stalled_seconds:
            return None
        return self._since


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Why a partition is in no plan."""

    reason: str
    message: str
    retry_at: float
    """Monotonic seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """A target's log that ends before records that were written to it."""

    end_offset: int
    """The end of the log, as a target offset."""
    first_lost: int
    """A source offset at or before the first lost record, if the source has no holes there."""
    position: int
    """The next source offset to copy when the loss was found; the lost records lie before it."""


@dataclass(slots=True, kw_only=True)
class PartitionRow:
    partition: TopicPartition
    target_topic: str = ""
    is_heartbeats: bool = False
    """Its records are heartbeats: they are copied, but do not count as backlog."""
    position: int | None = None
    """The next source offset to copy, committed on the target; None = not known yet."""
    initial: int = 0
    """Where the partition begins while the log has no position of it."""
    is_told: bool = False
    """An operator has said so."""
    stored: bool = False
    """The log has `position` or a later one."""
    blocker: Blocker | None = None
    copy: CopyFact | None = None
    """Whether the copy keeps the source's offsets; None = not decided yet: it must not be copied."""
    knows_former_tasks: bool = False
    """`cut_off_at` includes all tasks that ever had the partition."""
    cut_off_at: float | None = None
    """When the last task lost the partition that may still have writes to a preserved copy in flight, in
    monotonic seconds; None = there is none."""
    skip_cut_off: tuple[tuple[int, int], float | None] | None = None
    """The range that the copy leaves out, and the same time for tasks that did not know about it."""
    slot: int | None = None
    """The task that has the partition, or had it last."""
    leader_epochs: tuple[EpochStart, ...] = ()
    """The leader epochs of the copied records, as in `LeaderEpochsFact`."""
    target_end: int | None = None
    """The target offset after the last record that is known to be written; None = unknown."""
    target_end_at: int = 0
    """The source position at that time."""
    target_end_is_old: bool = False
    """The position may have gone back since: records that were copied again lie behind `target_end`."""
    nothing_until: int | None = None
    """When it stood at this source position, the flow had written nothing to a copy that it translates; None
    = it had, or that is not known."""
    target_checked: CheckedEnd | None = None
    """None = the target's leader was not asked yet."""
    held_from: int | None = None
    """A source offset at or before the first record of the copy, if the source has no holes there; None =
    unknown."""
    losses: tuple[Shortened, ...] = ()
    """Losses of the target that are not in the ledger yet, in order and without overlap."""
    end: int | None = None
    """The last known end of what may be copied of the source's log, from the driver or the task."""
    end_at: float = 0.0
    """When that was, in monotonic seconds."""
    watched_since: float = 0.0
    """When the end was read first, in monotonic seconds."""
    came_later: bool = False
    """The flow had other partitions already: what the log holds when first seen was written just now."""
    grew_at: float | None = None
    """When the log was last seen to grow, in monotonic seconds; None = not since the start."""
    end_problem: KafkaError | None = None
    """Why the driver could not read the end at its last attempt."""
    open_transaction: str = ""
    """The transaction of the source behind which it has stood still for long; empty = none."""
    waits_for_transaction: bool = False
    """It stands still behind one, not yet for long."""
    replaced_at: int | None = None
    """The target is another topic than the known one, and has the records from this source offset on; None =
    not seen."""
    report: PartitionReport | None = None
    """The latest report of a task, also of a former one."""
    reported_at: float = 0.0
    """When that was, in monotonic seconds."""
    reported_at_ms: int = 0
    waited_for: tuple[str, str, float] | None = None
    """Why a task backed off that tries again, and has no reason for a moment; its message, and until when it
    held. None once something was copied."""
    foreign_write: ForeignWrite | None = None
    """The last foreign records that a task found in the copy."""
    foreign_records: int = 0
    """Since the start of the process, or since somebody acknowledged them."""
    foreign_writes: tuple[ForeignWrite, ...] = ()
    """Since the start of the process, also those that somebody acknowledged."""
    foreign_acknowledged_by: str = ""
    """Who acknowledged others' records last; empty = nobody, or an earlier release did not store it."""
    foreign_acknowledged_at_ms: int = 0
    records: Rate = field(default_factory=Rate)
    bytes: Rate = field(default_factory=Rate)
    lag_time: LagTime = field(default_factory=LagTime)
    catch_up: CatchUp = field(default_factory=CatchUp)
    stall: StallWatch = field(default_factory=StallWatch)
    left_out: Counter[str] = field(default_factory=Counter)
    """Records that tasks of this process left out, by the reason (`LEFT_OUT`)."""
    counted_lanes: dict[str, int] = field(default_factory=dict)
    """Records by lane, from the present task's last report."""
    told_shortened: tuple[int | None, int | None, int] | None = None
    """A loss of the target that the present task has reported and that was handled: where the target
    continued, and with which record of the source."""
    disproved_end: int | None = None
    """An end of the target that the task still reports, although it was disproved, until it writes again."""

    @property
    def shortened(self) -> Shortened | None:
        """The first loss that is not in the ledger yet."""
        return self.losses[0] if self.losses else None

    @property
    def retry_at(self) -> float | None:
        """When its task tries it again, in monotonic seconds; None = it is not set aside."""
        if self.report is None or self.report.retry_in_seconds is None:
            return None
        return self.reported_at + self.report.retry_in_seconds

    @property
    def is_preserved(self) -> bool:
        return self.copy is not None and self.copy.preserved

    @property
    def target_end_is_exact(self) -> bool:
        """Nothing that consumers see lies behind `target_end`: each commit of an exactly-once flow moves the
        position."""
        is_known = self.target_end is not None and not self.target_end_is_old
        return is_known and self.target_end_at == self.position

    @property
    def wrote_nothing(self) -> bool:
        """In an exactly-once flow: a task whose report was lost may have written behind what is known."""
        return not self.is_preserved and self.nothing_until == self.position is not None

    @property
    def needs_translation(self) -> bool:
        """The task reports that a preserved copy cannot keep the source's offsets from its position on."""
        return self.is_preserved and self.report is not None and self.report.needs_translation

    @property
    def sync_pace(self) -> SyncPace | None:
        """The pace of its offset syncs, as its last task told it; None = not known. Which record was the
        newest is not known then: the offset before the position may be a marker's."""
        report = self.report
        told = self.target_end and report is not None and report.position == self.position
        return report.sync_pace if told and report is not None else None

    @property
    def last_known_lag(self) -> int | None:
        """Offsets between the position and the last known end, however old; None = never known."""
        if self.end is None or self.position is None:
            return None
        return max(0, self.end - self.position)

    @property
    def task_end(self) -> int | None:
        """The last end of the source's log that its task saw; None = none."""
        return None if self.report is None else self.report.source_end

    @property
    def task_state(self) -> PartitionState:
        """The state in the last report. What users see is `standing`."""
        if self.blocker is not None:
            return PartitionState.FAULTED
        return PartitionState.WAITING if self.report is None else self.report.state

    @property
    def task_reason(self) -> str:
        if self.blocker is not None:
            return self.blocker.reason
        return "" if self.report is None else self.report.reason


# Foreign records of a copy as stretches: consecutive batches of one producer form one. Pure.

MOST_STRETCHES = 100
"""The limit for one check, and for one copy. Two foreign producers that alternate create many stretches;
further ones are added to the last."""


@dataclass(slots=True)
class ForeignStretches:
    """Takes foreign batches between two target offsets, in order."""

    begin: int
    end: int
    """The first offset behind."""
    found: tuple[ForeignWrite, ...] = ()

    def add(self, header: BatchHeader) -> None:
        first, behind = max(self.begin, header.base_offset), min(self.end, header.next_offset)
        if first >= behind:
            return
        write = ForeignWrite(
            from_offset=first,
            to_offset=behind,
            records=behind - first if header.record_count < 0 else min(header.record_count, behind - first),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            written_at_ms=header.max_timestamp_ms,
        )
        is_one = bool(self.found) and _same_writer(self.found[-1], write)
        self.found = with_write(self.found, write, is_one=is_one)


def with_write(
    found: tuple[ForeignWrite, ...], write: ForeignWrite, *, is_one: bool = False
) -> tuple[ForeignWrite, ...]:
    """Add a stretch behind the others; to the last one if both are one, or there are too many."""
    if not (is_one or len(found) >= MOST_STRETCHES):
        return (*found, write)
    last = found[-1]
    both = replace(
        last,
        from_offset=min(last.from_offset, write.from_offset),
        to_offset=max(last.to_offset, write.to_offset),
        records=last.records + write.records,
        written_at_ms=max(last.written_at_ms, write.written_at_ms),
    )
    return (*found[:-1], both)


def _same_writer(one: ForeignWrite, other: ForeignWrite) -> bool:
    return (one.producer_id, one.producer_epoch) == (other.producer_id, other.producer_epoch)
