"""Batches as a source log may hold them, with holes, flags and any timestamps, for tests of readers."""

import struct
import zlib
from collections.abc import Sequence

import google_crc32c

from twinlog.batches.bodies import DecodedRecord, encode_body
from twinlog.batches.codec import Codec, compress
from twinlog.batches.header import (
    CONTROL_BIT,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    HEADER_STRUCT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
)
from twinlog.batches.varint import SMALL_VARINTS, encode_varint, wrap_int64

# Messages of the formats v0 and v1, as in logs of Kafka before 0.11.


def old_message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp_ms: int = 1_500_000_000_000,
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp_ms) if magic == 1 else b""
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def old_wrapper(offset: int, inner: bytes, *, magic: int = 1) -> bytes:
    """A compressed message around others; `offset` is that of its last one. Inner offsets of v1 begin at
    0."""
    return old_message(offset, None, compress(Codec.GZIP, inner), magic=magic, attributes=Codec.GZIP)


_LEADER_EPOCH = 5


def source_batch(
    records: Sequence[DecodedRecord],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int | None = None,
    last_offset: int | None = None,
    base_timestamp_ms: int | None = None,
    appended_at_ms: int | None = None,
    producer_id: int = -1,
    transactional: bool = False,
    control: bool = False,
    more_attributes: int = 0,
) -> bytes:
    """One v2 batch with a valid checksum.

    Bases and the last offset are those of the records unless given (as compaction leaves them).
    `appended_at_ms` makes it LogAppendTime.
    """
    first = base_offset if base_offset is not None else records[0].offset
    last = last_offset if last_offset is not None else records[-1].offset
    if base_timestamp_ms is None:
        base_timestamp_ms = records[0].timestamp_ms if records else -1
    written: list[bytes] = []
    # Unit tests spend much of their time here.
    small, table_size = SMALL_VARINTS, len(SMALL_VARINTS)
    for offset, timestamp_ms, key, value, headers in records:
        later_ms, delta = timestamp_ms - base_timestamp_ms, offset - first
        head = b"\0" + (
            small[later_ms] if 0 <= later_ms < table_size else encode_varint(wrap_int64(later_ms))
        )
        head += small[delta] if 0 <= delta < table_size else encode_varint(delta)
        head += encode_body(key, value, headers)
        length = len(head)
        written += (small[length] if length < table_size else encode_varint(length), head)
    payload = compress(codec, b"".join(written)) if written else b""
    attributes = (codec if written else 0) | more_attributes
    attributes |= LOG_APPEND_TIME_BIT if appended_at_ms is not None else 0
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    latest_ms = max((record.timestamp_ms for record in records), default=-1)
    header = HEADER_STRUCT.pack(
        first,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
        _LEADER_EPOCH,
        2,
        0,
        attributes,
        last - first,
        base_timestamp_ms,
        latest_ms if appended_at_ms is None else appended_at_ms,
        producer_id,
        -1 if producer_id < 0 else 0,
        -1 if producer_id < 0 else 0,
        len(records),
    )
    crc: int = google_crc32c.value(header[CRC_COVERS_FROM:] + payload)
    return header[: CRC_COVERS_FROM - 4] + crc.to_bytes(4, "big") + header[CRC_COVERS_FROM:] + payload


def transaction_marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """The control batch that ends a producer's transaction on a partition."""
    record = DecodedRecord(offset, 0, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0), ())
    return source_batch([record], producer_id=producer_id, transactional=True, control=True)
