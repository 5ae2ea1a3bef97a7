"""A batch of the source, written again without compression: its head, or as its copy should hold it for
whoever compares the two logs. It keeps its producer and its transaction."""

from collections.abc import Callable, Iterable, Sequence

import google_crc32c

from twinlog.batches.bodies import OpenRecord
from twinlog.batches.codec import MAX_OPEN_BYTES
from twinlog.batches.header import (
    CODEC_MASK,
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    HEADER_STRUCT,
    LOG_OVERHEAD_BYTES,
    Batch,
    BatchHeader,
    read_batch,
)
from twinlog.batches.records import open_records
from twinlog.batches.varint import encode_varint, wrap_int64

ChangeRecords = Callable[[Sequence[OpenRecord]], list[OpenRecord]]
"""Changes records, or leaves some of them out; offsets and order stay. Raises WireFormatError for a record
that cannot be read."""
RouteRecords = Callable[[Sequence[OpenRecord]], Iterable[tuple[str, OpenRecord]]]
"""The same, and says which route each of them takes; "" = into the topic's own copy."""


def head_before(batch: Batch, end_offset: int, *, max_open_bytes: int = MAX_OPEN_BYTES) -> bytes:
    """A batch of the records before `end_offset`, which ends at that offset.

    Empty bytes for an old message set without such a record: its header does not say where it begins. Raises
    as `open_records`.
    """
    header = batch.header
    opened = open_records(batch, check_crc=True, max_bytes=max_open_bytes)
    records = [record for record in opened if record[0] < end_offset]
    is_old = header.magic != CURRENT_MAGIC
    if is_old and not records:
        return b""
    first = min(header.base_offset, records[0][0] if records else end_offset - 1)
    written = header._replace(
        base_offset=first,
        attributes=0 if is_old else header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
        last_offset_delta=end_offset - 1 - first,
        base_timestamp_ms=records[0][1] if records else header.base_timestamp_ms,
        max_timestamp_ms=max((record[1] for record in records), default=header.max_timestamp_ms),
    )
    return _written(written, records)


def transformed(batch: Batch, transform: ChangeRecords) -> Batch:
    """A batch of the same range, in which dropped records are missing as if compaction had removed them.

    Raises WireFormatError as `open_records` and `transform` do.
    """
    header = batch.header
    opened = open_records(batch, check_crc=True, max_bytes=MAX_OPEN_BYTES)
    # An old wrapper has the offset of its last message.
    base_offset = min([header.base_offset, *(record[0] for record in opened[:1])])
    written = header._replace(
        base_offset=base_offset,
        attributes=header.attributes & ~CODEC_MASK,
        last_offset_delta=header.last_offset - base_offset,
    )
    found = read_batch(memoryview(_written(written, transform(opened))), 0)
    assert found is not None, "a batch just written is whole"
    return found


def _written(header: BatchHeader, records: Sequence[OpenRecord]) -> bytes:
    pieces: list[bytes] = []
    for offset, timestamp_ms, body in records:
        difference_ms = wrap_int64(timestamp_ms - header.base_timestamp_ms)
        head = b"\0" + encode_varint(difference_ms) + encode_varint(offset - header.base_offset)
        pieces += (encode_varint(len(head) + len(body)), head, body)
    payload = b"".join(pieces)
    unchecked = HEADER_STRUCT.pack(
        *header._replace(
            batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
            magic=CURRENT_MAGIC,
            crc=0,
            record_count=len(records),
        )
    )
    covered = unchecked[CRC_COVERS_FROM:] + payload
    crc: int = google_crc32c.value(covered)
    return unchecked[: CRC_COVERS_FROM - 4] + crc.to_bytes(4) + covered
