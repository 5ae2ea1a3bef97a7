"""The body of a record: what follows its offset delta, and reads the same in every batch.

key length varint (-1 = null), key, value length, value, header count, and per header key length, key, value
length, value.
"""

from typing import NamedTuple

from twinlog.batches.varint import decode_varint, encode_varint
from twinlog.errors import WireFormatError

OpenRecord = tuple[int, int, bytes]
"""(offset, timestamp in ms, body). A bare tuple: one is made per record."""

LEAST_BYTES_PER_RECORD = 64
"""What a record takes of the memory that a batch may take, however small it is: an open one is three
objects."""

RawHeaders = tuple[tuple[bytes, bytes | None], ...]

_NULL = b"\x01"


class DecodedRecord(NamedTuple):
    """A record with its parts as bytes; header keys too, as producers may write what is not UTF-8."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RawHeaders


def encode_body(key: bytes | None, value: bytes | None, headers: RawHeaders = ()) -> bytes:
    pieces: list[bytes] = []
    _put_nullable(pieces, key)
    _put_nullable(pieces, value)
    pieces.append(encode_varint(len(headers)))
    for header_key, header_value in headers:
        _put_nullable(pieces, header_key)
        _put_nullable(pieces, header_value)
    return b"".join(pieces)


def decode_record(record: OpenRecord) -> DecodedRecord:
    """Take a body apart. Raises WireFormatError (CORRUPT_BATCH) when it is not exactly one record."""
    offset, timestamp_ms, body = record
    key, position = _take_nullable(body, 0)
    value, position = _take_nullable(body, position)
    count, position = decode_varint(body, position)
    headers = []
    for _ in range(count):
        header_key, position = _take_nullable(body, position)
        header_value, position = _take_nullable(body, position)
        if header_key is None:
            raise WireFormatError("the key of a header is null", reason="CORRUPT_BATCH")
        headers.append((header_key, header_value))
    if position != len(body) or count < 0:
        raise WireFormatError(
            f"the record at offset {offset} does not end where its length says",
            reason="CORRUPT_BATCH",
            metadata={"offset": str(offset)},
        )
    return DecodedRecord(offset, timestamp_ms, key, value, tuple(headers))


def _put_nullable(pieces: list[bytes], field: bytes | None) -> None:
    if field is None:
        pieces.append(_NULL)
    else:
        pieces += (encode_varint(len(field)), field)


def _take_nullable(body: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(body, position)
    if length < 0:
        return None, position
    after = position + length
    if after > len(body):
        raise WireFormatError("a field of a record reaches past its end", reason="CORRUPT_BATCH")
    return body[position:after], after
