"""Record batches in a fetch response: one after the other, the last one possibly incomplete.

Format v2 (magic 2) has a header of 61 bytes; its CRC-32C covers everything from the attributes on. Before it
(magic 0 and 1, Kafka below 0.11) each entry is a message, and a compressed message wraps a whole message set.
Source: Kafka's "Record Batch" protocol page, DefaultRecordBatch.java and AbstractLegacyRecordBatch.java.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

from twinlog.batches.codec import Codec
from twinlog.errors import WireFormatError

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""Base offset and length, which `batch_length` does not include."""
CRC_COVERS_FROM = 21
CURRENT_MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

UNKNOWN_COUNT = -1
HIGHEST_OFFSET = (1 << 63) - 1
_MOST_OLD_MESSAGES = 1 << 31

_CODECS = tuple(Codec)

HEADER_STRUCT = struct.Struct(">qiibIhiqqqhii")
_OLD_STRUCT = struct.Struct(">qiIbb")
_OLD_TIMESTAMP = struct.Struct(">q")
_MAGIC_POSITION = 16
_SMALLEST_OLD_LENGTH = 14
_LENGTH_POSITION = 8
_ATTRIBUTES_LOW = 22
_PRODUCER_ID_POSITION = 43


class BatchHeader(NamedTuple):
    """The fixed part of a batch. A NamedTuple, because one is created per batch in the hot path.

    An old message (magic 0 or 1) is described as far as possible without opening it: `base_offset` is the
    entry's own offset, which for a compressed wrapper is that of its *last* record; `record_count` is then
    UNKNOWN_COUNT.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch with its header, which a topic's max.message.bytes limits."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record with which the batch was created; compaction may have removed that
        record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Where reading continues after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Raises WireFormatError for a codec number that Kafka does not define."""
        number = self.attributes & CODEC_MASK
        if number < len(_CODECS):
            return _CODECS[number]
        raise WireFormatError(
            f"the batch at offset {self.base_offset} names codec {number}: unknown",
            reason="CORRUPT_BATCH",
            metadata={"offset": str(self.base_offset)},
        )

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_dense(self) -> bool:
        """Whether every offset from first to last has its record: there are no compaction holes."""
        return self.record_count == self.last_offset_delta + 1


class Batch(NamedTuple):
    """A batch inside the fetched bytes, which are not copied."""

    header: BatchHeader
    data: memoryview
    """All bytes of the batch, header included."""


def read_batches(data: memoryview | bytes | bytearray) -> list[Batch]:
    """Split fetched bytes into batches, without an incomplete last one. Raises as `iter_batches`."""
    return list(iter_batches(data))


def iter_batches(data: memoryview | bytes | bytearray) -> Iterator[Batch]:
    """Iterate over the batches of fetched bytes, without an incomplete last one. Raises as `read_batch`."""
    view = memoryview(data)
    position = 0
    while batch := read_batch(view, position):
        yield batch
        position += len(batch.data)


def producer_ids(data: memoryview | bytes | bytearray) -> set[int]:
    """The producer ids of the batches with records in fetched bytes; -1 for producers that are not
    idempotent, and for old messages. Does not raise: it ends at damaged bytes."""
    found: set[int] = set()
    position, last = 0, len(data) - HEADER_BYTES
    while position <= last:
        at = position + _LENGTH_POSITION
        length = int.from_bytes(data[at : at + 4], signed=True)
        if length < _SMALLEST_OLD_LENGTH:
            break
        if data[position + _MAGIC_POSITION] != CURRENT_MAGIC:
            found.add(-1)
        elif not data[position + _ATTRIBUTES_LOW] & CONTROL_BIT:
            at = position + _PRODUCER_ID_POSITION
            found.add(int.from_bytes(data[at : at + 8], signed=True))
        position += LOG_OVERHEAD_BYTES + length
    return found


def iter_following(data: memoryview | bytes | bytearray, offset: int, log_end_offset: int) -> Iterator[Batch]:
    """As `iter_batches`, for an answer to a fetch from `offset`; also raises as `check_place`."""
    lowest_offset = 0
    for batch in iter_batches(data):
        check_place(batch, lowest_offset=lowest_offset, follows=offset, log_end_offset=log_end_offset)
        lowest_offset = batch.header.next_offset
        yield batch


