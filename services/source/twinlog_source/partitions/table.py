"""What the driver knows of every partition of a flow: position, lag, rates, state. Fed by reports, read by
RPCs.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from twinlog.errors import KafkaError, TwinlogError
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog.verify.standing import ProofStanding
from twinlog_source.log.facts import CopyFact, EpochStart
from twinlog_source.partitions.lag_time import LagTime
from twinlog_source.partitions.latency import LatencyHistogram
from twinlog_source.partitions.planner import BACKLOG_RECORDS, BEHIND_RECORDS, BEHIND_SECONDS, Load
from twinlog_source.partitions.rates import Rate
from twinlog_source.partitions.reports import PartitionReport, TaskReport
from twinlog_source.partitions.stall_watch import StallWatch
from twinlog_source.partitions.states import PartitionState

_MOVING = frozenset((PartitionState.RUNNING, PartitionState.BACKOFF))


@dataclass(slots=True, kw_only=True)
class Obstacle:
    """Why a partition is in no plan."""

    reason: str
    message: str
    retry_at: float
    """Monotonic seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """A target log that ends before what was written there."""

    end_offset: int
    """Where it ended, in target offsets."""
    first_lost: int
    """A source offset at or before the first lost record, when the source has no holes there."""
    position: int
    """Next source offset to copy when that was found: what was lost lies before it."""


