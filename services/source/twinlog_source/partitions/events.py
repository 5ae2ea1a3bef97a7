"""Everything that happens to the partitions of a flow, as immutable events. Finders and checkers create them.
Only `PartitionTable.apply` changes the table; it returns effects that its caller carries out (as in dask's
state machine). An event of one partition knows how it changes the row.

Invariant A: a position goes back only by `LogReread`, `Moved`, `Begun`, or when its log is
replaced.

Invariant B: unknown is None; an event never turns it into 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from twinlog.errors import KafkaError, TwinlogError
from twinlog.model import TopicPartition
from twinlog.verify.standing import ProofStanding
from twinlog_source.log.facts import CheckedEnd, CopyFact, EpochStart
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.latency import LagTime, LatencyHistogram
from twinlog_source.partitions.orders import ForeignWrite, PartitionState, TaskReport
from twinlog_source.partitions.rows import Blocker, PartitionRow, Shortened
from twinlog_source.partitions.transitions import (
    add_loss,
    cut_off,
    forget_target,
    forget_words,
    note_skipped,
    see_target_end,
)

# ---------------------------------------------------------------------------------------- of the whole flow


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChosen:
    """The flow has exactly these partitions, with their target topics. Other rows are removed, except those
    of the running epoch (`owned`): if such a partition returns meanwhile, it continues from its task's
    report."""

    targets: Mapping[TopicPartition, str]
    owned: Collection[TopicPartition] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStopped:
    """The flow as a whole does not copy."""

    problem: TwinlogError | None
    """None: it copies again, or nothing prevents that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """Continuous verification has verified the copies."""

    proofs: Mapping[TopicPartition, ProofStanding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The task of a slot has reported. Effects: `Copied` for each partition, `GapFound`."""

    slot: int
    report: TaskReport
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsSeen:
    """The driver asked the source's leaders for the ends of the logs at `asked_at` (monotonic seconds)."""

    ends: Mapping[TopicPartition, int | KafkaError]
    asked_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransactionsSeen:
    """Exactly these partitions of the source stand still behind a transaction."""

    words: Mapping[TopicPartition, str]
    """For long, in these words."""
    waiting: Collection[TopicPartition]
    """For a while, as is usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovementChecked:
    """Check which partitions that should make progress have made it."""

    paused: Collection[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Another process copies the flow, and has committed these positions; partitions that are not named have
    none."""

    positions: Mapping[TopicPartition, int]
    read_at: float
    """Monotonic seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReread:
    """The log was read after fencing, and decides about `partitions`."""

    partitions: Collection[TopicPartition]
    positions: Mapping[TopicPartition, int]
    leader_epochs: Mapping[TopicPartition, tuple[EpochStart, ...]]
    wrote_nothing: Collection[TopicPartition] = ()
    """Whose positions say that the flow has written nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnded:
    """The task of these partitions ended in order: its report is on the log."""

    partitions: Collection[TopicPartition]


# --------------------------------------------------------------------------------------- of one partition


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEvent(ABC):
    partition: TopicPartition

    @abstractmethod
    def change(self, row: PartitionRow, now: float) -> None:
        """Change the partition's row; `now` is in monotonic seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(RowEvent):
    """A task begins to copy it; the counters of its reports begin at 0."""

    slot: int

    def change(self, row: PartitionRow, now: float) -> None:
        row.slot = self.slot
        if not row.knows_former_tasks:
            cut_off(row, now)
        if row.copy is not None:
            note_skipped(row, row.copy.skip_from, row.copy.skip_to)
        row.records.begin(now)
        row.bytes.begin(now)
        row.counted_lanes = {}
        row.told_shortened = None
        row.disproved_end = None
        forget_words(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDated(RowEvent):
    """The record at or before `offset` was written at `written_at`, in monotonic seconds."""

    offset: int
    written_at: float

    def change(self, row: PartitionRow, now: float) -> None:
        row.lag_time.note_written(self.offset, self.written_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRead(RowEvent):
    """The log holds its position."""

    position: int
    leader_epochs: tuple[EpochStart, ...]
    wrote_nothing: bool = False
    """It says that the flow has written nothing."""

    def change(self, row: PartitionRow, now: float) -> None:
        row.position, row.stored, row.blocker = self.position, True, None
        row.nothing_until = self.position if self.wrote_nothing else None
        row.leader_epochs = self.leader_epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun(RowEvent):
    """The partition begins here; `stored`: the driver has put that on the log."""

    position: int
    stored: bool = False
    wrote_nothing: bool = False
    """The flow is known to have written nothing."""
    is_told: bool = False
    """An operator says so."""

    def change(self, row: PartitionRow, now: float) -> None:
        row.initial = row.position = self.position
        row.is_told = self.is_told
        row.nothing_until = self.position if self.wrote_nothing else None
        row.stored, row.blocker = self.stored, None
        row.leader_epochs = () if self.stored else row.leader_epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginningRefused(RowEvent):
    """The partition may not begin where `Begun` said; its former state is restored."""

    before: int | None

    def change(self, row: PartitionRow, now: float) -> None:
        row.position, row.initial, row.is_told = self.before, self.before or 0, False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside(RowEvent):
    """It is in no plan until `retry_at`, in monotonic seconds."""

    reason: str
    message: str
    retry_at: float

    def change(self, row: PartitionRow, now: float) -> None:
        row.blocker = Blocker(reason=self.reason, message=self.message, retry_at=self.retry_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(RowEvent):
    """An operator has moved it: its new position is on the log."""

    position: int

    def change(self, row: PartitionRow, now: float) -> None:
        row.position, row.stored, row.leader_epochs = self.position, True, ()
        row.target_end_is_old, row.held_from, row.blocker = True, None, None
        if row.report is not None:
            # Whatever held it up, its next task tries at once.
            row.report = replace(
                row.report,
                state=PartitionState.WAITING,
                reason="",
                message="",
                retry_in_seconds=None,
                source_lost_from=None,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecreated(RowEvent):
    """The source is another log now: its position and its end are unknown."""

    def change(self, row: PartitionRow, now: float) -> None:
        row.target_end_is_old, row.held_from = True, None
        row.position, row.stored, row.report, row.end, row.end_problem = None, False, None, None, None
        row.lag_time = LagTime()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKnown(RowEvent):
    """What is known of foreign records in the copy: an earlier owner recorded it, or somebody acknowledged
    them."""

    records: int
    """Those that nobody has acknowledged."""
    writes: tuple[ForeignWrite, ...]
    acknowledged_by: str = ""
    acknowledged_at_ms: int = 0

    def change(self, row: PartitionRow, now: float) -> None:
        row.foreign_write = self.writes[-1] if self.records else None
        row.foreign_records, row.foreign_writes = self.records, self.writes
        row.foreign_acknowledged_by = self.acknowledged_by
        row.foreign_acknowledged_at_ms = self.acknowledged_at_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetForgotten(RowEvent):
    """Another process owned the flow meanwhile: what is known of the copy may be about a former topic."""

    def change(self, row: PartitionRow, now: float) -> None:
        forget_target(row)
        ForeignKnown(partition=self.partition, records=0, writes=()).change(row, now)


class TargetRecreated(TargetForgotten):
    """The copy is another log now: its end is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChanged(RowEvent):
    """It is assigned with another target topic: the end of the copy is unknown."""

    def change(self, row: PartitionRow, now: float) -> None:
        row.target_end = row.target_checked = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRemembered(RowEvent):
    """An earlier owner recorded how far the copy reached."""

    end_offset: int
    position: int
    """The source position at that time."""
    held_from: int | None
    is_newest: bool = False
    """No later position was stored."""
    checked: CheckedEnd | None = None

    def change(self, row: PartitionRow, now: float) -> None:
        row.target_end, row.target_end_at = self.end_offset, self.position
        if self.is_newest and row.held_from is None:  # Since an older end the position may have gone back.
            row.held_from = self.held_from
        row.target_end_is_old, row.target_checked = not self.is_newest, self.checked


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEndSeen(RowEvent):
    """The target's log ends, or ended, here: records that were written behind it are lost."""

    end_offset: int

    def change(self, row: PartitionRow, now: float) -> None:
        see_target_end(row, self.end_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetContinued(RowEvent):
    """With a change of its leader the target's log lost what was written behind `end_offset`, and has grown
    again since, to `log_end`."""

    end_offset: int
    log_end: int

    def change(self, row: PartitionRow, now: float) -> None:
        checked = row.target_checked
        if checked is None or self.end_offset >= checked.end_offset or row.position is None:
            return
        first_lost = max(0, min(checked.position, row.position) - (checked.end_offset - self.end_offset))
        add_loss(row, Shortened(end_offset=self.end_offset, first_lost=first_lost, position=row.position))
        row.target_checked = checked._replace(end_offset=self.end_offset, position=first_lost)
        if row.target_end is not None and self.log_end < row.target_end:
            row.disproved_end = row.target_end
            row.target_end = self.log_end
            row.target_end_at = row.position if self.log_end > self.end_offset else first_lost


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChecked(RowEvent):
    """Its leader was asked, and the target has everything that is known to be written."""

    checked: CheckedEnd

    def change(self, row: PartitionRow, now: float) -> None:
        row.target_checked = self.checked


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStartSeen(RowEvent):
    """The target log begins here."""

    start_offset: int

    def change(self, row: PartitionRow, now: float) -> None:
        if row.copy is not None and row.copy.preserved:
            # What is filled before the copy's beginning is deleted later; the start only grows then.
            row.held_from = max(self.start_offset, row.copy.since, row.held_from or 0)
        elif row.target_end is not None:
            # No more records than offsets; the others are markers of transactions, and others' records. While
            # no position goes back, the copy only loses what it began with.
            held_from = row.target_end_at - (row.target_end - self.start_offset)
            row.held_from = max(row.held_from or 0, held_from)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRecorded(RowEvent):
    """The copy's loss is in the ledger."""

    loss: Shortened
    leader_epoch: int | None = None
    """Of a later leader of the target, which has what was checked; None = not known."""

    def change(self, row: PartitionRow, now: float) -> None:
        row.losses = tuple(each for each in row.losses if each != self.loss)
        if self.leader_epoch is not None and row.target_checked is not None:
            row.target_checked = row.target_checked._replace(leader_epoch=self.leader_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReplaced(RowEvent):
    """The target is another topic than the known one, and has the records from `position` on."""

    position: int

    def change(self, row: PartitionRow, now: float) -> None:
        row.replaced_at = self.position if row.replaced_at is None else row.replaced_at
        row.losses = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChanged(RowEvent):
    """The kind of the copy has changed; None = it has to be decided (again)."""

    copy: CopyFact | None

    def change(self, row: PartitionRow, now: float) -> None:
        row.copy = self.copy
        if self.copy is None:
            row.skip_cut_off = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDecided(RowEvent):
    """The kind of the copy is decided: the partition may be assigned."""

    copy: CopyFact
    has_no_writer: bool = False
    """This process has not assigned the partition since it took the flow over, so no write to it is in
    flight."""

    def change(self, row: PartitionRow, now: float) -> None:
        if row.is_preserved:
            row.nothing_until = None
        row.copy, row.blocker = self.copy, None
        if self.has_no_writer:
            # Also if this process followed the flow and read its log before the take-over.
            row.knows_former_tasks, row.cut_off_at = True, None
        forget_words(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReread(RowEvent):
    """The kind of the copy was read from the log, which replaces its task's report about it."""

    copy: CopyFact | None

    def change(self, row: PartitionRow, now: float) -> None:
        row.copy = self.copy
        forget_words(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTranslated(RowEvent):
    """A preserved copy has ended, and continues at `position` as a translated one; this is on the log."""

    copy: CopyFact | None
    """None if the configuration requires the source's offsets: the copy may not continue."""
    position: int

    def change(self, row: PartitionRow, now: float) -> None:
        row.copy, row.position, row.stored = self.copy, self.position, True
        held_from = row.held_from
        forget_target(row)
        row.held_from = held_from
        forget_words(row)


RowsEvent = (
    TopicsChosen | EndsSeen | OpenTransactionsSeen | MovementChecked | Followed | LogReread | EpochEnded
)
Event = FlowStopped | Proven | Reported | RowsEvent | RowEvent

# ------------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What one report added for one partition; to be counted."""

    row: PartitionRow
    records: int
    bytes: int
    latency: LatencyHistogram | None
    """Time from the source timestamp to the acknowledgement."""
    record_age: LatencyHistogram | None
    """Age of the records when they were read from the source."""
    lanes: Mapping[str, int]
    """Number of records by lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapFound:
    """A task found a gap and wrote it to the log; to be entered into the ledger."""

    gap: Gap


Effect = Copied | GapFound
