"""What a task says of its partitions, as values: `driver/stream/worker_messages.py` reads them from
messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.batches import Lane
from twinlog.model import TopicPartition
from twinlog.offsets import SyncPace
from twinlog_source.log.facts import EpochStart
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.latency import LatencyHistogram
from twinlog_source.partitions.states import PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRange:
    """What a preserved copy does not hold, newest range; empty where both are equal."""

    first: int
    end: int
    """First offset after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignWrite:
    """What a producer that is not ours wrote into a copy, in one stretch; offsets are the target's."""

    from_offset: int
    to_offset: int
    """First one behind it."""
    records: int
    producer_id: int
    """-1: a producer that is not idempotent."""
    producer_epoch: int
    written_at_ms: int
    """By that producer's clock, or the broker's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleCostAgo:
    """What filling the holes of a partition took within a few seconds."""

    ago_seconds: float
    """When that began."""
    holes: int
    spent_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """One partition in its task. All offsets are the source's, unless said otherwise."""

    partition: TopicPartition
    position: int
    """Next offset to copy; everything below is committed on the target, or was not to be copied."""
    state: PartitionState = PartitionState.UNSPECIFIED
    reason: str = ""
    message: str = ""
    source_end: int | None = None
    """End of what may be copied; None = not known."""
    retry_at_ms: int | None = None
    """When a back-off ends, by the wall clock."""
    failures: int = 0
    """In a row."""
    records: int = 0
    """Since the start of the task, as `bytes`, `raw_records` and `recoded_records`."""
    bytes: int = 0
    raw_records: int = 0
    recoded_records: Mapping[str, int] = field(default_factory=dict)
    """Records of batches that were opened, by the reason."""
    lane: Lane | None = None
    """The lane of the last batch; None = there was none."""
    replication_latency_ns: int | None = None
    """Source timestamp to acknowledgement of the last batch, in nanoseconds."""
    latency: LatencyHistogram | None = None
    """The same of all records since the last report; None = there were none."""
    record_age: LatencyHistogram | None = None
    """Age of records when they were read, since the last report."""
    target_end: int | None = None
    """Target offset after the last record that was written; None = not known."""
    target_shortened_to: int | None = None
    """Where a target log continued that had lost records; None = that was not seen."""
    target_shortened_at: int | None = None
    """Source offset of the record that was written there."""
    target_shortened_times: int = 0
    """How often the task has seen it."""
    leader_epochs: tuple[EpochStart, ...] = ()
    sync_pace: SyncPace | None = None
    """In last words only."""
    skipped: SkippedRange | None = None
    """The range that a preserved copy skipped, once it is on the log."""
    leader_epoch: int | None = None
    """The leader epoch of the target's log in which a preserved copy was checked; None = not known."""
    source_lost_from: int | None = None
    """The source lost what was copied from here on, and somebody has to decide; None = it did not."""
    needs_translation: bool = False
    """The copy cannot keep the source's offsets from `position` on; that is on the log."""
    preserved_until: int = 0
    """With `needs_translation`: below this offset the copy has the source's offsets."""
    repositioned: int = 0
    """Number of the last order to move that is on the log; 0 = none of this task."""
    withdrawn: int = 0
    """Number of the last order that was withdrawn before it was on the log; 0 = none."""
    foreign_writes: tuple[ForeignWrite, ...] = ()
    """Found since the last report."""
    at_rest: bool = False
    """A preserved copy has no write in flight to the target."""
    hole_costs: tuple[HoleCostAgo, ...] = ()
    """What filling the holes of a preserved copy cost recently, at the time of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounters:
    """What a task counts from its start on."""

    transactions_committed: int = 0
    transactions_aborted: int = 0
    offset_syncs: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    """By reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    partitions: tuple[PartitionReport, ...] = ()
    """Those that changed since the last report, and all of them every ten seconds."""
    gaps: tuple[Gap, ...] = ()
    """Found since the last report; the task has put them on the log."""
    counters: TaskCounters = field(default_factory=TaskCounters)
    source_throttled: bool = False
    """A quota of the source holds the task up now."""
    target_throttled: bool = False
