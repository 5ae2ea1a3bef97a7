"""What a fetch is asked for and what it gives, for each partition."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.batches.visibility import AbortedTransaction
from twinlog.errors import KafkaError
from twinlog.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """What one partition's fetch gave; `records` may be empty."""

    partition: TopicPartition
    fetch_offset: int
    """The position that was asked for."""
    records: memoryview
    """Batches, the last one possibly cut: for `twinlog.batches.prepare`."""
    aborted: tuple[AbortedTransaction, ...]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    """-1 from brokers before 1.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFailure:
    """Why one partition's fetch gave nothing. Its position is not touched; whether to try again is the
    caller's."""

    partition: TopicPartition
    fetch_offset: int
    error: KafkaError
    """Transient (leader moving, broker away) or fatal (OFFSET_OUT_OF_RANGE, TOPIC_UNKNOWN,
    TOPIC_UNAUTHORIZED)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSizes:
    """Less than the options allow, for a while. The first batch of an answer comes whole all the same."""

    max_bytes: int | None = None
    """Limit of one request; None = as the options say."""
    partition_bytes: Mapping[str, int] = field(default_factory=dict)
    """Limit of each partition, by topic."""
