"""The request and the result of a fetch, for each partition."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.batches.visibility import AbortedTransaction
from twinlog.errors import KafkaError
from twinlog.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """The result for one partition; `records` may be empty."""

    partition: TopicPartition
    fetch_offset: int
    """The requested position."""
    records: memoryview
    """Batches, the last one possibly incomplete; for `twinlog.batches.prepare`."""
    aborted: tuple[AbortedTransaction, ...]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    """-1 from brokers before 1.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFailure:
    """Why the fetch of one partition failed. Its position has not changed; the caller decides about a
    retry."""

    partition: TopicPartition
    fetch_offset: int
    error: KafkaError
    """Transient (leader moving, broker away) or fatal (OFFSET_OUT_OF_RANGE, TOPIC_UNKNOWN,
    TOPIC_UNAUTHORIZED)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSizes:
    """Lower limits than the options, for a while. The first batch of an answer is still complete."""

    max_bytes: int | None = None
    """The limit of one request; None = as in the options."""
    partition_bytes: Mapping[str, int] = field(default_factory=dict)
    """The limit of each partition, by topic."""
