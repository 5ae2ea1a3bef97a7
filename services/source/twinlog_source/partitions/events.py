"""What happens to the partitions of a flow, as values. Finders and checkers make them; `PartitionTable.apply`
alone changes what is known (dask's rule), and answers with effects that its caller carries out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.errors import KafkaError, TwinlogError
from twinlog.model import TopicPartition
from twinlog.verify.standing import ProofStanding
from twinlog_source.log.facts import CopyFact, EpochStart
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.latency import LatencyHistogram
from twinlog_source.partitions.reports import TaskReport
from twinlog_source.partitions.rows import PartitionRow, Shortened

# ---------------------------------------------------------------------------------------- of the whole flow


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChosen:
    """The flow has exactly these partitions, with their target topics. What is known of others goes, but for
    `owned`, those of the running epoch: one that comes back meanwhile continues from what its task reports.
    """

    targets: Mapping[TopicPartition, str]
    owned: Collection[TopicPartition] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStopped:
    """The flow as a whole does not copy."""

    problem: TwinlogError | None
    """None: it copies again, or nothing keeps it from that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """The standing proof has verified the copies."""

    proofs: Mapping[TopicPartition, ProofStanding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The task of a slot has spoken. Effects: `Copied` for each partition, `GapFound`."""

    slot: int
    report: TaskReport
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsSeen:
    """The driver asked the leaders of the source at `asked_at` (monotonic seconds) where the logs end."""

    ends: Mapping[TopicPartition, int | KafkaError]
    asked_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MovementChecked:
    """It is time to look which partitions that should move have moved."""

    paused: Collection[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Another process copies the flow, and has committed these positions; those not named have none."""

    positions: Mapping[TopicPartition, int]
    read_at: float
    """Monotonic seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReread:
    """The log was read after fencing: it is the truth about `partitions`."""

    partitions: Collection[TopicPartition]
    positions: Mapping[TopicPartition, int]
    leader_epochs: Mapping[TopicPartition, tuple[EpochStart, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnded:
    """The task that had these partitions ended in order: what it reported is on the log."""

    partitions: Collection[TopicPartition]


# --------------------------------------------------------------------------------------- of one partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A task begins with it; the counters of its reports begin at 0."""

    partition: TopicPartition
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDated:
    """The record at or before `offset` was written at `written_at`, monotonic seconds."""

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
    """It begins here; `stored`: the driver has put that on the log."""

    partition: TopicPartition
    position: int
    stored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginningRefused:
    """It may not begin where `Begun` said: it is as before."""

    partition: TopicPartition
    before: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """It is in no plan until `retry_at`, monotonic seconds."""

    partition: TopicPartition
    reason: str
    message: str
    retry_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveBegun:
    """An operator moves it, and no task has it: it is in no plan until `Moved` or `MoveUndone`."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Its new position is on the log."""

    partition: TopicPartition
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveUndone:
    """What was in force before the move is on the log behind it."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The driver put back the position that was in force before a task moved it."""

    partition: TopicPartition
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecreated:
    """Its source is another log now: nothing is known of its position and its end."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecreated:
    """Its copy is another log now: nothing is known of its end."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChanged:
    """It is handed out with another target topic: the end of the copy is not known."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRemembered:
    """How far the copy reached is on the log, from an earlier owner."""

    partition: TopicPartition
    end_offset: int
    position: int
    """The source position then."""
    held_from: int | None
    is_newest: bool = False
    """No position was stored since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEndSeen:
    """The target log ends, or ended, here: what was written behind it is lost."""

    partition: TopicPartition
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStartSeen:
    """The target log begins here."""

    partition: TopicPartition
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRecorded:
    """What the copy lost is in the ledger."""

    partition: TopicPartition
    loss: Shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReplaced:
    """The target is another topic than the one we know of, and holds the records from `position` on."""

    partition: TopicPartition
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChanged:
    """What is known of its kind of copy; None = it has to be decided (again)."""

    partition: TopicPartition
    copy: CopyFact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDecided:
    """Its kind of copy is decided: it may be handed out."""

    partition: TopicPartition
    copy: CopyFact
    has_no_writer: bool = False
    """This process has given the partition to no task since it took the flow over, so no write to it is in
    flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReread:
    """Its kind of copy as the log has it; what its task said of that is settled."""

    partition: TopicPartition
    copy: CopyFact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTranslated:
    """A preserved copy has ended, and continues at `position` as a translated one; that is on the log."""

    partition: TopicPartition
    copy: CopyFact | None
    """None where the configuration demands the source's offsets: it may not continue."""
    position: int


PositionEvent = (
    PositionRead
    | Begun
    | BeginningRefused
    | SetAside
    | MoveBegun
    | Moved
    | MoveUndone
    | Restored
    | SourceRecreated
)
TargetEvent = (
    TargetRecreated
    | TargetChanged
    | TargetRemembered
    | TargetEndSeen
    | TargetStartSeen
    | LossRecorded
    | TargetReplaced
)
CopyEvent = CopyChanged | CopyDecided | CopyReread | CopyTranslated
PartitionEvent = Assigned | RecordDated | PositionEvent | TargetEvent | CopyEvent
RowsEvent = TopicsChosen | EndsSeen | MovementChecked | Followed | LogReread | EpochEnded
Event = FlowStopped | Proven | Reported | RowsEvent | PartitionEvent

# ------------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What one report added for one partition: to be counted."""

    row: PartitionRow
    records: int
    bytes: int
    latency: LatencyHistogram | None
    """Source timestamp to acknowledgement."""
    record_age: LatencyHistogram | None
    """When they were read from the source."""
    lanes: Mapping[str, int]
    """Records by how they were copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapFound:
    """A task found a gap and put it on the log: to be entered into the ledger."""

    gap: Gap


Effect = Copied | GapFound
