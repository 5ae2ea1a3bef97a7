"""Finds records inside a batch without decoding them.

Copying needs the offset and the timestamp of a record; the rest (key, value, headers) is one range of bytes
that is the same in every batch. So records are moved as `OpenRecord(offset, timestamp, body)`. Null and empty
values, header keys that are not UTF-8, thousands of headers and extensions of later versions survive, because
nothing reads them. `decode_record` is for code that does read them (translation, verification, tests).

Record (magic 2): length varint, attributes int8, timestamp delta varlong, offset delta varint, then the body.
"""

from collections.abc import Callable, Sequence
from itertools import repeat

import google_crc32c

from twinlog.batches.bodies import LEAST_BYTES_PER_RECORD, DecodedRecord, OpenRecord, decode_record
from twinlog.batches.codec import MAX_OPEN_BYTES, decompress, too_large
from twinlog.batches.header import (
    CRC_COVERS_FROM,
    CURRENT_MAGIC,
    HEADER_BYTES,
    Batch,
    corrupt_checksum,
    crc_is_valid,
)
from twinlog.batches.legacy import open_old_message
from twinlog.batches.varint import SMALL_VARINTS, encode_varint, wrap_int64
from twinlog.errors import WireFormatError

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
