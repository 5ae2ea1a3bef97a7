"""The way to a broker, which a test can cut: what is sent is not lost at once, it stays on its way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from twinlog.local.spec import ADDRESS

_CHUNK_BYTES = 1 << 16


class CutLink:
    """While it is cut nothing comes through, and no connection ends: as with a cable that is pulled."""

    def __init__(self) -> None:
        self._whole = asyncio.Event()
        self._whole.set()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def carry(
        self, near: asyncio.StreamReader, near_writer: asyncio.StreamWriter, broker_port: int
    ) -> None:
        """One connection, until either end closes it."""
        writers = [near_writer]
        try:
            await self._whole.wait()
            far, far_writer = await asyncio.open_connection(ADDRESS, broker_port)
            writers.append(far_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(near, far_writer), name="to the broker")
                group.create_task(self._pass_on(far, near_writer), name="from the broker")
        except OSError:
            return  # The broker is away.
        finally:
            for writer in writers:
                writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def cut_link(port: int, broker_port: int, *, host: str = ADDRESS) -> AsyncIterator[CutLink]:
    """Listens at `port`, and leads to the broker as long as this lasts."""
    link = CutLink()
    async with asyncio.TaskGroup() as group:
        connections: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = group.create_task(link.carry(reader, writer, broker_port), name="a connection")
            connections.add(task)
            task.add_done_callback(connections.discard)

        server = await asyncio.start_server(accept, host, port)
        try:
            yield link
        finally:
            server.close()
            for task in list(connections):
                task.cancel()
