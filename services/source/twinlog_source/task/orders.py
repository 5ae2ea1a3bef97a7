"""What a driver orders its tasks, as values. `stream/order_messages.py` reads them from messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.batches import TargetTopicLimits
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog_source.log.facts import EpochStart, WriterFact
from twinlog_source.log.gaps import LogBounds
from twinlog_source.partitions.assignments import PriorFailure
from twinlog_source.partitions.reports import HoleCostAgo
from twinlog_source.partitions.shares import SlotLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSetup:
    """What a task needs to open its clients, before it is handed partitions."""

    clients: Mapping[str, Mapping[str, str]] = field(repr=False)
    """Kafka's client properties by role, such as `source_consumer`; values may be secret."""
    settings: Mapping[str, str]
    """How records are copied, by the names of the keys."""
    transactional_ids: tuple[str, ...] = ()
    """Used in turn; empty = at least once."""
    positions_topic: str
    positions_partition_count: int
    connector_name: str
    """First element of the keys in the positions topic."""
    offset_syncs_topic: str = ""
    """Empty = no offset syncs are sent."""
    offset_syncs_on_source: bool = False
    offset_lag_max: int
    read_committed: bool
    lease_seconds: float
    """A task that does not hear its driver for so long ends itself."""
    report_seconds: float
    """Time between two reports."""
    source_topics: tuple[str, ...] = ()
    """Topics that the task will copy from, as far as is known: it finds their leaders before it starts."""
    target_topics: tuple[str, ...] = ()
    """Their copies, in the same order."""
    preserved_writer: WriterFact | None = None
    """The producer of all preserved copies of the flow; None = there are none."""
    filler_transactional_id: str = ""
    """With which this task fills offsets of preserved copies."""
    marker_transactional_id: str = ""
    """Of the flow, and never in a transaction: its identities write markers at leaders."""
    traceparent: str = ""
    """W3C's, of the span in which the epoch was made ready; empty = nobody traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservedTerms:
    """What a task is told of a copy that keeps its source's offsets."""

    skip_from: int = 0
    skip_to: int = 0
    """Source offsets between these two are filled, not copied."""
    since: int = 0
    """Source offset of the copy's first record."""
    required: bool = False
    """The configuration demands the source's offsets."""
    former_task_seconds: float | None = None
    """How long ago the last task lost it that may still have writes to the copy on their way; None = there is
    none."""
    skip_former_task_seconds: float | None = None
    """The same of tasks that were not told of the range that is filled."""
    leader_epoch: int | None = None
    """The leader epoch of the target's log in which the copy was checked; None = not known."""
    common_until: int = 0
    """Below this offset lie records of the source that others wrote to the copy."""
    end_reason: str = ""
    """Why the copy shall end where it is; empty = it shall not."""
    end_message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssignment:
    """One partition, as a task takes it."""

    partition: TopicPartition
    target_topic: str
    target_topic_id: str = ""
    source_topic_id: str = ""
    """No other topic of its name is read; empty = not known."""
    max_message_bytes: int = TargetTopicLimits().max_message_bytes
    compression_type: str = ""
    """The target topic's codec; empty = the producer's."""
    position: int
    position_stored: bool = False
    """The log holds it; else a reset chose it."""
    leader_epochs: tuple[EpochStart, ...] = ()
    target_end: int | None = None
    """Target offset after the last record that was written; None = not known."""
    target_end_is_exact: bool = False
    compacted: bool = False
    """The source topic."""
    paused: bool = False
    preserved: PreservedTerms | None = None
    """None: the copy has offsets of its own."""
    hole_costs: tuple[HoleCostAgo, ...] = ()
    """What filling its holes took lately."""
    sync_pace: SyncPace | None = None
    prior_failure: PriorFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStart:
    """Copy these from here on."""

    assignments: tuple[TaskAssignment, ...] = ()
    limits: SlotLimits = field(default_factory=SlotLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPaused:
    partitions: tuple[TopicPartition, ...]
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reposition:
    partition: TopicPartition
    position: int
    number: int
    """By which the task confirms it."""
    bounds: LogBounds | None = None
    """Start and end of the source's log, as far as they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawReposition:
    partition: TopicPartition
    number: int
