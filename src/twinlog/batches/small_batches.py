"""Opens many small batches in one loop.

A backlog of one-record batches is the worst load of a replicator, because everything that is done per batch
is done per record. The general way (a header object, a lane, a body each) costs three times as much as this
loop. The loop takes only simple batches, and stops at the first other one, which goes the general way.
"""

import struct
from typing import NamedTuple

import google_crc32c

from twinlog.batches.bodies import OpenRecord
from twinlog.batches.codec import Codec, decompress
from twinlog.batches.header import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
)
from twinlog.batches.records import walk_records
from twinlog.errors import WireFormatError

_CODECS = tuple(Codec)
_FIELDS = struct.Struct(">qiibIhiq22xi")
"""The fields of a v2 header that are read; neither the max timestamp nor the producer."""
_SHORT_HEAD = struct.Struct(">5B")
"""Two bytes of length, attributes, timestamp delta, offset delta: the first records of a batch with 64 bytes
to 8 KB begin like this. Reading them at once costs half."""
_SHORT_HEAD_BYTES = 5
_MOST_OPEN_BYTES = 8 << 20
_NO_WRAP_BELOW_MS = 1 << 62
_LENGTH = struct.Struct(">i")
_SMALLEST_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES


class Gathered(NamedTuple):
    """The result of one run of the loop."""

    position: int
    """The byte position of the first batch that was not taken."""
    next_offset: int
    batch_count: int
    record_bytes: int
    """The uncompressed size of the taken records in a larger batch."""
    codec: Codec
    """The codec of the first batch taken."""


FEW_RECORDS = 100
"""Per batch. Measured: opening and writing a record costs about 1 µs, sending and storing a batch about 50
µs."""
PACKED_HEAD_BYTES = 10
"""The size of a record's head in a large batch: length 3, attributes 1, timestamp delta 3 (17 minutes),
offset delta 3."""
_HEAD_GROWTH_BYTES = PACKED_HEAD_BYTES - 4
_LOOKED_AT = 100
_MAGIC_AT = 16
_ATTRIBUTES_AT = 22
"""Their low byte."""
_LAST_OFFSET_DELTA_AT = 23


def worth_packing(data: memoryview | bytes | bytearray, below_bytes: int) -> bool:
    """Whether there are at least two batches, on average smaller than `below_bytes` and with few records. The
    first hundred are representative.

    Opening many records costs more than sending their batch unchanged, however small it is compressed.
    """
    end = len(data)
    position = count = records = 0
    while end - position > LOG_OVERHEAD_BYTES and count < _LOOKED_AT:
        length = _LENGTH.unpack_from(data, position + 8)[0]
        if length < 0:
            break
        delta_at = position + _LAST_OFFSET_DELTA_AT
        if length >= _SMALLEST_LENGTH and delta_at + 4 <= end and data[position + _MAGIC_AT] == CURRENT_MAGIC:
            records += _LENGTH.unpack_from(data, delta_at)[0]
        position += LOG_OVERHEAD_BYTES + length
        count += 1
        records += 1
    return count > 1 and min(position, end) < below_bytes * count and records < FEW_RECORDS * count


def gather(
    data: bytes,
    position: int,
    records: list[OpenRecord],
    *,
    next_offset: int,
    below_bytes: int,
    room_bytes: int,
    check_crc: bool,
    skipped_bits: int,
    leader_epoch: int,
    log_end_offset: int,
) -> Gathered:
    """Append to `records` those of the plain small batches from `position` on, until another batch, or until
    there is no room.

    Plain means: v2, not control, CreateTime, dense, at or after `next_offset` (after a hole only up to
    `log_end_offset`), below `below_bytes`, with a correct checksum, written under `leader_epoch`, and with
    none of `skipped_bits` in its attributes. A damaged batch is not plain: the general way reports the
    damage.
    """
    end = len(data)
    begin = position
    fields, short_head = _FIELDS.unpack_from, _SHORT_HEAD.unpack_from
    crc32c = google_crc32c.value
    append = records.append
    skipped_bits |= CONTROL_BIT | LOG_APPEND_TIME_BIT
    batch_count = record_bytes = 0
    while end - position >= HEADER_BYTES:
        (
            base_offset,
            length,
            epoch,
            magic,
            crc,
            attributes,
            last_offset_delta,
            base_timestamp_ms,
            record_count,
        ) = fields(data, position)
        after = position + LOG_OVERHEAD_BYTES + length
        number = attributes & CODEC_MASK
        if (
            magic != CURRENT_MAGIC
            or epoch != leader_epoch
            or attributes & skipped_bits
            or not 0 < record_count == last_offset_delta + 1
            or base_offset < next_offset
            or (base_offset > next_offset and base_offset > log_end_offset)
            or not _SMALLEST_LENGTH < length < below_bytes
            or after > end
            or number >= len(_CODECS)
        ):
            break
        if check_crc and crc32c(data[position + CRC_COVERS_FROM : after]) != crc:
            break
        payload = data[position + HEADER_BYTES : after]
        before = len(records)
        try:
            if number:
                # A small batch that is large when opened goes the general way.
                payload = decompress(_CODECS[number], payload, _MOST_OPEN_BYTES)
            size_bytes = len(payload)
            packed_bytes = record_bytes + size_bytes + _HEAD_GROWTH_BYTES * record_count
            if before and packed_bytes > room_bytes:
                break
            at = 0
            short_until = size_bytes - _SHORT_HEAD_BYTES if base_timestamp_ms < _NO_WRAP_BELOW_MS else 0
            while at < short_until:
                low, high, _, timestamp_delta, offset_delta = short_head(payload, at)
                if not 0 < high < 0x80 <= low or (low & 1 | timestamp_delta | offset_delta) & 0x81:
                    break
                body_at, at = at + _SHORT_HEAD_BYTES, at + 2 + ((low & 0x7F | high << 7) >> 1)
                timestamp_ms = base_timestamp_ms + (timestamp_delta >> 1)
                append((base_offset + (offset_delta >> 1), timestamp_ms, payload[body_at:at]))
            missing = record_count - (len(records) - before)
            if at < size_bytes and walk_records(
                payload[at:], base_offset, base_timestamp_ms, missing, append
            ):
                raise IndexError
        except (IndexError, WireFormatError):
            del records[before:]
            break
        if (
            at > size_bytes
            or len(records) - before != record_count
            or records[before][0] != base_offset
            or records[-1][0] != base_offset + last_offset_delta
        ):
            del records[before:]
            break
        record_bytes = packed_bytes
        batch_count += 1
        next_offset = base_offset + record_count
        position = after
    codec = _CODECS[data[begin + _ATTRIBUTES_AT] & CODEC_MASK] if batch_count else Codec.NONE
    return Gathered(position, next_offset, batch_count, record_bytes, codec)