def check_place(batch: Batch, *, lowest_offset: int, follows: int, log_end_offset: int) -> None:
    """Raise WireFormatError (CORRUPT_BATCH) for an offset that is impossible at this place of an answer.

    The checksum does not cover the base offset: a wrong one would silently write data before the position, or
    move the position past everything that follows. A batch lies at or after `lowest_offset`, where the
    previous one ended. It may leave a hole (after `follows` too, what was requested) only below
    `log_end_offset`, the answer's high watermark: logs are compacted only below it, and records that were
    written while the answer was created follow without a hole.
    """
    header = batch.header
    offset = header.base_offset
    if offset < lowest_offset:
        raise _false_offset(offset, f"a batch claims offset {offset} after offset {lowest_offset - 1}")
    highest = max(lowest_offset, follows, log_end_offset)
    if header.record_count == UNKNOWN_COUNT:
        highest += _MOST_OLD_MESSAGES  # Its offset is that of its last message.
    if offset > highest or header.next_offset > HIGHEST_OFFSET:
        raise _false_offset(offset, f"a batch claims offset {offset} in a log that ends at {highest}")


def whole_batches_bytes(data: memoryview | bytes) -> int:
    """How many of the fetched bytes belong to complete batches. Lengths are not checked; an impossible one
    counts with everything that follows it."""
    end, position = len(data), 0
    while position + LOG_OVERHEAD_BYTES <= end:
        overhead = data[position : position + LOG_OVERHEAD_BYTES]
        length = int.from_bytes(overhead[_LENGTH_POSITION:], signed=True)
        if length < _SMALLEST_OLD_LENGTH:
            return end
        if position + LOG_OVERHEAD_BYTES + length > end:
            break
        position += LOG_OVERHEAD_BYTES + length
    return position


def read_batch(view: memoryview, position: int) -> Batch | None:
    """The batch that begins at `position`; None when it is incomplete, or there is nothing.

    Raises WireFormatError (CORRUPT_BATCH, with the position in bytes) when a length or a magic is impossible.
    """
    available = len(view) - position
    if available <= _MAGIC_POSITION:
        return None
    magic = view[position + _MAGIC_POSITION]
    if magic == CURRENT_MAGIC:
        if available < HEADER_BYTES:
            return None
        header = BatchHeader._make(HEADER_STRUCT.unpack_from(view, position))
        smallest = HEADER_BYTES - LOG_OVERHEAD_BYTES
    elif magic < CURRENT_MAGIC:
        if available < _OLD_STRUCT.size:
            return None
        header = _read_old_header(view[position:])
        smallest = _SMALLEST_OLD_LENGTH
    else:
        raise _corrupt(view, position, f"magic {magic} is unknown")
    if header.batch_length < smallest:
        raise _corrupt(view, position, f"a length of {header.batch_length} bytes cannot be")
    after = position + LOG_OVERHEAD_BYTES + header.batch_length
    return Batch(header, view[position:after]) if after <= len(view) else None


def crc_is_valid(batch: Batch) -> bool:
    """Compare the stored checksum with the bytes. This copies the batch once; the raw lane checks its own
    copy instead."""
    if batch.header.magic == CURRENT_MAGIC:
        return bool(google_crc32c.value(bytes(batch.data[CRC_COVERS_FROM:])) == batch.header.crc)
    return zlib.crc32(batch.data[_MAGIC_POSITION:]) == batch.header.crc


def corrupt_checksum(batch: Batch) -> WireFormatError:
    offset = batch.header.base_offset
    return WireFormatError(
        f"the batch at offset {offset} fails its checksum",
        reason="CORRUPT_BATCH",
        metadata={"offset": str(offset)},
    )


def _read_old_header(view: memoryview) -> BatchHeader:
    offset, length, crc, magic, attributes = _OLD_STRUCT.unpack_from(view)
    timestamp_ms = -1
    if magic == 1 and len(view) >= _OLD_STRUCT.size + _OLD_TIMESTAMP.size:
        (timestamp_ms,) = _OLD_TIMESTAMP.unpack_from(view, _OLD_STRUCT.size)
    count = UNKNOWN_COUNT if attributes & CODEC_MASK else 1
    # Idempotence and transactions did not exist yet, so these bits mean nothing here.
    attributes &= CODEC_MASK | LOG_APPEND_TIME_BIT
    return BatchHeader(
        offset, length, -1, magic, crc, attributes, 0, timestamp_ms, timestamp_ms, -1, -1, -1, count
    )


def _corrupt(view: memoryview, position: int, what: str) -> WireFormatError:
    offset = int.from_bytes(view[position : position + 8], "big", signed=True)
    return WireFormatError(
        f"fetched bytes are damaged at byte {position} (offset field {offset}): {what}",
        reason="CORRUPT_BATCH",
        metadata={"offset": str(offset), "byte": str(position)},
    )


def _false_offset(offset: int, message: str) -> WireFormatError:
    return WireFormatError(message, reason="CORRUPT_BATCH", metadata={"offset": str(offset)})
