"""Measures equality of two logs without comparing record by record."""

from collections.abc import Sequence

import google_crc32c

from twinlog.batches.codec import decompress
from twinlog.batches.header import CODEC_MASK, CRC_COVERS_FROM, HEADER_BYTES, LOG_APPEND_TIME_BIT, Batch


def are_equal(source: Batch, target: Batch, max_open_bytes: int) -> bool:
    """Whether two whole batches hold the same records, as far as that shows without opening them, and
    consumers can read the copy's batch: they check the checksum, which covers the header too."""
    one, other = source.header, target.header
    if (
        one.record_count != other.record_count
        or one.last_offset_delta != other.last_offset_delta
        or one.base_timestamp_ms != other.base_timestamp_ms
        or (one.attributes | other.attributes) & LOG_APPEND_TIME_BIT
    ):
        return False
    records, copied = bytes(source.data[HEADER_BYTES:]), bytes(target.data[HEADER_BYTES:])
    header = bytes(target.data[CRC_COVERS_FROM:HEADER_BYTES])
    if google_crc32c.extend(google_crc32c.value(header), copied) != other.crc:
        return False
    if (one.attributes & CODEC_MASK) == (other.attributes & CODEC_MASK):
        return records == copied
    return decompress(one.codec, records, max_open_bytes) == decompress(other.codec, copied, max_open_bytes)


def equal_run(source: Sequence[object], first: int, target: Sequence[object], other: int, count: int) -> int:
    """The number of equal items from these indices on, up to a limit."""
    if source[first : first + count] == target[other : other + count]:
        return count
    for number in range(count):
        if source[first + number] != target[other + number]:
            return number
    return count
