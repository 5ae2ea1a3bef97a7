"""What stands for the module `grpc.aio` in one process, and the network between processes."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import grpc

from twinlog.testing.rpc.channel import MemoryChannel
from twinlog.testing.rpc.link import SOCKET_CLOSED, Link, Status
from twinlog.testing.rpc.server import MemoryServer

_FIRST_FREE_PORT = 40_000


class RpcNetwork:
    """One machine: who listens at which port."""

    def __init__(self) -> None:
        self._servers: dict[int, MemoryServer] = {}
        self._next_port = _FIRST_FREE_PORT
        self._waiting: list[asyncio.Future[None]] = []

    def bind(self, server: MemoryServer, address: str) -> int:
        """Raises RuntimeError, as gRPC does."""
        port = int(address.rpartition(":")[2])
        if port == 0:
            self._next_port += 1  # Nobody names ports of this range.
            port = self._next_port
        if port in self._servers:
            raise RuntimeError(f"Failed to bind to address {address}")
        self._servers[port] = server
        server.on_close.append(partial(self._servers.pop, port, None))
        return port

    def tell(self) -> None:
        """A server serves now."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def connect(self, target: str, link: Link, wait_for_ready: bool) -> None:
        """Give the call to the server at the target. Without one it fails, or waits until it is ended."""
        port = int(target.rpartition(":")[2])
        while (server := self._servers.get(port)) is None or not server.serves:
            if not wait_for_ready:
                refused = f"ipv4:127.0.0.1:{port}: Failed to connect to remote host: Connection refused"
                told = f"failed to connect to all addresses; last error: UNKNOWN: {refused}"
                link.end(Status(grpc.StatusCode.UNAVAILABLE, told))
                return
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        server.accept(link)


class MemoryRpc:
    """`grpc.aio` of one process."""

    def __init__(self, network: RpcNetwork) -> None:
        self._network = network
        self._servers: list[MemoryServer] = []
        self._links: dict[Link, None] = {}
        self._next_port = 1024
        self._is_cut = False

    def server(
        self, *, interceptors: Sequence[Any] = (), options: Any = (), maximum_concurrent_rpcs: Any = None
    ) -> MemoryServer:
        server = MemoryServer(self._network.bind, interceptors, self._network.tell)
        self._servers.append(server)
        return server

    def insecure_channel(
        self, target: str, *, options: Any = (), interceptors: Sequence[Any] = ()
    ) -> MemoryChannel:
        self._next_port += 1
        return MemoryChannel(
            partial(self._connect, target), f"ipv4:127.0.0.1:{self._next_port}", interceptors
        )

    def secure_channel(
        self, target: str, credentials: Any, options: Any = (), *, interceptors: Sequence[Any] = ()
    ) -> MemoryChannel:
        """There is no TLS in memory: a secure port takes all."""
        return self.insecure_channel(target, options=options, interceptors=interceptors)

    def cut(self) -> None:
        """The process has gone, or its cable: all calls break, in both directions, and none begins."""
        self._is_cut = True
        for server in self._servers:
            server.cut(SOCKET_CLOSED)
        for link in list(self._links):
            link.end(SOCKET_CLOSED)

    async def _connect(self, target: str, link: Link, wait_for_ready: bool) -> None:
        if self._is_cut:
            link.end(SOCKET_CLOSED)
            return
        self._links[link] = None
        link.on_end.append(partial(self._links.pop, link, None))
        await self._network.connect(target, link, wait_for_ready)
