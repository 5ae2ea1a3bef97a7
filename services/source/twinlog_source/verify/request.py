"""What to verify, and the limits for it."""

from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.model import Flow, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """Where a range begins or ends: a time, or an offset of the source."""

    offset: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    flow: Flow
    topics: frozenset[str] = frozenset()
    """Source topics; empty = all of the flow."""
    partitions: frozenset[int] = frozenset()
    """Empty = all."""
    begin: Instant | None = None
    end: Instant | None = None
    ends: Mapping[TopicPartition, int] | None = None
    """The source offset at which each partition ends; partitions that are not named are not compared. Takes
    precedence over `end`."""
    read_committed: bool | None = None
    """How the copier reads the source; None = as configured."""
    max_bytes_per_second: int = 0
    """The limit for each side; 0 = no limit."""
    wait_seconds: float = 30.0
    """How long to wait until the copy has reached the ends from the start."""
    complete: bool = False
    """The copier has stopped for good: records that the copy lacks at its end are missing, not lag."""
    patience_seconds: float = 60.0
    """How long a cluster may be down during the verification."""
    parallel: int = 8
    """Partitions that are compared at the same time."""
    show: bool = False
    """Fetch the records of differences."""
    state_directory: str | None = None
    """Where proven ranges are kept, so that a verification can continue after it was killed."""

    @property
    def is_whole(self) -> bool:
        """Whether everything from the beginning of the logs to their ends is compared."""
        return self.begin is None and self.end is None and self.ends is None
