"""Many small batches taken apart in one loop.

A backlog of one-record batches is the worst load of a mirror: what is done per batch is done per record. The
general way (a header object, a lane, a body each) costs three times what this loop does. It takes only
batches about which nothing has to be asked, and stops at the first other one, which goes the general way.
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
    HEADER_STRUCT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
)
from twinlog.batches.records import walk_records
from twinlog.errors import WireFormatError

_CODECS = tuple(Codec)
_HEADER_AFTER_CRC_BYTES = HEADER_BYTES - CRC_COVERS_FROM
_LENGTH = struct.Struct(">i")
_SMALLEST_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES


class Gathered(NamedTuple):
    """What one run through the loop took."""

    position: int
    """Byte position of the first batch that was not taken."""
    next_offset: int
    batch_count: int
    record_bytes: int
    """Uncompressed bytes of the records taken."""
    codec: Codec
    """Of the first batch taken."""


FEW_RECORDS = 100
"""Per batch. Measured: a record costs about 1 µs to open and write, a batch some 50 µs to send and store."""
_MAGIC_AT = 16
_LAST_OFFSET_DELTA_AT = 23


def worth_packing(data: memoryview | bytes | bytearray, below_bytes: int) -> bool:
    """Whether there are at least two batches, on average smaller than `below_bytes` and of few records.

    Opening many records costs more than sending their batch as it is, however small it is compressed.
    """
    end = len(data)
    position = count = records = 0
    while end - position > LOG_OVERHEAD_BYTES:
        length = _LENGTH.unpack_from(data, position + 8)[0]
        if length < 0:
            break
        delta_at = position + _LAST_OFFSET_DELTA_AT
        if length >= _SMALLEST_LENGTH and delta_at + 4 <= end and data[position + _MAGIC_AT] == CURRENT_MAGIC:
            records += _LENGTH.unpack_from(data, delta_at)[0]
        position += LOG_OVERHEAD_BYTES + length
        count += 1
        records += 1
    return count > 1 and end < below_bytes * count and records < FEW_RECORDS * count


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
) -> Gathered:
    """Append to `records` those of the plain small batches from `position` on, until another one or no room.

    Plain: v2, not control, CreateTime, dense, at or after `next_offset`, below `below_bytes`, checksum right,
    written under `leader_epoch`, none of `skipped_bits` in its attributes. What is damaged is not plain: the
    general way says how.
    """
    end = len(data)
    unpack_from = HEADER_STRUCT.unpack_from
    crc32c = google_crc32c.value
    append = records.append
    skipped_bits |= CONTROL_BIT | LOG_APPEND_TIME_BIT
    batch_count = record_bytes = 0
    codec_number: int | None = None
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
            _,
            _,
            _,
            _,
            record_count,
        ) = unpack_from(data, position)
        after = position + LOG_OVERHEAD_BYTES + length
        number = attributes & CODEC_MASK
        if (
            magic != CURRENT_MAGIC
            or epoch != leader_epoch
            or attributes & skipped_bits
            or record_count != last_offset_delta + 1
            or base_offset < next_offset
            or not _SMALLEST_LENGTH < length < below_bytes
            or after > end
            or number >= len(_CODECS)
        ):
            break
        covered = data[position + CRC_COVERS_FROM : after]
        if check_crc and crc32c(covered) != crc:
            break
        payload = covered[_HEADER_AFTER_CRC_BYTES:]
        before = len(records)
        try:
            if number:
                payload = decompress(_CODECS[number], payload)
            if before and record_bytes + len(payload) > room_bytes:
                break
            walk_records(payload, base_offset, base_timestamp_ms, append)
        except (IndexError, WireFormatError):
            del records[before:]
            break
        if len(records) - before != record_count:
            del records[before:]
            break
        record_bytes += len(payload)
        if codec_number is None:
            codec_number = number
        batch_count += 1
        next_offset = base_offset + record_count
        position = after
    return Gathered(position, next_offset, batch_count, record_bytes, _CODECS[codec_number or 0])
