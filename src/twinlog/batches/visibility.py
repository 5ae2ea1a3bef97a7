"""Which fetched batches a reader may see: control batches never, aborted ones not under read_committed.

The rule is the Java consumer's (CompletedFetch): the broker lists, per fetch, the aborted transactions of the
range as (producer id, first offset); a producer's batches are hidden from that offset until its abort marker.
Producers without a marker in the fetched bytes stay hidden to their end.
"""

import heapq
import struct
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from twinlog.batches.header import CONTROL_BIT, HEADER_BYTES, Batch
from twinlog.batches.varint import decode_varint

_CONTROL_KEY = struct.Struct(">hh")
_ABORT_MARKER = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class Visibility(StrEnum):
    VISIBLE = "VISIBLE"
    CONTROL = "CONTROL"
    ABORTED = "ABORTED"


VisibleBatch = tuple[Batch, Visibility]


class VisibilityTracker:
    """Goes along with the batches of one fetch response, in order, and says which may be seen.

    `aborted` is that same response's list; it is not looked at under read_uncommitted.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction] = (), *, read_committed: bool = True) -> None:
        self._waiting = (
            [(first_offset, producer_id) for producer_id, first_offset in aborted] if read_committed else []
        )
        heapq.heapify(self._waiting)
        self._hidden: set[int] = set()

    @property
    def hides_some(self) -> bool:
        """Whether any batch from here on may be of an aborted transaction."""
        return bool(self._waiting or self._hidden)

    def see(self, batch: Batch) -> Visibility:
        """The next batch; batches that are not transactional may be left out."""
        header = batch.header
        waiting, hidden = self._waiting, self._hidden
        while waiting and waiting[0][0] <= header.last_offset:
            hidden.add(heapq.heappop(waiting)[1])
        if header.attributes & CONTROL_BIT:
            if header.producer_id in hidden and _is_abort_marker(batch):
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


# Members are looked up once: this runs per batch.
_VISIBLE, _CONTROL, _ABORTED = Visibility.VISIBLE, Visibility.CONTROL, Visibility.ABORTED


def _is_abort_marker(batch: Batch) -> bool:
    """Read the key of a control batch's one record: version, type. An emptied one (compaction) marks
    nothing."""
    if batch.header.record_count < 1:
        return False
    record = bytes(batch.data[HEADER_BYTES:])
    _, position = decode_varint(record, 0)
    _, position = decode_varint(record, position + 1)
    _, position = decode_varint(record, position)
    key_bytes, position = decode_varint(record, position)
    if key_bytes < _CONTROL_KEY.size or position + key_bytes > len(record):
        return False
    return bool(_CONTROL_KEY.unpack_from(record, position)[1] == _ABORT_MARKER)
