"""Where brokers listen: on sockets of this machine, or in the memory of the loop."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from twinlog.testing.memory_network import MemoryNetwork, MemoryNetworkMixin

ProtocolFactory = Callable[[], asyncio.Protocol]
_MEMORY_PORT = 9092


class Listener(Protocol):
    """A place at which a broker listens, or listened."""

    host: str
    port: int

    async def open(self, factory: ProtocolFactory) -> None:
        """Listen. The port stays the same after the first time."""
        ...

    def close(self) -> None:
        """Refuse new connections."""
        ...


class SocketListener:
    def __init__(self) -> None:
        self.host, self.port = "127.0.0.1", 0
        self._server: asyncio.Server | None = None

    async def open(self, factory: ProtocolFactory) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(factory, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


class MemoryListener:
    def __init__(self, network: MemoryNetwork, host: str) -> None:
        self._network = network
        self.host, self.port = host, _MEMORY_PORT
        network.add_host(host)

    async def open(self, factory: ProtocolFactory) -> None:
        self._network.listen(self.host, self.port, factory)

    def close(self) -> None:
        self._network.stop_listening(self.host, self.port)


def new_listener(cluster: str, node_id: int) -> Listener:
    """In memory if the running loop can, otherwise a socket."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, MemoryNetworkMixin):
        return MemoryListener(loop.network, f"broker-{node_id}.{cluster}.test")
    return SocketListener()
