"""How many empty records a batch may hold so that its target takes it. Pure."""

from dataclasses import dataclass

FILLER_RECORDS = (1_000_000, 100_000, 10_000)
"""Batches of these sizes are made once and kept: 817 KB with zstd, and a second or two, for the largest."""
HEAD_BYTES = 256
PACKED_BYTES_PER_RECORD = 1.0
"""At most, as they are sent, from some hundred records on; a smaller batch is below `HEAD_BYTES` and this."""
OPEN_BYTES_PER_RECORD = 10.0
"""At most, in a codec that the leader chooses, or none: 9 bytes without compression."""


@dataclass(frozen=True, slots=True)
class FillLimit:
    """What one target partition takes."""

    max_message_bytes: int
    keeps_codec: bool = True
    """The leader stores batches as they are sent (compression.type producer or zstd)."""

    @property
    def most_records(self) -> int:
        """At least one."""
        each = PACKED_BYTES_PER_RECORD if self.keeps_codec else OPEN_BYTES_PER_RECORD
        return max(1, int((self.max_message_bytes - HEAD_BYTES) / each))


def next_batch(count: int, most: int) -> int:
    """How many records the next batch of a hole holds that still needs `count`."""
    wanted = min(count, most)
    return next((size for size in FILLER_RECORDS if size <= wanted), wanted)
