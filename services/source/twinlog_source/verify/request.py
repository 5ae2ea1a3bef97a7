"""What to verify, and the limits for it.

The progress of a verification, measured in offsets of the source.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.comparison.model import Bounds, PartitionProof
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


@dataclass(slots=True)
class Progress:
    total_offsets: int = 0
    done_offsets: int = 0
    read_bytes: int = 0
    differences: int = 0


OnProgress = Callable[[Progress], None]


@dataclass(slots=True, kw_only=True)
class ProgressBoard:
    """By part: a partition or a range of one."""

    on_progress: OnProgress
    _sizes: list[int] = field(default_factory=list)
    _done: dict[int, int] = field(default_factory=dict)
    _bytes: dict[int, int] = field(default_factory=dict)
    _differences: int = 0

    def begin(self, parts: Sequence[Bounds]) -> None:
        self._sizes = [each.source_goal - each.source_start for each in parts]
        self._done, self._bytes = {}, {}

    def note(self, number: int, offsets: int, read_bytes: int) -> None:
        """A part has come this far, and has read this much."""
        self._done[number] = min(offsets, self._sizes[number])
        self._bytes[number] = read_bytes
        self._tell()

    def end(self, number: int, proof: PartitionProof) -> None:
        self._done[number], self._bytes[number] = self._sizes[number], proof.bytes
        self._differences += sum(each.count for each in proof.differences)
        self._tell()

    def _tell(self) -> None:
        self.on_progress(
            Progress(
                total_offsets=sum(self._sizes),
                done_offsets=sum(self._done.values()),
                read_bytes=sum(self._bytes.values()),
                differences=self._differences,
            )
        )
