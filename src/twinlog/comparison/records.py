"""One record as fingerprints of its parts; windows of two logs are aligned and judged by them."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import google_crc32c

from twinlog.batches.bodies import OpenRecord, RawHeaders, decode_record, encode_body
from twinlog.batches.codec import decompress
from twinlog.batches.header import CODEC_MASK, CRC_COVERS_FROM, HEADER_BYTES, LOG_APPEND_TIME_BIT, Batch
from twinlog.model import Record, TimestampType

_SHORT_BYTES = 24
_DIGEST_BYTES = 16
_NULL = b"\0"
_PLAIN, _HASHED = b"\1", b"\2"

Token = tuple[int | None, bytes, bytes, bytes]
"""Equal for equal records: timestamp, key, value, headers."""


class Entry(NamedTuple):
    """Equal fingerprints mean equal bytes: short parts stand for themselves, others have 128 bits of
    BLAKE2b."""

    offset: int
    timestamp_ms: int | None
    """None: the broker's own, which does not count (LogAppendTime of a copy)."""
    key: bytes
    value: bytes
    headers: bytes

    @property
    def token(self) -> Token:
        return self[1:]

    @property
    def has_key(self) -> bool:
        return self.key != _NULL

    @property
    def is_tombstone(self) -> bool:
        return self.value == _NULL


def entry_of(record: OpenRecord, *, with_timestamp: bool = True) -> Entry:
    """Raises WireFormatError (CORRUPT_BATCH)."""
    decoded = decode_record(record)
    return Entry(
        decoded.offset,
        decoded.timestamp_ms if with_timestamp else None,
        _fingerprint(decoded.key),
        _fingerprint(decoded.value),
        _fingerprint(_joined(decoded.headers)),
    )


def _joined(headers: RawHeaders) -> bytes:
    return encode_body(None, None, headers) if headers else b""


def _fingerprint(field: bytes | None) -> bytes:
    if field is None:
        return _NULL
    if len(field) <= _SHORT_BYTES:
        return _PLAIN + field
    return _HASHED + blake2b(field, digest_size=_DIGEST_BYTES).digest()


def differing(source: Entry, target: Entry) -> tuple[str, ...]:
    """The parts in which two records differ."""
    parts = []
    if source.key != target.key:
        parts.append("key")
    if source.value != target.value:
        parts.append("value")
    if source.headers != target.headers:
        parts.append("headers")
    if target.timestamp_ms is not None and source.timestamp_ms != target.timestamp_ms:
        parts.append("timestamp")
    return tuple(parts)


def likeness(source: Entry, target: Entry) -> int:
    """How likely one record is the other, changed: 0 = not at all, 9 = all but one part are equal.

    Parts that many records share (no key, no headers, an empty value) count little.
    """
    same_time = target.timestamp_ms is not None and source.timestamp_ms == target.timestamp_ms
    equal = (
        same_time + (source.key == target.key) + (source.value == target.value)
        + (source.headers == target.headers)
    )  # fmt: skip
    telling = (
        same_time
        or (source.key == target.key and source.has_key)
        or (source.value == target.value and len(source.value) > 1)
        or (source.headers == target.headers and len(source.headers) > 1)
    )
    if equal >= 3:
        return 9 if telling else 1
    return 1 if telling and equal == 2 else 0


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


def is_copy(original: Record, copied: Record) -> bool:
    """Whether a decoded record is the copy of another one; the target may stamp its own times."""
    return (original.key, original.value, original.headers) == (
        copied.key,
        copied.value,
        copied.headers,
    ) and (
        original.timestamp_ms == copied.timestamp_ms or copied.timestamp_type is TimestampType.LOG_APPEND_TIME
    )
