"""The head of a batch: its records before an offset, as a separate batch."""

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
)
from twinlog.batches.records import open_records
from twinlog.batches.varint import encode_varint, wrap_int64


def head_before(batch: Batch, end_offset: int, *, max_open_bytes: int = MAX_OPEN_BYTES) -> bytes:
    """An uncompressed batch of the records before `end_offset`, which ends at that offset.

    It keeps the transaction and the timestamps. Empty bytes for an old message set without such a record: its
    header does not say where it begins. Raises as `open_records`.
    """
    header = batch.header
    records = [
        record
        for record in open_records(batch, check_crc=True, max_bytes=max_open_bytes)
        if record[0] < end_offset
    ]
    is_old = header.magic != CURRENT_MAGIC
    if is_old and not records:
        return b""
    first = min(header.base_offset, records[0][0]) if records else min(header.base_offset, end_offset - 1)
    base_ms = records[0][1] if records else header.base_timestamp_ms
    latest_ms = max((record[1] for record in records), default=header.max_timestamp_ms)
    payload = b"".join(_written(record, first, base_ms) for record in records)
    packed = HEADER_STRUCT.pack(
        first,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
        header.partition_leader_epoch,
        CURRENT_MAGIC,
        0,
        0 if is_old else header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
        end_offset - 1 - first,
        base_ms,
        latest_ms,
        -1 if is_old else header.producer_id,
        -1 if is_old else header.producer_epoch,
        -1 if is_old else header.base_sequence,
        len(records),
    )
    crc: int = google_crc32c.value(packed[CRC_COVERS_FROM:] + payload)
    return packed[: CRC_COVERS_FROM - 4] + crc.to_bytes(4, "big") + packed[CRC_COVERS_FROM:] + payload


def _written(record: OpenRecord, base_offset: int, base_timestamp_ms: int) -> bytes:
    offset, timestamp_ms, body = record
    delta_ms = wrap_int64(timestamp_ms - base_timestamp_ms)
    head = b"\0" + encode_varint(delta_ms) + encode_varint(offset - base_offset)
    return encode_varint(len(head) + len(body)) + head + body
