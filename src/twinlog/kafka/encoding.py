"""The protocol's primitive types, for requests written by hand: packed to bytes, read from a frame in place.

Layouts: "Protocol Primitive Types" of Kafka's protocol guide.
"""

import struct

Frame = bytes | bytearray

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")


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
