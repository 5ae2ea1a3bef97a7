"""What is known of one partition: position, ends, copy, and its task's newest report. Only `transitions`
changes it.
"""

from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog_source.log.facts import CopyFact, EpochStart
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
    is_heartbeats: bool = False
    """Its records are Twinlog's own: they are copied, and no backlog of anybody."""
    position: int | None = None
    """Next source offset to copy, committed on the target; None = not known yet."""
    initial: int = 0
    """Where it begins while the log holds no position of it."""
    stored: bool = False
    """The log holds `position` (or a later one)."""
    blocker: Blocker | None = None
    blocker_before_move: Blocker | None = None
    """What stood against it before an operator's move that is not decided yet."""
    copy: CopyFact | None = None
    """Whether the copy keeps its source's offsets; None = not decided yet: it must not be copied."""
    knows_former_tasks: bool = False
    """`cut_off_at` counts all tasks that ever had the partition."""
    cut_off_at: float | None = None
    """When the last task lost the partition that may still have writes to a preserved copy on their way, in
    monotonic seconds; None = there is none."""
    skip_cut_off: tuple[int, float | None] | None = None
    """Where the range begins that the copy leaves out, and the same of the tasks that were not told of it."""
    slot: int | None = None
    """Which task has it, or had it last."""
    leader_epochs: tuple[EpochStart, ...] = ()
    """Leader epochs of what is copied, as `LeaderEpochsFact`."""
    target_end: int | None = None
    """Target offset after the last record that is known to be written; None = unknown."""
    target_end_at: int = 0
    """The source position then."""
    target_end_is_old: bool = False
    """The position may have gone back since then: what was copied once more lies behind `target_end`."""
    held_from: int | None = None
    """Source offset at or before the first record that the copy holds, when the source has no holes there;
    None = unknown."""
    losses: tuple[Shortened, ...] = ()
    """What the target lost, not yet in the ledger: one after the other, none of which meet."""
    end: int | None = None
    """Where what may be copied of the source's log ends, as seen last: by the driver, or by the task."""
    end_at: float = 0.0
    """When that was, in monotonic seconds."""
    grew_at: float | None = None
    """When the log was seen to have grown last, in monotonic seconds; None = not since the start."""
    end_problem: KafkaError | None = None
    """Why the driver could not read it when it looked last."""
    replaced_at: int | None = None
    """The target is another topic than the one we know of, and holds the records from this source offset on;
    None = that was not seen."""
    report: PartitionReport | None = None
    """The newest word of a task, also of one that is gone."""
    reported_at_ms: int = 0
    foreign_write: ForeignWrite | None = None
    """What somebody else wrote into the copy, as a task found it last."""
    foreign_records: int = 0
    """Since the start."""
    records: Rate = field(default_factory=Rate)
    bytes: Rate = field(default_factory=Rate)
    lag_time: LagTime = field(default_factory=LagTime)
    catch_up: CatchUp = field(default_factory=CatchUp)
    stall: StallWatch = field(default_factory=StallWatch)
    counted_lanes: dict[str, int] = field(default_factory=dict)
    """Records by lane, as the present task told them last."""
    told_shortened: tuple[int | None, int | None, int] | None = None
    """What the present task has said of a target that lost records, taken already: where the target
    continued, and with which record of the source."""
    disproved_end: int | None = None
    """What a task keeps believing of the target's end until it writes again."""

    @property
    def shortened(self) -> Shortened | None:
        """The first loss that is not yet in the ledger."""
        return self.losses[0] if self.losses else None

    @property
    def is_preserved(self) -> bool:
        return self.copy is not None and self.copy.preserved

    @property
    def target_end_is_exact(self) -> bool:
        """Nothing of the flow lies behind `target_end` that consumers see: each commit of an exactly-once
        flow moves the position."""
        is_known = self.target_end is not None and not self.target_end_is_old
        return is_known and self.target_end_at == self.position

    @property
    def needs_translation(self) -> bool:
        """Its task says that a preserved copy cannot keep the source's offsets from its position on."""
        return self.is_preserved and self.report is not None and self.report.needs_translation

    @property
    def sync_pace(self) -> SyncPace | None:
        """Where its offset syncs stand; None unless it continues exactly where its last task ended in
        order."""
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
        if self.blocker is not None:
            return PartitionState.FAULTED
        return PartitionState.WAITING if self.report is None else self.report.state

    @property
    def task_reason(self) -> str:
        if self.blocker is not None:
            return self.blocker.reason
        return "" if self.report is None else self.report.reason
