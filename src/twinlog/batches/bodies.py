"""The body of a record: the bytes after its offset delta, which are the same in every batch.

key length varint (-1 = null), key, value length, value, header count, and per header key length, key, value
length, value.
"""

from typing import NamedTuple

from twinlog.batches.varint import SMALL_VARINTS, decode_varint, encode_varint
from twinlog.errors import WireFormatError

OpenRecord = tuple[int, int, bytes]
"""(offset, timestamp in ms, body). A plain tuple, because one is created per record."""

LEAST_BYTES_PER_RECORD = 64
"""The least memory that a record takes, however small it is: an open record is three objects."""

RawHeaders = tuple[tuple[bytes, bytes | None], ...]

_NULL = b"\x01"
_NO_HEADERS = b"\0"
_ONE_BYTE = 0x80
"""Numbers below this have a varint of one byte, as most lengths do; they are read and written inline."""
_TWO_BYTES = 0x80 << 7
"""The same for two bytes; the second one's highest bit says that more follow."""


class DecodedRecord(NamedTuple):
    """A record with its parts as bytes, including header keys, because producers may write keys that are not
    UTF-8."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RawHeaders


def encode_body(key: bytes | None, value: bytes | None, headers: RawHeaders = ()) -> bytes:
    return _nullable(key) + _nullable(value) + encode_headers(headers)


def encode_headers(headers: RawHeaders) -> bytes:
    """The end of a body: the count of the headers, and the headers."""
    if not headers:
        return _NO_HEADERS
    pieces = [encode_varint(len(headers))]
    for header_key, header_value in headers:
        pieces += (_nullable(header_key), _nullable(header_value))
    return b"".join(pieces)


def encode_field(field: bytes | None) -> bytes:
    """A key or a value with its length, as a body has it."""
    return _nullable(field)


def field_content(body: bytes, begin: int, end: int) -> bytes | None:
    """The key or the value that lies there, without its length."""
    if body[begin] < _ONE_BYTE:
        return None if body[begin] == _NULL[0] else body[begin + 1 : end]
    return body[begin + 2 if body[begin + 1] < _ONE_BYTE else decode_varint(body, begin)[1] : end]


def is_tombstone(body: bytes) -> bool:
    """Whether the value is null. Raises WireFormatError (CORRUPT_BATCH) for a key that reaches past the
    end."""
    at = _after_field(body, 0)
    return body[at : at + 1] == _NULL


def headers_at(body: bytes) -> int:
    """Where the count of the headers begins. Raises WireFormatError (CORRUPT_BATCH) for a field that reaches
    past the end."""
    return _after_field(body, _after_field(body, 0))


def field_ends(body: bytes) -> tuple[int, int]:
    """Where the key ends, and where the value does. Raises as `headers_at`."""
    key_end = _after_field(body, 0)
    return key_end, _after_field(body, key_end)


def headers_of(body: bytes) -> RawHeaders:
    """Raises WireFormatError (CORRUPT_BATCH) when they are not exactly the rest of the body."""
    return _take_headers(body, headers_at(body))


def has_header(body: bytes, written_key: bytes) -> bool:
    """Whether a header has this key; `written_key`: as `encode_field` gives it. Raises as `headers_at`."""
    # Asked of each record, so most lengths (a key's of one byte, a value's of two) are read here: four calls
    # cost more than all the rest.
    try:
        key_number = body[0]
        position = 1 if key_number & 1 else 1 + (key_number >> 1)
        number = body[position]
        position += 1
        if number >= _ONE_BYTE:
            number = number & 0x7F | body[position] << 7
            position += 1
        if key_number >= _ONE_BYTE or number >= _TWO_BYTES or number & 1:
            position = headers_at(body)
        else:
            position += number >> 1
        if not body[position]:
            return False
    except IndexError:
        position = headers_at(body)
    # Most records lack it, and for these one search behind the value is enough.
    found = body.find(written_key, position)
    if found >= 0:
        _, position = decode_varint(body, position)
    while found >= 0 and position != found:
        position = _after_field(body, _after_field(body, position))
        if position > found:
            found = body.find(written_key, position)
    return found >= 0


def with_header(body: bytes, written: bytes) -> bytes:
    """The body with one header more at its end; `written`: its key and its value, as `encode_field` gives
    them. Raises as `headers_at`."""
    at = headers_at(body)
    count, position = decode_varint(body, at)
    return b"".join((body[:at], encode_varint(count + 1), body[position:], written))


def without_headers(body: bytes, written_keys: tuple[bytes, ...]) -> bytes:
    """The body without the headers that have one of these keys, written as for `has_header`. Raises as
    `headers_at`."""
    at = headers_at(body)
    count, position = decode_varint(body, at)
    kept: list[bytes] = []
    for _ in range(count):
        begin, position = position, _after_field(body, _after_field(body, position))
        if not body.startswith(written_keys, begin):
            kept.append(body[begin:position])
    if len(kept) == count:
        return body
    return b"".join((body[:at], encode_varint(len(kept)), *kept))


def _after_field(body: bytes, position: int) -> int:
    """The position after a key or value, which is not copied."""
    try:
        number = body[position]
        position += 1
        if number >= _ONE_BYTE:
            number = number & 0x7F | body[position] << 7
            position += 1
            if number >= _TWO_BYTES:
                length, position = decode_varint(body, position - 2)
                number = length << 1
    except IndexError:
        number = (len(body) + 1) << 1
    if not number & 1:
        position += number >> 1
        if not 0 <= position <= len(body):
            raise WireFormatError("a field of a record reaches past its end", reason="CORRUPT_BATCH")
    return position


def decode_record(record: OpenRecord) -> DecodedRecord:
    """Parse a body. Raises WireFormatError (CORRUPT_BATCH) when it is not exactly one record."""
    offset, timestamp_ms, body = record
    key, position = _take_nullable(body, 0)
    value, position = _take_nullable(body, position)
    try:
        headers = _take_headers(body, position)
    except WireFormatError as error:
        raise WireFormatError(
            f"the record at offset {offset}: {error}", reason=error.reason, metadata={"offset": str(offset)}
        ) from error
    return DecodedRecord(offset, timestamp_ms, key, value, headers)


def _take_headers(body: bytes, position: int) -> RawHeaders:
    count, position = decode_varint(body, position)
    headers = []
    for _ in range(count):
        header_key, position = _take_nullable(body, position)
        header_value, position = _take_nullable(body, position)
        if header_key is None:
            raise WireFormatError("the key of a header is null", reason="CORRUPT_BATCH")
        headers.append((header_key, header_value))
    if position != len(body) or count < 0:
        raise WireFormatError("it does not end where its length says", reason="CORRUPT_BATCH")
    return tuple(headers)


def _nullable(field: bytes | None) -> bytes:
    if field is None:
        return _NULL
    length = len(field)
    return (SMALL_VARINTS[length] if length < len(SMALL_VARINTS) else encode_varint(length)) + field


def _take_nullable(body: bytes, position: int) -> tuple[bytes | None, int]:
    if position < len(body) and (byte := body[position]) < _ONE_BYTE:
        length = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        length, position = decode_varint(body, position)
    if length < 0:
        return None, position
    after = position + length
    if after > len(body):
        raise WireFormatError("a field of a record reaches past its end", reason="CORRUPT_BATCH")
    return body[position:after], after
