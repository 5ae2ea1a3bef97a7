"""The protocol's primitive types for hand-written requests: packed into bytes, read from a frame in place.

Layouts: "Protocol Primitive Types" of Kafka's protocol guide.
"""

import base64
import struct

Frame = bytes | bytearray

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
TOPIC_ID_BYTES = 16
_LAST_SHIFT = 28
NO_TAGS = b"\0"
"""The end of a structure of a flexible version (KIP-482)."""


def string(text: str) -> bytes:
    encoded = text.encode()
    return INT16.pack(len(encoded)) + encoded


def nullable_string(text: str | None) -> bytes:
    return INT16.pack(-1) if text is None else string(text)


def take_int32(data: Frame, position: int) -> tuple[int, int]:
    return INT32.unpack_from(data, position)[0], position + 4


def take_string(data: Frame, position: int) -> tuple[str, int]:
    """A string, or "" for null."""
    (length,) = INT16.unpack_from(data, position)
    position += 2
    after = position + max(length, 0)
    return data[position:after].decode(), after


def compact_length(length: int) -> bytes:
    """Encode the length of a compact string, array or bytes: plus one, as a varint of seven bits to the
    byte."""
    left = length + 1
    if left < 0x80:
        return bytes((left,))
    packed = bytearray()
    while left >= 0x80:
        packed.append(left & 0x7F | 0x80)
        left >>= 7
    packed.append(left)
    return bytes(packed)


def compact_string(text: str) -> bytes:
    encoded = text.encode()
    return compact_length(len(encoded)) + encoded


def compact_nullable_string(text: str | None) -> bytes:
    return b"\0" if text is None else compact_string(text)


def raw_topic_id(topic_id: str) -> bytes:
    """From unpadded base64 as brokers print it; empty if it is not valid."""
    try:
        return base64.urlsafe_b64decode(topic_id + "==")
    except ValueError:
        return b""


def take_varint(data: Frame, position: int) -> tuple[int, int]:
    """An unsigned varint. Raises ValueError for one of more than five bytes, because Kafka's have 32 bits."""
    value = shift = 0
    while shift <= _LAST_SHIFT:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a varint has no end")


def take_compact_length(data: Frame, position: int) -> tuple[int, int]:
    """The length of a compact string, array or bytes, and the position after it; null counts as empty."""
    length, position = take_varint(data, position)
    return max(length - 1, 0), position


def take_compact_string(data: Frame, position: int) -> tuple[str, int]:
    """A compact string, or "" for null."""
    length, position = take_compact_length(data, position)
    after = position + length
    return data[position:after].decode(), after


def skip_tags(data: Frame, position: int) -> int:
    """The position after a set of tagged fields."""
    count, position = take_varint(data, position)
    for _ in range(count):
        _, position = take_varint(data, position)
        size, position = take_varint(data, position)
        position += size
    return position
