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

from twinlog.batches.header import HEADER_BYTES, Batch, BatchHeader
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


class VisibleBatch(NamedTuple):
    batch: Batch
    visibility: Visibility


def classify(
    batches: Iterable[Batch], aborted: Iterable[AbortedTransaction] = (), *, read_committed: bool = True
) -> Iterator[VisibleBatch]:
    """Say for each batch of one fetch response, in order, whether its records may be seen.

    `aborted` is that same response's list; it is empty (and not looked at) under read_uncommitted.
    """
    waiting = [(first_offset, producer_id) for producer_id, first_offset in aborted] if read_committed else []
    heapq.heapify(waiting)
    hidden: set[int] = set()
    for batch in batches:
        header = batch.header
        while waiting and waiting[0][0] <= header.last_offset:
            hidden.add(heapq.heappop(waiting)[1])
        if header.is_control:
            if hidden and header.producer_id in hidden and _is_abort_marker(batch):
                hidden.discard(header.producer_id)
            yield VisibleBatch(batch, Visibility.CONTROL)
        elif hidden and _hides(header, hidden):
            yield VisibleBatch(batch, Visibility.ABORTED)
        else:
            yield VisibleBatch(batch, Visibility.VISIBLE)


def _hides(header: BatchHeader, hidden: set[int]) -> bool:
    return header.is_transactional and header.producer_id in hidden


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
