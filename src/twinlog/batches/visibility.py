"""Which fetched batches a reader may see: control batches never, aborted ones not with read_committed.

The rule is the Java consumer's (CompletedFetch): for each fetch the broker lists the aborted transactions of
the range as (producer id, first offset); a producer's batches are hidden from that offset until its abort
marker. Without a marker in the fetched bytes they are hidden to the end.

Counts visible records by batch headers where possible.

A dense batch tells how many records lie in any part of it. Only a batch with holes (or of an old format) that
crosses a bound has to be opened.
"""

import heapq
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from twinlog.batches.header import CONTROL_BIT, HEADER_BYTES, UNKNOWN_COUNT, Batch
from twinlog.batches.records import open_records
from twinlog.batches.varint import decode_varint

_CONTROL_KEY = struct.Struct(">hh")
"""Version, type."""


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EndMarker(IntEnum):
    """How a transaction ended, by the type of its control record."""

    ABORT = 0
    COMMIT = 1


class Visibility(StrEnum):
    VISIBLE = "VISIBLE"
    CONTROL = "CONTROL"
    ABORTED = "ABORTED"


VisibleBatch = tuple[Batch, Visibility]


class VisibilityTracker:
    """Takes the batches of one fetch response, in order, and tells which are visible.

    `aborted` is the list of the same response; it is ignored with read_uncommitted.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction] = (), *, read_committed: bool = True) -> None:
        self._waiting = (
            [(first_offset, producer_id) for producer_id, first_offset in aborted] if read_committed else []
        )
        heapq.heapify(self._waiting)
        self._hidden: set[int] = set()

    @property
    def hides_some(self) -> bool:
        """Whether any batch from here on may belong to an aborted transaction."""
        return bool(self._waiting or self._hidden)

    def see(self, batch: Batch) -> Visibility:
        """Take the next batch; batches that are not transactional may be left out."""
        header = batch.header
        waiting, hidden = self._waiting, self._hidden
        while waiting and waiting[0][0] <= header.last_offset:
            hidden.add(heapq.heappop(waiting)[1])
        if header.attributes & CONTROL_BIT:
            if header.producer_id in hidden and end_marker(batch) is EndMarker.ABORT:
                hidden.discard(header.producer_id)
            return _CONTROL
        if hidden and header.is_transactional and header.producer_id in hidden:
            return _ABORTED
        return _VISIBLE


def classify(
    batches: Iterable[Batch], aborted: Iterable[AbortedTransaction] = (), *, read_committed: bool = True
) -> Iterator[VisibleBatch]:
    """`VisibilityTracker` over all batches of one fetch response."""
    tracker = VisibilityTracker(aborted, read_committed=read_committed)
    for batch in batches:
        yield batch, tracker.see(batch)


# Members are looked up once, because this runs per batch.
_END_MARKERS = frozenset(EndMarker)
_VISIBLE, _CONTROL, _ABORTED = Visibility.VISIBLE, Visibility.CONTROL, Visibility.ABORTED


def end_marker(batch: Batch) -> EndMarker | None:
    """How a control batch ends its producer's transaction. None: it is not such a marker, or compaction
    emptied it."""
    if not batch.header.is_control or batch.header.record_count < 1:
        return None
    record = bytes(batch.data[HEADER_BYTES:])
    _, position = decode_varint(record, 0)
    _, position = decode_varint(record, position + 1)
    _, position = decode_varint(record, position)
    key_bytes, position = decode_varint(record, position)
    if key_bytes < _CONTROL_KEY.size or position + key_bytes > len(record):
        return None
    kind = _CONTROL_KEY.unpack_from(record, position)[1]
    return EndMarker(kind) if kind in _END_MARKERS else None


@dataclass(slots=True)
class VisibleCounter:
    """Counts the visible records with offsets in [next_offset, stop_offset)."""

    next_offset: int
    """Where to fetch from next; initially the first offset to count."""
    stop_offset: int
    records: int = 0
    batches_opened: int = 0
    read_committed: bool = True

    @property
    def is_done(self) -> bool:
        return self.next_offset >= self.stop_offset

    def feed(self, batches: Iterable[Batch], aborted: Iterable[AbortedTransaction] = ()) -> None:
        """Continue with one fetch response that began at `next_offset`.

        Raises WireFormatError (CORRUPT_BATCH) from a batch that had to be opened.
        """
        for batch, visibility in classify(batches, aborted, read_committed=self.read_committed):
            header = batch.header
            if self.is_done:
                return
            if header.next_offset <= self.next_offset:
                continue
            if visibility is Visibility.VISIBLE:
                self.records += self._count(batch)
            self.next_offset = header.next_offset

    def _count(self, batch: Batch) -> int:
        header = batch.header
        first = max(header.base_offset, self.next_offset)
        stop = min(header.next_offset, self.stop_offset)
        if header.record_count != UNKNOWN_COUNT:
            if first == header.base_offset and stop == header.next_offset:
                return header.record_count
            if header.is_dense:
                return max(stop - first, 0)
        self.batches_opened += 1
        return sum(self.next_offset <= offset < self.stop_offset for offset, _, _ in open_records(batch))
