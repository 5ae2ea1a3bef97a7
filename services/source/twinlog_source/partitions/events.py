"""Everything that happens to the partitions of a flow, as immutable events. Finders and checkers create them.
Only `PartitionTable.apply` changes the table; it returns effects that its caller carries out (as in dask's
state machine)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.errors import KafkaError, TwinlogError
from twinlog.model import TopicPartition
from twinlog.verify.standing import ProofStanding
from twinlog_source.log.facts import CheckedEnd, CopyFact, EpochStart
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.latency import LatencyHistogram
from twinlog_source.partitions.reports import ForeignWrite, TaskReport
from twinlog_source.partitions.rows import PartitionRow, Shortened

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
    """Exactly these partitions of the source stand still behind a transaction, in these words."""

    words: Mapping[TopicPartition, str]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnded:
    """The task of these partitions ended in order: its report is on the log."""

    partitions: Collection[TopicPartition]


# --------------------------------------------------------------------------------------- of one partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A task begins to copy it; the counters of its reports begin at 0."""

    partition: TopicPartition
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDated:
    """The record at or before `offset` was written at `written_at`, in monotonic seconds."""

    partition: TopicPartition
    offset: int
    written_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRead:
    """The log holds its position."""

    partition: TopicPartition
    position: int
    leader_epochs: tuple[EpochStart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The partition begins here; `stored`: the driver has put that on the log."""

    partition: TopicPartition
    position: int
    stored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginningRefused:
    """The partition may not begin where `Begun` said; its former state is restored."""

    partition: TopicPartition
    before: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """It is in no plan until `retry_at`, in monotonic seconds."""

    partition: TopicPartition
    reason: str
    message: str
    retry_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """An operator has moved it: its new position is on the log."""

    partition: TopicPartition
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecreated:
    """The source is another log now: its position and its end are unknown."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecreated:
    """The copy is another log now: its end is unknown."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKnown:
    """What is known of foreign records in the copy: an earlier owner recorded it, or somebody acknowledged
    them."""

    partition: TopicPartition
    records: int
    """Those that nobody has acknowledged."""
    writes: tuple[ForeignWrite, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetForgotten:
    """Another process owned the flow meanwhile: what is known of the copy may be about a former topic."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChanged:
    """It is assigned with another target topic: the end of the copy is unknown."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRemembered:
    """An earlier owner recorded how far the copy reached."""

    partition: TopicPartition
    end_offset: int
    position: int
    """The source position at that time."""
    held_from: int | None
    is_newest: bool = False
    """No later position was stored."""
    checked: CheckedEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEndSeen:
    """The target's log ends, or ended, here: records that were written behind it are lost."""

    partition: TopicPartition
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetContinued:
    """With a change of its leader the target's log lost what was written behind `end_offset`, and has grown
    again since, to `log_end`."""

    partition: TopicPartition
    end_offset: int
    log_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChecked:
    """Its leader was asked, and the target has everything that is known to be written."""

    partition: TopicPartition
    checked: CheckedEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStartSeen:
    """The target log begins here."""

    partition: TopicPartition
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRecorded:
    """The copy's loss is in the ledger."""

    partition: TopicPartition
    loss: Shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReplaced:
    """The target is another topic than the known one, and has the records from `position` on."""

    partition: TopicPartition
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChanged:
    """The kind of the copy has changed; None = it has to be decided (again)."""

    partition: TopicPartition
    copy: CopyFact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDecided:
    """The kind of the copy is decided: the partition may be assigned."""

    partition: TopicPartition
    copy: CopyFact
    has_no_writer: bool = False
    """This process has not assigned the partition since it took the flow over, so no write to it is in
    flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReread:
    """The kind of the copy was read from the log, which replaces its task's report about it."""

    partition: TopicPartition
    copy: CopyFact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTranslated:
    """A preserved copy has ended, and continues at `position` as a translated one; this is on the log."""

    partition: TopicPartition
    copy: CopyFact | None
    """None if the configuration requires the source's offsets: the copy may not continue."""
    position: int


PositionEvent = PositionRead | Begun | BeginningRefused | SetAside | Moved | SourceRecreated
TargetEvent = (
    TargetRecreated
    | ForeignKnown
    | TargetForgotten
    | TargetChanged
    | TargetRemembered
    | TargetEndSeen
    | TargetContinued
    | TargetChecked
    | TargetStartSeen
    | LossRecorded
    | TargetReplaced
)
CopyEvent = CopyChanged | CopyDecided | CopyReread | CopyTranslated
PartitionEvent = Assigned | RecordDated | PositionEvent | TargetEvent | CopyEvent
RowsEvent = (
    TopicsChosen | EndsSeen | OpenTransactionsSeen | MovementChecked | Followed | LogReread | EpochEnded
)
Event = FlowStopped | Proven | Reported | RowsEvent | PartitionEvent

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
