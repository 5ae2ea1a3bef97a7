"""One call between a client and a server: two streams of bytes, metadata, and one status."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

Metadata = tuple[tuple[str, str | bytes], ...]

_WINDOW_BYTES = 64 << 10
"""Bytes that a sender may be ahead of its receiver, as HTTP/2's default."""


@dataclass(frozen=True, slots=True)
class Status:
    code: grpc.StatusCode
    details: str = ""
    trailing: Metadata = ()


CANCELLED = Status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
TOO_LATE = Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
SOCKET_CLOSED = Status(grpc.StatusCode.UNAVAILABLE, "Socket closed")


class Pipe:
    """Messages in one direction, for one reader and one writer at a time."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._closed = False
        self._changed = asyncio.Event()

    async def put(self, message: bytes) -> None:
        """Wait for room. What is put into a closed pipe is lost."""
        while self._bytes > _WINDOW_BYTES and not self._closed:
            await self._change()
        if not self._closed:
            self._messages.append(message)
            self._bytes += len(message)
            self._changed.set()

    async def get(self) -> bytes | None:
        """The next message; None after the last."""
        while not self._messages:
            if self._closed:
                return None
            await self._change()
        message = self._messages.popleft()
        self._bytes -= len(message)
        self._changed.set()
        return message

    def close(self, *, lose: bool = False) -> None:
        """`lose` what was not read yet."""
        self._closed = True
        if lose:
            self._messages.clear()
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


@dataclass(slots=True, eq=False, kw_only=True)
class Link:
    """One call. It has ended once it has a status; the first one counts."""

    method: str
    peer: str
    metadata: Metadata = ()
    deadline: float | None = None
    """In the loop's seconds."""
    requests: Pipe = field(default_factory=Pipe)
    answers: Pipe = field(default_factory=Pipe)
    initial: Metadata | None = None
    """None while the server has sent none."""
    status: Status | None = None
    on_end: list[Callable[[], object]] = field(default_factory=list)
    """Called once, at the end."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, metadata: Metadata) -> None:
        """The server's initial metadata; only the first is sent."""
        if self.initial is None:
            self.initial = metadata
            self._changed.set()

    def end(self, status: Status) -> None:
        if self.status is not None:
            return
        self.status = status
        self.requests.close(lose=True)
        # A status that the server did not send overtakes its messages.
        self.answers.close(lose=status in (CANCELLED, TOO_LATE))
        self._changed.set()
        for call in self.on_end:
            call()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the begin or the end."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()
