"""How far partitions may be copied for now: in a delayed flow, and in a finite copy.

Pure: takes `now_ms`. Records are copied in the order of the log, so a record that is too young also holds
back the records behind it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twinlog.batches.codec import MAX_OPEN_BYTES
from twinlog.batches.header import HIGHEST_OFFSET, UNKNOWN_COUNT, iter_following
from twinlog.batches.transformed import head_before
from twinlog.errors import WireFormatError
from twinlog.model import TopicPartition
from twinlog_source.reasons import PartitionReason

_SHORTEST_LOOK_SHARE = 0.01
"""The share of the delay by which due records may come late. Whatever is not due is fetched again each
time."""
_LONGEST_LOOK_SECONDS = 60.0
"""How soon a record with a future timestamp is checked again."""
FOR_EVER = float("inf")


class Cut(NamedTuple):
    """What may be copied of a fetch."""

    records: bytes | memoryview
    wait_seconds: float = 0.0
    """For how long nothing more may be copied; FOR_EVER: this copy ends there."""
    reason: str = ""
    ends_at: int | None = None
    """The next source offset after `records` where this copy ends: a batch behind it shows that nothing else
    lies before it, so the end may be in a hole."""
    fault: WireFormatError | None = None
    """Why the batch at the fetch offset, in which this copy ends, cannot be cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    delay_seconds: float = 0.0
    """Only batches whose youngest record is older than this are copied."""
    until: Mapping[TopicPartition, int] | None = None
    """The source offsets at which this copy ends; partitions that are not named are not copied. None: it does
    not end."""
    max_open_bytes: int = field(default=MAX_OPEN_BYTES)

    @property
    def is_open(self) -> bool:
        return not self.delay_seconds and self.until is None

    def is_reached(self, partition: TopicPartition, offset: int) -> bool:
        """Whether the copy of the partition ends at or before this offset."""
        return self.until is not None and offset >= self.until.get(partition, 0)

    def cut(
        self,
        partition: TopicPartition,
        records: bytes | memoryview,
        *,
        offset: int,
        now_ms: int,
        log_end_offset: int = HIGHEST_OFFSET,
    ) -> Cut:
        """Remove what is not due from a fetch at `offset`. `log_end_offset` is the high watermark of the same
        answer. Raises WireFormatError when the fetch cannot be divided into batches, or the offset of one is
        impossible: such a batch does not show where the copy ends."""
        if self.is_open:
            return Cut(records)
        end = FOR_EVER if self.until is None else self.until.get(partition, 0)
        if offset >= end:
            return Cut(b"", FOR_EVER, PartitionReason.UNTIL_REACHED)
        size = 0
        for batch in iter_following(records, offset, log_end_offset):
            header = batch.header
            # The offset of an old message set is that of its last record.
            if header.base_offset >= end and header.record_count != UNKNOWN_COUNT:
                # Before its age is checked: nothing of it is copied.
                return Cut(records[:size], FOR_EVER, PartitionReason.UNTIL_REACHED, int(end))
            if not header.is_control:
                wait_seconds = header.max_timestamp_ms / 1000 + self.delay_seconds - now_ms / 1000
                if self.delay_seconds and wait_seconds > 0:
                    shortest_seconds = max(1.0, self.delay_seconds * _SHORTEST_LOOK_SHARE)
                    look_seconds = min(max(wait_seconds, shortest_seconds), _LONGEST_LOOK_SECONDS)
                    return Cut(records[:size], look_seconds, PartitionReason.DELAYED)
            if header.next_offset > end:
                try:
                    head = head_before(batch, int(end), max_open_bytes=self.max_open_bytes)
                except WireFormatError as error:
                    # What lies before it comes first; the next fetch begins with it.
                    return Cut(records[:size], fault=None if size else error)
                # An old message set has no head where all of its records lie behind the end.
                return Cut(bytes(records[:size]) + head, FOR_EVER, PartitionReason.UNTIL_REACHED, int(end))
            size += len(batch.data)
            if header.next_offset == end:
                return Cut(records[:size], FOR_EVER, PartitionReason.UNTIL_REACHED)
        return Cut(records)
