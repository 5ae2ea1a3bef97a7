"""What the driver and a task say to each other; `task/stream/messages.py` converts it from and to
messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from twinlog.batches import Lane, TargetTopicLimits
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog_source.log.facts import EpochStart, WriterFact
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.latency import LatencyHistogram
from twinlog_source.partitions.planner import NO_DEBT, LimitDebt, SlotLimits

# A task's report about its partitions; `task/stream/messages.py` converts it from and to messages.


class PartitionState(StrEnum):
    UNSPECIFIED = "UNSPECIFIED"
    """What a task of another version says has no meaning here."""
    WAITING = "WAITING"
    """No task has it."""
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    BACKOFF = "BACKOFF"
    FAULTED = "FAULTED"
    STALLED = "STALLED"
    """It should move, and has not for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRange:
    """The newest range that a preserved copy does not contain; empty when begin and end are equal."""

    first: int
    end: int
    """The first offset after it."""


@dataclass(frozen=True, slots=True)
class ForeignWrite:
    """One stretch of records that a foreign producer wrote to a copy; offsets are the target's."""

    from_offset: int
    to_offset: int
    """The first offset after it."""
    records: int
    producer_id: int
    """-1: the producer is not idempotent."""
    producer_epoch: int
    written_at_ms: int
    """By that producer's clock, or the broker's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """One partition in its task. All offsets are the source's, unless stated otherwise."""

    partition: TopicPartition
    position: int
    """The next offset to copy; everything below is committed on the target, or is not to be copied."""
    state: PartitionState = PartitionState.UNSPECIFIED
    reason: str = ""
    message: str = ""
    source_end: int | None = None
    """The end of what may be copied; None = unknown."""
    retry_in_seconds: float | None = None
    """How long after the report the back-off ends; None = there is none."""
    failures: int = 0
    """The number of failures in a row."""
    records: int = 0
    """Since the start of the task; so are `bytes`, `raw_records` and `recoded_records`."""
    bytes: int = 0
    raw_records: int = 0
    recoded_records: Mapping[str, int] = field(default_factory=dict)
    """Records of batches that were opened, by reason."""
    echoes: int = 0
    """Records that were left out because they are copies of what the target has already."""
    lane: Lane | None = None
    """The lane of the last batch; None = there was none."""
    replication_latency_ns: int | None = None
    """From source timestamp to acknowledgement of the last batch, in nanoseconds."""
    latency: LatencyHistogram | None = None
    """The same for all records since the last report; None = there were none."""
    record_age: LatencyHistogram | None = None
    """The age of records when they were read, since the last report."""
    target_end: int | None = None
    """The target offset after the last record that was written; None = unknown."""
    target_end_is_old: bool = False
    """More may have been written up to `position`, after `target_end`."""
    wrote_nothing: bool = False
    """Neither it nor a task before has sent anything to the target."""
    target_shortened_to: int | None = None
    """Where a target's log continued after it had lost records; None = no loss was seen."""
    target_shortened_at: int | None = None
    """The source offset of the record that was written there."""
    target_shortened_times: int = 0
    """How often the task has seen such a loss."""
    leader_epochs: tuple[EpochStart, ...] = ()
    sync_pace: SyncPace | None = None
    """In the last message only."""
    skipped: SkippedRange | None = None
    """The range that a preserved copy skipped, once it is on the log."""
    leader_epoch: int | None = None
    """The leader epoch of the target's log in which a preserved copy was checked; None = unknown."""
    source_lost_from: int | None = None
    """The source lost copied records from here on, and an operator has to decide; None = it did not."""
    needs_translation: bool = False
    """The copy cannot keep the source's offsets from `position` on; this is on the log."""
    preserved_until: int = 0
    """With `needs_translation`: below this offset the copy has the source's offsets."""
    foreign_writes: tuple[ForeignWrite, ...] = ()
    """Found since the last report."""
    at_rest: bool = False
    """A preserved copy has no write in flight to the target."""
    is_quiet: bool = False
    """Nothing that this task sent to a preserved copy may still arrive, although it is not at rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounters:
    """Counters of a task since its start."""

    transactions_committed: int = 0
    transactions_aborted: int = 0
    offset_syncs: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    """By reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    partitions: tuple[PartitionReport, ...] = ()
    """The partitions that changed since the last report; all of them every ten seconds."""
    gaps: tuple[Gap, ...] = ()
    """Gaps found since the last report; the task has put them on the log."""
    counters: TaskCounters = field(default_factory=TaskCounters)
    source_throttled: bool = False
    """A quota of the source delays the task now."""
    target_throttled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSetup:
    """What a task needs to open its clients before it gets partitions."""

    clients: Mapping[str, Mapping[str, str]] = field(repr=False)
    """Kafka client properties by role, such as `source_consumer`; values may be secret."""
    settings: Mapping[str, str]
    """How records are copied, by the names of the keys."""
    transactional_ids: tuple[str, ...] = ()
    """Used in turn; empty = at least once."""
    positions_topic: str
    positions_partition_count: int
    connector_name: str
    """The first element of the keys in the positions topic."""
    offset_syncs_topic: str = ""
    """Empty = no offset syncs are written."""
    offset_syncs_on_source: bool = False
    read_committed: bool
    lease_seconds: float
    """A task that does not hear from its driver for this long ends itself."""
    report_seconds: float
    """The time between two reports."""
    source_topics: tuple[str, ...] = ()
    """The topics that the task will copy, as far as known: it finds their leaders before it starts."""
    target_topics: tuple[str, ...] = ()
    """Their copies, in the same order."""
    preserved_writer: WriterFact | None = None
    """The producer of all preserved copies of the flow; None = there are none."""
    filler_transactional_id: str = ""
    """The id with which this task fills offsets of preserved copies."""
    marker_transactional_id: str = ""
    """One id for the flow, never used in a transaction: its identities write markers at leaders."""
    traceparent: str = ""
    """W3C's `traceparent` of the span that prepared the epoch; empty = no tracing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservedTerms:
    """What a task is told about a preserved copy."""

    skip_from: int = 0
    skip_to: int = 0
    """The source offsets between these two are filled, not copied."""
    since: int = 0
    """The source offset of the copy's first record."""
    required: bool = False
    """The configuration requires the source's offsets."""
    former_task_seconds: float | None = None
    """How long ago the last task lost the partition that may still have writes to the copy in flight; None =
    there is none."""
    skip_former_task_seconds: float | None = None
    """The same for tasks that did not know about the filled range."""
    leader_epoch: int | None = None
    """The leader epoch of the target's log in which the copy was checked; None = unknown."""
    common_until: int = 0
    """Below this offset the copy contains records of the source that Twinlog did not write."""
    end_reason: str = ""
    """Why the copy has to end where it is; empty = it continues."""
    end_message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorFailure:
    """A back-off or a fault that outlives the task in which it occurred."""

    state: PartitionState
    reason: str
    message: str
    retry_in_seconds: float | None
    """None = it waits for an operator."""
    failures: int
    """The number of failures in a row."""
    source_lost_from: int | None = None
    """The source lost the copied records from here on; None = it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssignment:
    """One partition, as a task gets it."""

    partition: TopicPartition
    target_topic: str
    target_topic_id: str = ""
    source_topic_id: str = ""
    """No other topic of this name is read; empty = unknown."""
    max_message_bytes: int = TargetTopicLimits().max_message_bytes
    compression_type: str = ""
    """The target topic's codec; empty = the producer's."""
    position: int
    position_stored: bool = False
    """The log has the position; otherwise auto.offset.reset chose it."""
    leader_epochs: tuple[EpochStart, ...] = ()
    target_end: int | None = None
    """The target offset after the last record that was written; None = unknown."""
    target_end_is_exact: bool = False
    """In an exactly-once flow: nothing that consumers see was written after `target_end`."""
    wrote_nothing: bool = False
    """The flow has written nothing to the copy, and its positions shall say so."""
    compacted: bool = False
    """Of the source topic."""
    paused: bool = False
    preserved: PreservedTerms | None = None
    """None: the copy is translated."""
    asks_origins: bool = False
    """Batches of the source may be copies of what the target has already."""
    shared: bool = False
    """Others write to the target topic, and are meant to."""
    sync_pace: SyncPace | None = None
    prior_failure: PriorFailure | None = None
    """None also if another limit, or another topic, may remove the cause of the failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Copy these partitions from here on."""

    assignments: tuple[TaskAssignment, ...] = ()
    limits: SlotLimits = field(default_factory=SlotLimits)
    debt: LimitDebt = NO_DEBT
    """Its share of what the tasks before owed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPaused:
    partitions: tuple[TopicPartition, ...]
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    reason: str


