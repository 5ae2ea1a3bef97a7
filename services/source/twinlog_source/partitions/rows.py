"""The row of one partition: position, ends, copy, and its task's newest report. Only `transitions` changes
it."""

from collections import Counter
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog_source.log.facts import CheckedEnd, CopyFact, EpochStart
from twinlog_source.partitions.catch_up import CatchUp
from twinlog_source.partitions.lag_time import LagTime
from twinlog_source.partitions.rates import Rate
from twinlog_source.partitions.reports import ForeignWrite, PartitionReport
from twinlog_source.partitions.stall_watch import StallWatch
from twinlog_source.partitions.states import PartitionState


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
    came_later: bool = False
    """The flow had other partitions already: what the log holds when first seen was written just now."""
    grew_at: float | None = None
    """When the log was last seen to grow, in monotonic seconds; None = not since the start."""
    end_problem: KafkaError | None = None
    """Why the driver could not read the end at its last attempt."""
    open_transaction: str = ""
    """The transaction of the source behind which it has stood still for long; empty = none."""
    replaced_at: int | None = None
    """The target is another topic than the known one, and has the records from this source offset on; None =
    not seen."""
    report: PartitionReport | None = None
    """The latest report of a task, also of a former one."""
    reported_at: float = 0.0
    """When that was, in monotonic seconds."""
    reported_at_ms: int = 0
    foreign_write: ForeignWrite | None = None
    """The last foreign records that a task found in the copy."""
    foreign_records: int = 0
    """Since the start of the process, or since somebody acknowledged them."""
    foreign_writes: tuple[ForeignWrite, ...] = ()
    """Since the start of the process, also those that somebody acknowledged."""
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
    def needs_translation(self) -> bool:
        """The task reports that a preserved copy cannot keep the source's offsets from its position on."""
        return self.is_preserved and self.report is not None and self.report.needs_translation

    @property
    def sync_pace(self) -> SyncPace | None:
        """The pace of its offset syncs; None unless it continues exactly where its last task ended in
        order."""
        report = self.report
        if report is None or report.position != self.position or self.target_end is None:
            return None
        return report.sync_pace

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
