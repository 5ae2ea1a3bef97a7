"""A batch of the source as its copy should hold it: for whoever compares the two logs."""

from collections.abc import Callable, Sequence

import google_crc32c

from twinlog.batches.bodies import OpenRecord
from twinlog.batches.codec import MAX_OPEN_BYTES
from twinlog.batches.header import (
    CODEC_MASK,
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    HEADER_BYTES,
    HEADER_STRUCT,
    LOG_OVERHEAD_BYTES,
    Batch,
    read_batch,
)
from twinlog.batches.records import open_records
from twinlog.batches.varint import encode_varint, wrap_int64

ChangeRecords = Callable[[Sequence[OpenRecord]], list[OpenRecord]]
"""Changes records, or leaves some of them out; offsets and order stay. Raises WireFormatError for a record
that cannot be read."""


def transformed(batch: Batch, transform: ChangeRecords) -> Batch:
    """A batch of the same range, producer and transaction, in which dropped records are missing as if
    compaction had removed them.

    Raises WireFormatError as `open_records` and `transform` do.
    """
    header = batch.header
    opened = open_records(batch, check_crc=True, max_bytes=MAX_OPEN_BYTES)
    # An old wrapper has the offset of its last message.
    base_offset = min([header.base_offset, *(record[0] for record in opened[:1])])
    records = transform(opened)
    written = b"".join(_written(record, base_offset, header.base_timestamp_ms) for record in records)
    unchecked = HEADER_STRUCT.pack(
        base_offset,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(written),
        header.partition_leader_epoch,
        CURRENT_MAGIC,
        0,
        header.attributes & ~CODEC_MASK,
        header.last_offset - base_offset,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        len(records),
    )
    covered = unchecked[CRC_COVERS_FROM:] + written
    checked = unchecked[: CRC_COVERS_FROM - 4] + google_crc32c.value(covered).to_bytes(4) + covered
    found = read_batch(memoryview(checked), 0)
    assert found is not None, "a batch just written is whole"
    return found


def _written(record: OpenRecord, base_offset: int, base_timestamp_ms: int) -> bytes:
    offset, timestamp_ms, body = record
    difference_ms = wrap_int64(timestamp_ms - base_timestamp_ms)
    rest = b"\0" + encode_varint(difference_ms) + encode_varint(offset - base_offset) + body
    return encode_varint(len(rest)) + rest
