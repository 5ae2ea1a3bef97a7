"""What is to be verified, and how much it may take."""

from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.model import Flow, TopicPartition

NO_SPARK = "none"


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
    """Offset of the source before which each partition ends; one that is not named is not compared. Wins over
    `end`."""
    read_committed: bool | None = None
    """How the copier reads the source; None = as the file says."""
    max_bytes_per_second: int = 0
    """The limit for each side; 0 = no limit."""
    wait_seconds: float = 30.0
    """How long the copy may take to arrive at the ends that were taken at the start."""
    complete: bool = False
    """The copier has ended: what the copy lacks at its end is missing, and no lag."""
    patience_seconds: float = 60.0
    """How long a cluster may be away in the middle."""
    parallel: int = 8
    """Partitions that are compared at the same time."""
    show: bool = False
    """Fetch the records of differences."""
    state_directory: str | None = None
    """Where proven ranges are kept, so that a verification that was killed continues."""
    spark_master: str | None = None
    """NO_SPARK = in this process; None = in this process unless it is large."""
    part_offsets: int = 2_000_000
    """On Spark, larger partitions are cut into parts of about so many offsets."""
    parquet_directory: str | None = None
    """On Spark, where the rows of the parts are kept."""

    @property
    def is_whole(self) -> bool:
        """Everything from the beginning of the logs to their ends is compared."""
        return self.begin is None and self.end is None and self.ends is None
