"""A slow line to a cluster: every connection goes through proxies that share so many bytes a second."""

import asyncio
import contextlib
from dataclasses import dataclass, field

_PIECE_BYTES = 16 << 10


@dataclass(slots=True)
class SlowWay:
    """Both directions have the same rate. Proxies live until `close`."""

    bytes_per_second: float
    _ports: dict[tuple[str, int], int] = field(default_factory=dict)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _free_at: dict[str, float] = field(default_factory=dict)

    async def port_to(self, host: str, port: int) -> int:
        """The port of 127.0.0.1 that forwards to the broker."""
        if (host, port) not in self._ports:

            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with contextlib.suppress(OSError):
                    there_reader, there_writer = await asyncio.open_connection(host, port)
                    self._writers |= {writer, there_writer}
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._carry(reader, there_writer, "there"), name="there")
                        group.create_task(self._carry(there_reader, writer, "back"), name="back")

            # Small buffers, as on a line: written data is in transit, not in a local queue.
            server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=_PIECE_BYTES)
            self._servers.append(server)
            self._ports[host, port] = server.sockets[0].getsockname()[1]
        return self._ports[host, port]

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.transport.abort()
        for server in self._servers:
            await server.wait_closed()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str
    ) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await reader.read(_PIECE_BYTES):
                free_at = max(self._free_at.get(direction, 0.0), loop.time())
                self._free_at[direction] = free_at + len(data) / self.bytes_per_second
                await asyncio.sleep(self._free_at[direction] - loop.time())  # noqa: TID251  # the line's time
                writer.write(data)
                await writer.drain()
        writer.close()
