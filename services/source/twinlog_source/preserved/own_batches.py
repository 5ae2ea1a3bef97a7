"""Which batches of a preserved copy are its own and lie where they belong. Pure.

A batch is the flow's by its producer id. That alone does not say that it lies at its source's offset: a batch
on its way to a topic that is deleted and created again lands at the beginning of the new one, whose leader
takes any sequence number of a producer that it does not know. The sequence numbers tell:

    the writer's first batch in a log             its sequence number is its offset
    every other one                               it continues the one before, or is its offset once more (the
                                                  leader had forgotten the writer, and the log's end had none)

Between them lie only fillers.
"""

from dataclasses import dataclass, field

from twinlog.batches.header import BatchHeader
from twinlog_source.partitions import reports
from twinlog_source.partitions.foreign_stretches import ForeignStretches
from twinlog_source.preserved.append_log import SEQUENCE_MASK, Hole

FILLER_BYTES_PER_RECORD = 12
"""At most, of a record without key, value and headers."""
FILLER_HEAD_BYTES = 128
NO_END = 1 << 62


@dataclass(frozen=True, slots=True)
class ForeignWrite:
    """What somebody else's record did to a copy."""

    producer_id: int
    """Whose it is; -1 = of a producer that is not idempotent. The writer's own, where a batch of ours lies
    in the wrong place."""
    offset: int
    own_behind: int
    """Offsets of ours that lie behind it: they follow each other on the source."""
    is_filler: bool = False
    """It holds nothing that a consumer sees: the end of a transaction, or empty records of one."""
    writes: tuple[reports.ForeignWrite, ...] = field(default=(), compare=False)
    """Who wrote what, from there on: for those that are told. Also what is aborted, as it took offsets."""
    end: int = field(default=0, compare=False)
    """Behind the last batch that was looked at."""


def is_filler(header: BatchHeader) -> bool:
    """Whether a batch holds nothing that a consumer sees, as the filler's do: the end of a transaction, or
    empty records of one. The filler's producer id says nothing: it changes, and owners before had others."""
    if header.is_control:
        return True
    # Where the target stamps times, the largest one is the leader's; the first one stays what we wrote.
    has_no_time = header.base_timestamp_ms == 0 and (
        header.max_timestamp_ms == 0 or header.is_log_append_time
    )
    return (
        header.is_transactional
        and has_no_time
        and header.size_bytes <= FILLER_HEAD_BYTES + FILLER_BYTES_PER_RECORD * header.record_count
    )


def is_marker_at(header: BatchHeader, offset: int, filler_id: int) -> bool:
    """Whether a batch is the end of a transaction of this filler, at this offset."""
    return header.is_control and header.producer_id == filler_id and header.base_offset == offset


def sequence_behind(header: BatchHeader) -> int:
    """The sequence number that follows a batch."""
    return (header.base_sequence + header.last_offset_delta + 1) & SEQUENCE_MASK


def begins(header: BatchHeader) -> bool:
    """Whether it is where the writer begins to count."""
    return header.base_sequence == header.base_offset & SEQUENCE_MASK


@dataclass(slots=True)
class OwnBatches:
    """Shown one batch of a log after the other."""

    writer_id: int
    """The producer id of the flow's copies."""
    next_sequence: int | None = None
    """What continues the batch before the next one; None = not known."""
    is_first: bool = False
    """The log holds no batch of the writer before."""

    def owns(self, header: BatchHeader) -> bool:
        """Whether nobody else wrote the next batch, and it lies where it belongs as far as is known."""
        if header.producer_id != self.writer_id:
            return is_filler(header)
        expected, was_first = self.next_sequence, self.is_first
        self.next_sequence, self.is_first = sequence_behind(header), False
        if begins(header):
            return True
        return not was_first if expected is None else header.base_sequence == expected

    def lose_track(self) -> None:
        """Batches before the next one are deleted."""
        self.next_sequence, self.is_first = None, False


class FilledRanges:
    """What is filled of a log from an offset on: told one of its fillers' batches after the other."""

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
        """In order; neighbours are one."""
        return tuple(self._ranges)


@dataclass(slots=True)
class ForeignLook:
    """What lies at and behind the first offset of a copy that is known not to be ours: shown one batch after
    the other, from the one that holds it on."""

    foreign_at: int
    own: OwnBatches
    _first: BatchHeader | None = None
    _own_behind: int = 0
    _is_broken: bool = False
    """What follows cannot be counted."""
    _stretches: ForeignStretches = field(init=False)
    _end: int = 0

    def __post_init__(self) -> None:
        self._stretches = ForeignStretches(self.foreign_at, NO_END)

    def see(self, header: BatchHeader) -> None:
        """The next batch. One that only looks like the filler's is somebody else's here, or the filler's once
        more. Behind it only the writer's count: nothing is written behind a hole that was not filled where
        it lies on the source, so no record is behind another filler."""
        is_own = self.own.owns(header)
        is_writers = header.producer_id == self.own.writer_id
        self._end = header.next_offset
        if not is_writers and not is_filler(header):
            self._stretches.add(header)
        if self._first is None:
            if not is_own or not is_writers:
                self._first = header
                # A batch of ours in the wrong place: what follows it is not what follows on the source.
                self._is_broken = is_writers
            return
        if self._is_broken or not is_writers:
            return
        if is_own:
            self._own_behind += header.next_offset - max(header.base_offset, self.foreign_at)
        else:
            self._is_broken = True

    @property
    def found(self) -> ForeignWrite:
        """By what was seen until now."""
        if self._first is None:
            return ForeignWrite(-1, self.foreign_at, 0)
        offset = max(self._first.base_offset, self.foreign_at)
        return ForeignWrite(
            self._first.producer_id,
            offset,
            self._own_behind,
            is_filler(self._first),
            self._stretches.found,
            self._end,
        )
