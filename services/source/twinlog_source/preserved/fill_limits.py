"""How a hole is filled, and how many empty records a batch may have on its target. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from twinlog.policy.offsets_rule import MOST_AT_LEADER, MOST_MARKERS

__all__ = [
    "FILLER_RECORDS",
    "MOST_AT_LEADER",
    "MOST_MARKERS",
    "FillLimit",
    "batches_of",
    "is_visible",
    "markers_of",
    "next_batch",
]

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
