"""Finds records inside a batch without decoding them.

Copying needs the offset and the timestamp of a record; the rest (key, value, headers) is one range of bytes
that is the same in every batch. So records are moved as `OpenRecord(offset, timestamp, body)`. Null and empty
values, header keys that are not UTF-8, thousands of headers and extensions of later versions survive, because
nothing reads them. `decode_record` is for code that does read them (translation, verification, tests).

Record (magic 2): length varint, attributes int8, timestamp delta varlong, offset delta varint, then the body.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import repeat

import google_crc32c

from twinlog.batches.bodies import (
    LEAST_BYTES_PER_RECORD,
    DecodedRecord,
    OpenRecord,
    decode_record,
    encode_body,
)
from twinlog.batches.codec import MAX_OPEN_BYTES, Codec, decompress, too_large
from twinlog.batches.header import (
    CODEC_MASK,
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    Batch,
    corrupt_checksum,
    crc_is_valid,
)
from twinlog.batches.varint import SMALL_VARINTS, encode_varint, wrap_int64
from twinlog.errors import WireFormatError

# Messages of the formats v0 and v1 (magic 0 and 1), which logs from before Kafka 0.11 may still contain.
#
# offset int64, size int32, crc int32, magic int8, attributes int8, [v1: timestamp int64], key, value (int32
# lengths, -1 = null). The value of a compressed message is a message set. Inner offsets are absolute in v0;
# in v1 they count up to the wrapper's own offset, which is that of the last message. Source:
# AbstractLegacyRecordBatch.java.

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


_INT64_LIMIT = 1 << 63
_INT32_SHIFT = 28
"""Where the bits of a varint's fifth byte go, the last one."""
_INT64_SHIFT = 63
"""The shift of a varlong's tenth and last byte."""
_NO_ATTRIBUTES = b"\0"
_COPY_TWICE_BELOW_BYTES = 16 * 1024
"""For fewer bytes a second copy is cheaper than a second call of the checksum."""


def payload(batch: Batch, *, check_crc: bool) -> bytes:
    """A copy of the bytes after the header of a v2 batch, still compressed.

    With `check_crc` (Kafka's check.crcs) raises WireFormatError (CORRUPT_BATCH) on damage.
    """
    if not check_crc:
        return bytes(batch.data[HEADER_BYTES:])
    if len(batch.data) < _COPY_TWICE_BELOW_BYTES:
        covered = bytes(batch.data[CRC_COVERS_FROM:])
        crc = google_crc32c.value(covered)
        data = covered[HEADER_BYTES - CRC_COVERS_FROM :]
    else:
        data = bytes(batch.data[HEADER_BYTES:])
        head = google_crc32c.value(bytes(batch.data[CRC_COVERS_FROM:HEADER_BYTES]))
        crc = google_crc32c.extend(head, data)
    if crc != batch.header.crc:
        raise corrupt_checksum(batch)
    return data


def open_records(
    batch: Batch, *, check_crc: bool = False, max_bytes: int = MAX_OPEN_BYTES
) -> list[OpenRecord]:
    """Decompress a batch of any magic and find its records, also with holes.

    Raises WireFormatError: CORRUPT_BATCH when lengths, offsets or the header's count do not fit,
    BATCH_TOO_LARGE when it is larger than `max_bytes`, or has more records than fit into that much memory.
    """
    header = batch.header
    if header.magic != CURRENT_MAGIC:
        if check_crc and not crc_is_valid(batch):
            raise corrupt_checksum(batch)
        old = open_old_message(batch, max_bytes)
        # librdkafka once produced wrappers with offset 0 around offsets of their own.
        return _within(batch, 0, old) if header.base_offset else old
    count = header.record_count
    if count > max_bytes // LEAST_BYTES_PER_RECORD:
        raise too_large(f"holds {count} records, more than fit into {max_bytes} bytes")
    data = decompress(header.codec, payload(batch, check_crc=check_crc), max_bytes)
    records: list[OpenRecord] = []
    try:
        rest = walk_records(data, header.base_offset, header.base_timestamp_ms, count, records.append)
    except IndexError:
        raise _corrupt(batch, "a record reaches past the end") from None
    if rest or len(records) != count:
        found = "more" if rest else len(records)
        raise _corrupt(batch, f"the header promises {count} records, {found} are there")
    _within(batch, header.base_offset, records)
    if header.is_log_append_time:
        at = header.max_timestamp_ms
        return [(offset, at, body) for offset, _, body in records]
    return records