@dataclass(frozen=True, slots=True)
class Reopened:
    """The question whether the task may continue: it has initialised its ids again."""


@dataclass(frozen=True, slots=True)
class NewProducer:
    """A producer id that the task has got, and that has to be stored before it is used."""

    producer_id: int
    transactional_id: str


class Writers(NamedTuple):
    partition: TopicPartition
    producer_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WhoWrote:
    """The question which batches of these producers of the source are copies."""

    writers: tuple[Writers, ...]


@dataclass(frozen=True, slots=True)
class WantRoutes:
    """The question where records of a partition go that take these routes."""

    partition: TopicPartition
    names: tuple[str, ...]


class Route(NamedTuple):
    """Where records go that take a route."""

    name: str
    """The name on the source of which `topic` is the copy."""
    topic: str
    """On the target."""
    partition_count: int
    """Of the topic; 0 = it does not exist yet."""


class StoredPosition(NamedTuple):
    partition: TopicPartition
    position: int


class Echo(NamedTuple):
    """Where batches of one producer are copies that the flow leaves out: source offsets."""

    partition: TopicPartition
    producer_id: int
    from_offset: int
    to_offset: int


Echoes = Mapping[tuple[TopicPartition, int], tuple[int, int]]
"""By source partition and producer id, as in `CopyPolicy.echoes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The driver's answer to a question of a task."""

    number: int = 0
    """The question's."""
    reason: str = ""
    """Why the driver refuses, or what failed; empty = it agrees, or it is done."""
    message: str = ""
    positions: tuple[StoredPosition, ...] = ()
    """What the log says of the task's partitions, read after its ids were initialised again."""
    echoes: tuple[Echo, ...] = ()
    routes: tuple[Route, ...] = ()


TaskCommand = TaskSetup | Start | End | SetPaused | SlotLimits | Answer
