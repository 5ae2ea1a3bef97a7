"""One client's connection: frames in, one request after the other, answers out."""

import asyncio
from collections.abc import Awaitable, Callable

from twinlog.testing.broker.codec import UnreadableRequestError
from twinlog.testing.broker.sasl import Login

_LENGTH_BYTES = 4
_LARGEST_FRAME_BYTES = 100 * 1024 * 1024
"""socket.request.max.bytes."""

Serve = Callable[["ClientConnection", bytes], Awaitable[None]]
"""Answers one request."""


class ClientConnection(asyncio.Protocol):
    """As a broker, it looks at the next request only when the one before is answered."""

    def __init__(self, serve: Serve, start: Callable[["ClientConnection"], None]) -> None:
        self.login = Login()
        self.client_host = ""
        self.node_id = -1
        self._serve = serve
        self._start = start
        self._received = bytearray()
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.client_host = str(transport.get_extra_info("peername")[0])
        self._start(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _LENGTH_BYTES:
            length = int.from_bytes(self._received[:_LENGTH_BYTES], signed=True)
            if not 0 <= length <= _LARGEST_FRAME_BYTES:
                self.abort()
                return
            end = _LENGTH_BYTES + length
            if len(self._received) < end:
                break
            self._frames.put_nowait(bytes(self._received[_LENGTH_BYTES:end]))
            del self._received[:end]

    def connection_lost(self, exc: Exception | None) -> None:
        self._frames.put_nowait(None)

    async def run(self) -> None:
        """Serve until the client goes."""
        while (frame := await self._frames.get()) is not None:
            try:
                await self._serve(self, frame)
            except UnreadableRequestError:
                break
        self.close()

    def send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Reset the connection, also for a handler at work."""
        if self._transport is not None:
            self._transport.abort()
