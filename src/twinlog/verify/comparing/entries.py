"""One record as fingerprints of its parts; windows of two logs are aligned and judged by them."""

from hashlib import blake2b
from typing import NamedTuple

from twinlog.batches.bodies import OpenRecord, RawHeaders, decode_record, encode_body

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
