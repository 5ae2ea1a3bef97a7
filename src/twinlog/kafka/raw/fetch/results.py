"""The sizes and the failures of a fetch, for each partition; `wire` has its results."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.model import TopicPartition


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
