"""Which batches of a preserved copy are Twinlog's own and at their place. Pure.

The producer id shows that a batch is the flow's, but not that it is at its source's offset. If the topic is
recreated while a batch is in flight, the batch is written to the beginning of the new topic, whose leader
accepts any sequence number of an unknown producer. The sequence numbers show it:

    the writer's first batch in a log   its sequence number is its offset
    every other batch                   it continues the previous one, or is its own offset again
                                        (if the leader had forgotten the writer)

Between them are only fillers.
"""

from dataclasses import dataclass, field

from twinlog.batches.header import BatchHeader
from twinlog_source.partitions import orders
from twinlog_source.partitions.rows import ForeignStretches
from twinlog_source.preserved.append_steps import SEQUENCE_MASK, Hole

FILLER_BYTES_PER_RECORD = 12
"""The size limit of a record without key, value and headers."""
FILLER_HEAD_BYTES = 128
NO_END = 1 << 62


@dataclass(frozen=True, slots=True)
class FirstForeign:
    """What the first foreign record did to a copy."""

    producer_id: int
    """Its producer; -1 = a producer that is not idempotent. The writer's own id if one of our batches is at
    the wrong offset."""
    offset: int
    own_behind: int
    """Offsets of our records behind it; they are consecutive on the source."""
    is_filler: bool = False
    """It has no record for consumers: the end of a transaction, or empty records of one."""
    writes: tuple[orders.ForeignWrite, ...] = field(default=(), compare=False)
    """The foreign records from there on, for reports. Aborted ones are included, because they took
    offsets."""
    end: int = field(default=0, compare=False)
    """The end of the last batch that was read."""


def is_filler(header: BatchHeader) -> bool:
    """Whether a batch has no record for consumers, like the filler's batches: the end of a transaction, or
    empty records of one. The producer id does not tell, because it changes, and earlier owners had others."""
    if header.is_control:
        return True
    # If the target stamps times, the largest one is the leader's; the first one is still what we wrote.
    has_no_time = header.base_timestamp_ms == 0 and (
        header.max_timestamp_ms == 0 or header.is_log_append_time
    )
    return (
        header.is_transactional
        and has_no_time
        and header.size_bytes <= FILLER_HEAD_BYTES + FILLER_BYTES_PER_RECORD * header.record_count
    )


def is_marker_at(header: BatchHeader, offset: int, filler_id: int) -> bool:
    """Whether a batch is the end of a transaction of this filler at this offset."""
    return header.is_control and header.producer_id == filler_id and header.base_offset == offset


def sequence_behind(header: BatchHeader) -> int:
    """The sequence number that follows a batch."""
    return (header.base_sequence + header.last_offset_delta + 1) & SEQUENCE_MASK


def begins(header: BatchHeader) -> bool:
    """Whether the writer's sequence numbers begin with this batch."""
    return header.base_sequence == header.base_offset & SEQUENCE_MASK


@dataclass(slots=True)
class OwnBatches:
    """Takes the batches of a log one after the other."""

    writer_id: int
    """The producer id of the flow's copies."""
    next_sequence: int | None = None
    """The sequence number that continues the previous batch; None = unknown."""
    is_first: bool = False
    """The log has no earlier batch of the writer."""

    def owns(self, header: BatchHeader, *, follows: int | None = None) -> bool:
        """Whether the next batch is the writer's, and at its place as far as is known. `follows`: or whether
        it is the writer's first one and was sent for this source offset, wherever it is."""
        if header.producer_id != self.writer_id:
            return is_filler(header)
        expected, was_first = self.next_sequence, self.is_first
        self.next_sequence, self.is_first = sequence_behind(header), False
        if begins(header) or (expected is None and follows == header.base_sequence):
            return True
        return not was_first if expected is None else header.base_sequence == expected

    def lose_track(self) -> None:
        """Batches before the next one were deleted."""
        self.next_sequence, self.is_first = None, False


class FilledRanges:
    """Collects the filled ranges of a log from an offset on; takes its filler batches one after the other."""

    def __init__(self, first_offset: int) -> None:
        self._first_offset = first_offset
        self._ranges: list[Hole] = []

    def add(self, header: BatchHeader) -> None:
        first = max(header.base_offset, self._first_offset)
        if self._ranges and self._ranges[-1].end == first:
            first = self._ranges.pop().first
        self._ranges.append(Hole(first, header.next_offset - first))

    @property
    def found(self) -> tuple[Hole, ...]:
        """The ranges in order, adjacent ones joined."""
        return tuple(self._ranges)


@dataclass(slots=True)
class ForeignLook:
    """Analyses a copy from its first foreign offset on; takes the batches one after the other, beginning with
    the one that contains it."""

    foreign_at: int
    own: OwnBatches
    _first: BatchHeader | None = None
    _own_behind: int = 0
    _is_broken: bool = False
    """The following batches cannot be counted."""
    _stretches: ForeignStretches = field(init=False)
    _end: int = 0

    def __post_init__(self) -> None:
        self._stretches = ForeignStretches(self.foreign_at, NO_END)

    def see(self, header: BatchHeader) -> None:
        """Take the next batch. One that looks like a filler's is foreign here, or a repeated one of the
        filler. After it only the writer's batches count: the writer writes nothing behind a hole that was not
        filled at its place, so no record follows another filler. One that only begins at its offset, and does
        not continue the previous one, is not counted: nobody knows where the records between them are."""
        follows = (self.foreign_at + self._own_behind) & SEQUENCE_MASK
        continues = header.base_sequence in (self.own.next_sequence, follows)
        is_own = self.own.owns(header, follows=follows) and (continues or not begins(header))
        is_writers = header.producer_id == self.own.writer_id
        self._end = header.next_offset
        if not is_writers and not is_filler(header):
            self._stretches.add(header)
        if self._first is None:
            if not is_own or not is_writers:
                self._first = header
                # One of our batches at the wrong offset: the batches behind it do not follow it on the
                # source.
                self._is_broken = is_writers
            return
        if self._is_broken or not is_writers:
            return
        if is_own:
            self._own_behind += header.next_offset - max(header.base_offset, self.foreign_at)
        else:
            self._is_broken = True

    @property
    def found(self) -> FirstForeign:
        """The result of the batches so far."""
        if self._first is None:
            return FirstForeign(-1, self.foreign_at, 0)
        offset = max(self._first.base_offset, self.foreign_at)
        return FirstForeign(
            self._first.producer_id,
            offset,
            self._own_behind,
            is_filler(self._first),
            self._stretches.found,
            self._end,
        )
