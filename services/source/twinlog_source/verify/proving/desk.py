"""A local server by which the tasks of a verification on Spark ask the process that started them: for client
settings (they contain secrets, which Spark must not carry in files or command lines), for records that have
arrived on the target, and for offsets of times. One JSON document per line, in both directions."""

import asyncio
import contextlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from twinlog.errors import TransientKafkaError, TwinlogError

_MOST_LINE_BYTES = 1 << 20
_ANSWER_SECONDS = 120.0

Handler = Callable[[dict[str, Any]], Awaitable[Any]]
"""Answers within much less than `_ANSWER_SECONDS`."""
Connect = Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""`asyncio.open_connection`."""


@dataclass(slots=True, kw_only=True)
class Desk:
    """An async context manager that serves while it is open. It only answers callers that know the token."""

    host: str
    handlers: Mapping[str, Handler]
    """By the first word of a request."""
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def endpoint(self) -> tuple[str, int]:
        assert self._server is not None
        return self.host, int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, 0, limit=_MOST_LINE_BYTES)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError, ValueError):
            token = (await reader.readline()).strip()
            if hmac.compare_digest(token, self.token.encode()):
                while line := await reader.readline():
                    writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                    await writer.drain()
        self._writers.discard(writer)
        writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        asked = json.loads(line)
        try:
            return {"answer": await self.handlers[asked.pop("ask")](asked)}
        except TwinlogError as error:
            return {"reason": error.reason, "error": str(error)}


@dataclass(slots=True, kw_only=True)
class DeskClient:
    """A task's side. An async context manager. Raises TransientKafkaError when the server is gone.

    Invariant: an answer belongs to the last question. A question without an answer closes the connection, and
    the next one opens another.
    """

    endpoint: tuple[str, int]
    token: str
    connect: Connect = asyncio.open_connection
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._writer is not None:
            self._writer.close()

    async def ask(self, what: str, **question: Any) -> Any:
        """Return the answer. Raises TransientKafkaError with the reason of a refusal."""
        async with self._asking:
            assert self._writer is not None
            if self._writer.is_closing():
                await self._open()
            assert self._reader is not None
            line = b""
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    self._writer.write(json.dumps({"ask": what, **question}).encode() + b"\n")
                    await self._writer.drain()
                    line = await self._reader.readline()
            except (OSError, TimeoutError) as error:
                raise _gone() from error
            finally:
                if not line:
                    self._writer.close()
        if not line:
            raise _gone()
        told = json.loads(line)
        if "reason" in told:
            raise TransientKafkaError(told["error"], reason=told["reason"])
        return told["answer"]

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                self._reader, self._writer = await self.connect(*self.endpoint, limit=_MOST_LINE_BYTES)
        except (OSError, TimeoutError) as error:
            raise _gone() from error
        self._writer.write(self.token.encode() + b"\n")


def _gone() -> TwinlogError:
    return TransientKafkaError(
        "the process that started the verification does not answer", reason="KAFKA_UNAVAILABLE"
    )