def _within(batch: Batch, first_offset: int, records: list[OpenRecord]) -> list[OpenRecord]:
    """Return the records if their offsets are those of the batch."""
    if records and not first_offset <= records[0][0] <= records[-1][0] <= batch.header.last_offset:
        raise _corrupt(
            batch,
            f"its records have the offsets {records[0][0]} to {records[-1][0]},"
            f" its header ends at {batch.header.last_offset}",
        )
    return records


def walk_records(  # noqa: C901 (one call for each number would cost more than the number)
    data: bytes, base_offset: int, base_timestamp_ms: int, most: int, append: Callable[[OpenRecord], None]
) -> int:
    """Split the decompressed records of a batch, at most `most`; this is the inner loop of everything that
    opens a batch. Returns how many bytes are left.

    Raises IndexError for a length that reaches past the end, and for a number with more bytes than Kafka
    allows (5; 10 for a timestamp), after the records before it were appended. Timestamps wrap at 64 bits, as
    in Java.
    """
    position = 0
    end = len(data)
    for _ in repeat(None, most):
        if position >= end:
            break
        number = data[position]
        position += 1
        if number > 0x7F:
            byte = data[position]
            position += 1
            number = number & 0x7F | byte << 7
            if byte > 0x7F:
                number &= 0x3FFF
                shift = 14
                while byte > 0x7F:
                    if shift > _INT32_SHIFT:
                        raise IndexError
                    byte = data[position]
                    position += 1
                    number |= (byte & 0x7F) << shift
                    shift += 7
        after = position + ((number >> 1) ^ -(number & 1))
        if after > end or after <= position:
            raise IndexError

        # The attributes byte before the timestamp delta has no meaning in any version of Kafka.
        number = data[position + 1]
        position += 2
        timestamp_ms = base_timestamp_ms
        if number:
            byte = number
            number &= 0x7F
            shift = 7
            while byte > 0x7F:
                if shift > _INT64_SHIFT:
                    raise IndexError
                byte = data[position]
                position += 1
                number |= (byte & 0x7F) << shift
                shift += 7
            timestamp_ms += (number >> 1) ^ -(number & 1)
            if not -_INT64_LIMIT <= timestamp_ms < _INT64_LIMIT:
                timestamp_ms = wrap_int64(timestamp_ms)

        number = data[position]
        position += 1
        if number:
            byte = number
            number &= 0x7F
            shift = 7
            while byte > 0x7F:
                if shift > _INT32_SHIFT:
                    raise IndexError
                byte = data[position]
                position += 1
                number |= (byte & 0x7F) << shift
                shift += 7
            number = (number >> 1) ^ -(number & 1)
        if position > after:
            raise IndexError
        append((base_offset + number, timestamp_ms, data[position:after]))
        position = after
    return end - position


def write_records(records: Sequence[OpenRecord], base_timestamp_ms: int) -> bytes:
    """Write records for a new dense batch: offset deltas 0, 1, 2, …, timestamps against
    `base_timestamp_ms`."""
    pieces: list[bytes] = []
    append = pieces.append
    small, table_size = SMALL_VARINTS, len(SMALL_VARINTS)
    for offset_delta, (_, timestamp_ms, body) in enumerate(records):
        difference = timestamp_ms - base_timestamp_ms
        if 0 <= difference < table_size > offset_delta:
            head = _NO_ATTRIBUTES + small[difference] + small[offset_delta]
        else:
            head = _NO_ATTRIBUTES + encode_varint(wrap_int64(difference)) + encode_varint(offset_delta)
        length = len(head) + len(body)
        append((small[length] if length < table_size else encode_varint(length)) + head)
        append(body)
    return b"".join(pieces)


def decode_batch(batch: Batch) -> list[DecodedRecord]:
    """All records of a batch, decoded. Raises WireFormatError (CORRUPT_BATCH)."""
    return [decode_record(record) for record in open_records(batch)]


def _corrupt(batch: Batch, what: str) -> WireFormatError:
    offset = batch.header.base_offset
    return WireFormatError(
        f"the batch at offset {offset} is damaged: {what}",
        reason="CORRUPT_BATCH",
        metadata={"offset": str(offset)},
    )