@dataclass(slots=True, kw_only=True)
class PartitionRow:
    partition: TopicPartition
    target_topic: str = ""
    position: int | None = None
    """Next source offset to copy, committed on the target; None = not known yet."""
    initial: int = 0
    """Where it begins while the log holds no position of it."""
    stored: bool = False
    """The log holds `position` (or a later one)."""
    obstacle: Obstacle | None = None
    copy: CopyFact | None = None
    """Whether the copy keeps its source's offsets; None = not decided yet: it must not be copied."""
    slot: int | None = None
    """Which task has it, or had it last."""
    epochs: tuple[EpochStart, ...] = ()
    """Leader epochs of what is copied, as `LeaderEpochsFact`."""
    target_end: int | None = None
    """Target offset after the last record that is known to be written; None = unknown."""
    target_end_at: int = 0
    """The source position then."""
    held_from: int | None = None
    """Source offset at or before the first record that the copy holds, when the source has no holes there;
    None = unknown."""
    shortened: Shortened | None = None
    """What the target lost, not yet in the ledger."""
    end: int | None = None
    """Where what may be copied of the source's log ends, as seen last: by the driver, or by the task."""
    end_at: float = 0.0
    """When that was, in monotonic seconds."""
    end_problem: KafkaError | None = None
    """Why the driver could not read it when it looked last."""
    replaced_at: int | None = None
    """The target is another topic than the one we know of, and holds the records from this source offset on;
    None = that was not seen."""
    report: PartitionReport | None = None
    """The newest word of a task, also of one that is gone."""
    reported_at_ms: int = 0
    records: Rate = field(default_factory=Rate)
    bytes: Rate = field(default_factory=Rate)
    lag_time: LagTime = field(default_factory=LagTime)
    stall: StallWatch = field(default_factory=StallWatch)
    _lanes: dict[str, int] = field(default_factory=dict)
    _shortened_to: int | None = None
    """What the present task has said of it, taken already."""
    _disproved_end: int | None = None
    """What a task goes on believing until it writes again."""

    def begin(self, now: float) -> None:
        """A new task counts from 0."""
        self.records.begin(now)
        self.bytes.begin(now)
        self._lanes.clear()
        self._shortened_to = None
        self.forget_task_words()

    def begin_at(self, position: int) -> None:
        """It begins here, without a stored position."""
        self.initial = self.position = position
        self.stored, self.obstacle = False, None

    def forget_task_words(self) -> None:
        """What the last task said of the kind of copy is settled."""
        if self.report is not None:
            self.report = replace(self.report, needs_translation=False)

    @property
    def is_preserved(self) -> bool:
        return self.copy is not None and self.copy.preserved

    @property
    def needs_translation(self) -> bool:
        """Its task says that a preserved copy cannot keep the source's offsets from its position on."""
        return self.is_preserved and self.report is not None and self.report.needs_translation

    def forget_target(self) -> None:
        """The target is another log now: nothing is known of its end."""
        self.target_end, self.target_end_at, self.shortened, self.replaced_at = None, 0, None, None
        self.held_from = None

    def note_target_start(self, start_offset: int) -> None:
        """The target log that ends at `target_end` begins here."""
        if self.target_end is None:
            return
        # Not more records than offsets: the others are markers of transactions.
        self.held_from = max(0, self.target_end_at - (self.target_end - start_offset))

    def note_target_end(self, end_offset: int, *, next_written: int | None = None) -> None:
        """The target log ends, or ended, here.

        `next_written`: source offset of the record that was written there next; None = none yet.
        """
        if self.target_end is None or end_offset >= self.target_end or self.position is None:
            return
        # Not more records than offsets are gone: the others are markers of transactions.
        first_lost = max(0, self.target_end_at - (self.target_end - end_offset))
        self.shortened = Shortened(
            end_offset=end_offset,
            first_lost=first_lost,
            position=self.position if next_written is None else max(first_lost, next_written),
        )
        self._disproved_end = self.target_end
        self.target_end, self.target_end_at = end_offset, first_lost

    def note_end(self, end_offset: int, seen_at: float) -> None:
        """The driver asked the leader at `seen_at`: the log ends here, whatever was heard before."""
        self.end_problem = None
        if end_offset < (self.end or 0) and seen_at < self.end_at:
            return  # a task has seen more since the leader was asked
        self.end, self.end_at = end_offset, max(seen_at, self.end_at)
        self._observe_lag()

    def follow(self, position: int | None) -> None:
        """Another process copies the flow, and has committed this position; None = none is on the log."""
        self.position, self.stored = position, position is not None
        self._observe_lag()

    def note_written(self, offset: int, at: float) -> None:
        """The record at or before `offset` was written at `at`, monotonic seconds."""
        self.lag_time.note_written(offset, at)

    def forget_source(self) -> None:
        """The source is another log now: nothing is known of its end."""
        self.position, self.stored, self.report, self.end, self.end_problem = None, False, None, None, None
        self.lag_time = LagTime()

    def _observe_lag(self) -> None:
        if self.end is not None and self.position is not None:
            self.lag_time.observe(self.position, self.end, self.end_at)

    def take(self, report: PartitionReport, *, now: float, now_ms: int) -> None:
        """The newest word of the task that owns it."""
        shortened_to = report.target_shortened_to
        if shortened_to is not None and shortened_to != self._shortened_to:
            self._shortened_to = shortened_to
            self.note_target_end(shortened_to, next_written=report.target_shortened_at)
        if report.target_end is None or report.target_end != self._disproved_end:
            self.target_end, self.target_end_at = report.target_end, report.position
        # A task repeats the end of its last fetch, however old: only one that rose was just seen.
        end, before = report.source_end, self.task_end
        if end is not None and end != before and end >= (self.end or 0):
            self.end, self.end_at = end, now
        self.report, self.reported_at_ms, self.position = report, now_ms, report.position
        self._observe_lag()
        self.epochs = report.epochs
        if report.skipped is not None and self.copy is not None and self.copy.preserved:
            self.copy = replace(self.copy, skip_from=report.skipped.first, skip_to=report.skipped.end)

    def added_by_lane(self, report: PartitionReport) -> dict[str, int]:
        """What a task's counters by lane grew since its last report."""
        counts = {**report.recoded_records, "UNOPENED": report.raw_records}
        added = {lane: count - self._lanes.get(lane, 0) for lane, count in counts.items()}
        self._lanes = counts
        return {lane: records for lane, records in added.items() if records > 0}

    @property
    def sync_pace(self) -> SyncPace | None:
        """Where its offset syncs stand; None unless it goes on exactly where its last task ended in order."""
        report = self.report
        if report is None or report.position != self.position or self.target_end is None:
            return None
        return report.sync_pace

    @property
    def last_known_lag(self) -> int | None:
        """Offsets between the position and the end, however long ago they were seen; None = never."""
        if self.end is None or self.position is None:
            return None
        return max(0, self.end - self.position)

    @property
    def task_end(self) -> int | None:
        """The end that the last task saw of the log it copied; None = none."""
        return None if self.report is None else self.report.source_end

    @property
    def task_state(self) -> PartitionState:
        """What the last task said; that is not what is told of it (`standing`)."""
        if self.obstacle is not None:
            return PartitionState.FAULTED
        return PartitionState.WAITING if self.report is None else self.report.state

    @property
    def task_reason(self) -> str:
        if self.obstacle is not None:
            return self.obstacle.reason
        return "" if self.report is None else self.report.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one report added for one partition."""

    row: PartitionRow
    records: int
    bytes: int
    latency: LatencyHistogram | None
    """Source timestamp to acknowledgement."""
    record_age: LatencyHistogram | None
    """When they were read from the source."""
    lanes: Mapping[str, int]
    """Records by how they were copied."""


@dataclass(slots=True, kw_only=True)
class PartitionTable:
    """All partitions of one flow. Touched on the driver's event loop only."""

    rows: dict[TopicPartition, PartitionRow] = field(default_factory=dict)
    records: int = 0
    bytes: int = 0
    problem: TwinlogError | None = None
    """Why the flow as a whole does not copy; None while it does."""
    proofs: Mapping[TopicPartition, ProofStanding] = field(default_factory=dict)
    """What the standing proof has found of partitions."""
    _leaving: dict[TopicPartition, PartitionRow] = field(default_factory=dict)
    """No longer to be copied, but still in the running epoch: one that comes back meanwhile goes on from what
    is reported of it.
    """
    heard_at: dict[int, float] = field(default_factory=dict)
    """When each slot reported last, in monotonic seconds."""
    source_throttled_at: dict[int, float] = field(default_factory=dict)
    """When each slot said last that a quota of the source holds it up, in monotonic seconds."""
    target_throttled_at: dict[int, float] = field(default_factory=dict)
    followed_at: float | None = None
    """When the positions were read that another process moves; None = they are this process's own."""
    last_copied_at_ms: int = 0
    """When records were acknowledged last; 0 = not since the start."""
    last_copied_record_ms: int = 0
    """Timestamp of the newest of them."""

    def keep(
        self, partitions: Mapping[TopicPartition, str], *, owned: Collection[TopicPartition] = ()
    ) -> None:
        """Make the table hold exactly these partitions, with their target topics; known ones keep what is
        known. `owned`: those of the running epoch."""
        known = {one: row for one, row in self._leaving.items() if one in owned} | self.rows
        self._leaving = {one: known[one] for one in owned if one in known and one not in partitions}
        self.rows = {one: known.get(one) or PartitionRow(partition=one) for one in partitions}
        for partition, target_topic in partitions.items():
            self.rows[partition].target_topic = target_topic

    def known_positions(self) -> dict[TopicPartition, int]:
        """The positions that are known."""
        return {p: row.position for p, row in self.rows.items() if row.position is not None}

    def plannable(self) -> frozenset[TopicPartition]:
        """Partitions whose position and kind of copy are known and that nothing keeps from being copied."""
        return frozenset(
            partition
            for partition, row in self.rows.items()
            if row.position is not None and row.copy is not None and row.obstacle is None
        )

    def rates(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, float | None]:
        """Measured bytes per second of each, None where nothing was measured yet."""
        return {partition: self.rows[partition].bytes.per_second for partition in partitions}

    def load(self, partitions: Collection[TopicPartition], *, now: float) -> Load:
        """What these partitions ask of their slots; those that have left count for nothing."""
        rows = [self.rows[partition] for partition in partitions if partition in self.rows]
        # What is paused or at fault needs no slot, however much lies before it.
        moving = [row for row in rows if row.task_state in _MOVING]
        return Load(
            bytes_per_second=sum(row.bytes.current(now) for row in rows),
            has_backlog=any((row.last_known_lag or 0) > BACKLOG_RECORDS for row in moving),
            is_behind=any(
                row.task_state == PartitionState.RUNNING
                and (row.last_known_lag or 0) > BEHIND_RECORDS
                and (row.lag_time.seconds(now) or 0) > BEHIND_SECONDS
                for row in moving
            ),
        )

    def begin(self, partition: TopicPartition, position: int) -> None:
        """A partition without a stored position begins here."""
        self.rows[partition].begin_at(position)

    def set_from_log(
        self, positions: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
    ) -> None:
        """The log was read after fencing: it is the truth about these partitions."""
        for partition in partitions:
            row = self.rows.get(partition)
            if row is None:
                continue
            if partition in positions:
                row.position, row.stored = positions[partition], True
            elif row.position is not None:
                row.position, row.stored = row.initial, False

    def observe(self, slot: int, reports: TaskReport, *, now: float, now_ms: int) -> list[Progress]:
        """Take a task's reports and return what they added."""
        progress = []
        self.heard_at[slot] = now
        if reports.source_throttled:
            self.source_throttled_at[slot] = now
        if reports.target_throttled:
            self.target_throttled_at[slot] = now
        for report in reports.partitions:
            row = self.rows.get(report.partition) or self._leaving.get(report.partition)
            if row is None:
                continue
            row.slot = slot
            row.take(report, now=now, now_ms=now_ms)
            records = int(row.records.observe(report.records, now))
            added_bytes = int(row.bytes.observe(report.bytes, now))
            self.records += records
            self.bytes += added_bytes
            if records:
                self._note_copied(row, report, now=now, now_ms=now_ms)
            progress.append(
                Progress(
                    row=row,
                    records=records,
                    bytes=added_bytes,
                    latency=report.latency,
                    record_age=report.record_age,
                    lanes=row.added_by_lane(report),
                )
            )
        return progress

    def _note_copied(self, row: PartitionRow, report: PartitionReport, *, now: float, now_ms: int) -> None:
        self.last_copied_at_ms = now_ms
        if report.replication_latency_ns is not None:
            latency_ms = report.replication_latency_ns // 1_000_000
            self.last_copied_record_ms = max(self.last_copied_record_ms, now_ms - latency_ms)
            row.note_written(report.position, now - latency_ms / 1000)
