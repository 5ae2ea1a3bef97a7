"""What listens like a broker, and answers nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from twinlog.errors import KafkaError

PATIENT_SECONDS = 60.0
"""The bound of calls that a setting is to end sooner."""


@dataclass(slots=True, kw_only=True)
class Listener:
    """Accepts connections."""

    _hold: list[asyncio.StreamWriter] = field(default_factory=list)

    async def on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._hold.append(writer)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.on_connection, "127.0.0.1", 0)
        try:
            host, port = server.sockets[0].getsockname()[:2]
            yield f"{host}:{port}"
        finally:
            for writer in self._hold:
                writer.close()
            server.close()


async def refused(call: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(KafkaError):
        await call()
