"""Splits a connection's bytes into Kafka's frames, without copying large ones.

A frame is a size of four bytes, then that many bytes. asyncio's streams copy everything three times; here the
socket is read into the frame itself as soon as its size is known.

Invariant: frames are delivered complete, in order, and only while the connection is open.
"""

import asyncio
import base64
import struct
import threading
from collections.abc import Callable
from typing import cast

# The protocol's primitive types for hand-written requests: packed into bytes, read from a frame in place.
#
# Layouts: "Protocol Primitive Types" of Kafka's protocol guide.

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


SMALL_FRAME_BYTES = 64 << 10
"""Frames up to this size are read together, as many as have arrived, and copied once."""
LARGEST_FRAME_BYTES = 100 << 20
"""The largest accepted answer without batches; the metadata of a
million partitions are smaller."""

_SIZE = struct.Struct(">i")
_TLS_ALERT = 0x1503
"""The answer of a TLS port to a client without TLS, at the place of an answer's size."""


class FrameTooLargeError(ConnectionError):
    """The next frame is larger than the answer to the request may be."""


class _Small(threading.local):
    """Where the connections of a thread's event loop receive small frames, one after the other: most of a
    process's connections wait, and a buffer of their own would be most of what they take."""

    def __init__(self) -> None:
        self.data = bytearray(SMALL_FRAME_BYTES)
        self.view = memoryview(self.data)


_SMALL = _Small()


class FrameProtocol(asyncio.BufferedProtocol):
    """The receiving half of a connection. `deliver` gets each frame, `lost` is called once, at the end."""

    def __init__(
        self,
        deliver: Callable[[Frame], None],
        lost: Callable[[BaseException | None], None],
        largest: Callable[[], int] = lambda: LARGEST_FRAME_BYTES,
    ) -> None:
        """`largest` returns how large the next frame may be; a larger one ends the connection."""
        self._deliver = deliver
        self._lost = lost
        self._largest = largest
        self.received_bytes = 0
        """Since the connection was made."""
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        """The beginning of a small frame."""
        self._filled = 0
        self._frame: bytearray | None = None
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._is_over = True
        self._transport = None
        self._lost(exc)

    def eof_received(self) -> bool:
        self._is_over = True
        return False

    def at_eof(self) -> bool:
        """Whether nothing more can arrive."""
        return self._is_over

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        # Not `_filled`: TLS asks again while a frame is delivered whose receiver closes the connection.
        begun = len(self._rest)
        _SMALL.data[:begun] = self._rest
        return _SMALL.view[begun:]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self.received_bytes += nbytes
        if self._frame is None:
            self._cut_small()
        elif self._filled == len(self._frame):
            frame, self._frame, self._rest, self._filled = self._frame, None, b"", 0
            self._deliver(frame)

    def _cut_small(self) -> None:
        small, position, filled = _SMALL.view, 0, self._filled
        while filled - position >= _SIZE.size and not self._is_over:
            (size,) = _SIZE.unpack_from(small, position)
            if not 0 <= size <= SMALL_FRAME_BYTES and not 0 <= size <= self._largest():
                self._refuse(size)
                return
            begin, after = position + _SIZE.size, position + _SIZE.size + size
            if after > filled:
                if after - position > SMALL_FRAME_BYTES:
                    self._begin_large(size, begin)
                    return
                break
            self._deliver(bytes(small[begin:after]))
            position = after
        self._rest = bytes(small[position:filled])
        self._filled = filled - position

    def _begin_large(self, size: int, begin: int) -> None:
        self._frame = bytearray(size)
        here = self._filled - begin
        self._frame[:here] = _SMALL.view[begin : self._filled]
        self._filled = here

    def _refuse(self, size: int) -> None:
        """The peer does not speak Kafka's protocol, or sends more than was requested."""
        self._is_over = True
        self._rest, self._filled = b"", 0
        if self._transport is not None:
            self._transport.abort()
        if size >> 16 == _TLS_ALERT:
            self._lost(ConnectionError("the broker answers with a TLS alert: check security.protocol"))
            return
        self._lost(FrameTooLargeError(f"a frame of {size} bytes is not an answer to what was asked"))
