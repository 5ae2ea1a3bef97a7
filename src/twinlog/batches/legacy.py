"""Messages of the formats v0 and v1 (magic 0 and 1), which logs from before Kafka 0.11 may still contain.

offset int64, size int32, crc int32, magic int8, attributes int8, [v1: timestamp int64], key, value (int32
lengths, -1 = null). The value of a compressed message is a message set. Inner offsets are absolute in v0; in
v1 they count up to the wrapper's own offset, which is that of the last message. Source:
AbstractLegacyRecordBatch.java.
"""

import struct

from twinlog.batches.bodies import LEAST_BYTES_PER_RECORD, OpenRecord, encode_body
from twinlog.batches.codec import Codec, decompress, too_large
from twinlog.batches.header import CODEC_MASK, LOG_APPEND_TIME_BIT, Batch
from twinlog.errors import WireFormatError

NO_TIMESTAMP = -1
_HEAD = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_LOG_OVERHEAD_BYTES = 12

_OldMessage = tuple[int, int, int, bytes | None, bytes | None]
"""(offset, attributes, timestamp in ms, key, value)."""


def open_old_message(batch: Batch, max_bytes: int) -> list[OpenRecord]:
    """The records of one entry of an old message set, with v2 bodies.

    Raises WireFormatError: CORRUPT_BATCH, or BATCH_TOO_LARGE when it is larger than `max_bytes`.
    """
    magic = batch.header.magic
    try:
        offset, attributes, timestamp_ms, key, value = _read_message(bytes(batch.data), magic)
        codec_number = attributes & CODEC_MASK
        if not codec_number:
            return [(offset, timestamp_ms, encode_body(key, value))]
        inner = _read_set(_decompress(codec_number, value or b"", magic, max_bytes), magic, max_bytes)
    except (struct.error, ValueError, IndexError) as error:
        raise WireFormatError(
            f"the message at offset {batch.header.base_offset} (format v{magic}) is damaged: {error}",
            reason="CORRUPT_BATCH",
            metadata={"offset": str(batch.header.base_offset)},
        ) from error
    # librdkafka once produced wrappers with offset 0 around absolute inner offsets.
    shift = offset - inner[-1][0] if magic == 1 and offset else 0
    appended_at = timestamp_ms if magic == 1 and attributes & LOG_APPEND_TIME_BIT else None
    return [
        (
            inner_offset + shift,
            inner_time if appended_at is None else appended_at,
            encode_body(inner_key, inner_value),
        )
        for inner_offset, _, inner_time, inner_key, inner_value in inner
    ]


def _read_set(data: bytes, magic: int, max_bytes: int) -> list[_OldMessage]:
    messages: list[_OldMessage] = []
    position = 0
    while position < len(data):
        if len(messages) >= max_bytes // LEAST_BYTES_PER_RECORD:
            raise too_large(f"holds more messages than fit into {max_bytes} bytes")
        size = _LENGTH.unpack_from(data, position + 8)[0]
        after = position + _LOG_OVERHEAD_BYTES + size
        if size < 0 or after > len(data):
            raise ValueError("an inner message reaches past the end")
        message = _read_message(data[position:after], magic)
        if message[1] & CODEC_MASK:
            raise ValueError("a compressed message lies inside another one")
        messages.append(message)
        position = after
    if not messages:
        raise ValueError("a compressed message holds nothing")
    return messages


def _read_message(data: bytes, magic: int) -> _OldMessage:
    offset, _, _, own_magic, attributes = _HEAD.unpack_from(data)
    if own_magic != magic:
        raise ValueError(f"a message of format v{own_magic} lies inside one of v{magic}")
    position = _HEAD.size
    timestamp_ms = NO_TIMESTAMP
    if magic == 1:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(data, position)
        position += _TIMESTAMP.size
    key, position = _take(data, position)
    value, position = _take(data, position)
    return offset, attributes, timestamp_ms, key, value


def _take(data: bytes, position: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(data, position)
    position += _LENGTH.size
    if length < 0:
        return None, position
    after = position + length
    if after > len(data):
        raise ValueError("a field reaches past the end")
    return data[position:after], after


def _decompress(codec_number: int, data: bytes, magic: int, max_bytes: int) -> bytes:
    codec = Codec(codec_number)
    if codec is Codec.LZ4 and magic == 0:
        data = _with_true_header_checksum(data)
    return decompress(codec, data, max_bytes)


def _with_true_header_checksum(frame: bytes) -> bytes:
    """Old clients computed the header checksum of an LZ4 frame over the frame magic too (KAFKA-3160): correct
    it."""
    flags = frame[4]
    checksum_at = 6 + (8 if flags & 0x08 else 0)
    checksum = _xxh32_short(frame[4:checksum_at]) >> 8 & 0xFF
    return frame[:checksum_at] + bytes((checksum,)) + frame[checksum_at + 1 :]


def _xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0 for fewer than 16 bytes, for the LZ4 frame header."""
    mask = 0xFFFFFFFF
    accumulator = (374761393 + len(data)) & mask
    position = 0
    while position + 4 <= len(data):
        lane = int.from_bytes(data[position : position + 4], "little")
        accumulator = (accumulator + lane * 3266489917) & mask
        accumulator = ((accumulator << 17 | accumulator >> 15) & mask) * 668265263 & mask
        position += 4
    for byte in data[position:]:
        accumulator = (accumulator + byte * 374761393) & mask
        accumulator = ((accumulator << 11 | accumulator >> 21) & mask) * 2654435761 & mask
    accumulator = (accumulator ^ accumulator >> 15) * 2246822519 & mask
    accumulator = (accumulator ^ accumulator >> 13) * 3266489917 & mask
    return accumulator ^ accumulator >> 16
