"""How a hole is filled, and how many empty records a batch may have on its target. Pure.

Whether filling the holes of one partition costs too much.

Each hole stops the partition until it is filled, for several round trips. A topic with many small
transactions on a distant target would spend its time with that, and lag more and more.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from twinlog.policy.expected_offsets import MOST_MARKERS

FILLER_RECORDS = (1_000_000, 100_000, 10_000)
"""Batches of these sizes are built once and kept. The largest takes 817 KB with zstd, and a second or two to
build."""
HEAD_BYTES = 256
PACKED_BYTES_PER_RECORD = 1.0
"""The size limit of a sent batch from some hundred records on; smaller batches take `HEAD_BYTES` in
addition."""
OPEN_BYTES_PER_RECORD = 10.0
"""The same for a codec that the leader chooses, or without compression (9 bytes)."""


@dataclass(frozen=True, slots=True)
class FillLimit:
    """The limits of one target partition."""

    max_message_bytes: int
    keeps_codec: bool = True
    """The leader stores batches as they are sent (compression.type is producer or zstd)."""

    @property
    def most_records(self) -> int:
        """At least one."""
        each = PACKED_BYTES_PER_RECORD if self.keeps_codec else OPEN_BYTES_PER_RECORD
        return max(1, int((self.max_message_bytes - HEAD_BYTES) / each))


def next_batch(count: int, most: int) -> int:
    """The number of records in the next batch of a hole that still needs `count`."""
    wanted = min(count, most)
    return next((size for size in FILLER_RECORDS if size <= wanted), wanted)


def batches_of(count: int, most: int) -> Iterator[int]:
    """How many records each batch of a hole of so many holds.

    >>> list(batches_of(2_120_007, 1_000_000))
    [1000000, 1000000, 100000, 10000, 10000, 7]
    """
    while count:
        size = next_batch(count, most)
        yield size
        count -= size


def markers_of(count: int, most_markers: int = MOST_MARKERS) -> int:
    """How many ends of transactions a hole of so many offsets is filled with; empty records take the rest.

    >>> [markers_of(count) for count in (1, 128, 129)]
    [1, 128, 1]
    """
    return count if count <= most_markers else 1


def is_visible(count: int, most_markers: int = MOST_MARKERS) -> bool:
    """Whether consumers with `read_uncommitted` see empty records where such a hole is filled."""
    return count > most_markers


WINDOW_SECONDS = 60.0
"""Long enough that a broker which pauses for a moment does not decide: the decision is final."""
BUCKET_SECONDS = 5.0
MOST_SHARE = 0.5
MOST_HOLES = 30
"""A distant target, which needs several round trips for each hole, fills more than this in half of the
window."""


@dataclass(slots=True)
class HoleCostBucket:
    """The holes that began within `BUCKET_SECONDS`. Times are monotonic seconds."""

    began: float
    holes: int
    spent_seconds: float


@dataclass(slots=True)
class HoleCost:
    """Times are monotonic seconds."""

    buckets: deque[HoleCostBucket] = field(default_factory=deque)
    """The oldest comes first."""

    def filled(self, began: float, ended: float) -> None:
        """A hole was filled for certain. Of a longer time only `BUCKET_SECONDS` count: a broker that pauses
        says nothing about the source."""
        began = max(began, ended - BUCKET_SECONDS)
        self._bucket(began).spent_seconds += ended - began
        self._bucket(ended).holes += 1

    def is_too_high(self, now: float) -> bool:
        """Whether more than 30 holes were filled within the last minute, and that took more than half of the
        time."""
        while self.buckets and self.buckets[0].began <= now - WINDOW_SECONDS:
            self.buckets.popleft()
        if sum(each.holes for each in self.buckets) <= MOST_HOLES:
            return False
        return sum(each.spent_seconds for each in self.buckets) > MOST_SHARE * WINDOW_SECONDS

    def _bucket(self, at: float) -> HoleCostBucket:
        if not self.buckets or at >= self.buckets[-1].began + BUCKET_SECONDS:
            self.buckets.append(HoleCostBucket(at, 0, 0.0))
        return self.buckets[-1]
