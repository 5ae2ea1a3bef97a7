"""A task's report about its partitions; `task/stream/messages.py` converts it from and to messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.batches import Lane
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog_source.log.facts import EpochStart
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.latency import LatencyHistogram


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
