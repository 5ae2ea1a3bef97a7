"""Connections without sockets: protocol objects of one loop, joined directly.

A loop mixes `MemoryNetworkMixin` in. Its `create_connection` to a host and port on which something listens in
`network` joins two protocols; every other address goes the way of the loop itself. Bytes arrive in order, by
`call_soon`: with one seed and virtual time, a run repeats exactly.
"""

import asyncio
import contextvars
import socket
from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar
from typing import Any

ProtocolFactory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]


class Cable:
    """The connections that a process has opened. A task's connections belong to the cable of its context."""

    def __init__(self) -> None:
        self.barred: set[str] = set()
        """Hosts to which there is no way. May be shared by cables."""
        self._transports: dict[MemoryTransport, None] = {}
        self._is_cut = False

    def join(self, transport: "MemoryTransport") -> None:
        """Raises ConnectionRefusedError after the cut."""
        if self._is_cut or transport.get_extra_info("peername")[0] in self.barred:
            raise ConnectionRefusedError("the cable is cut")
        self._transports = {each: None for each in self._transports if not each.is_closing()}
        self._transports[transport] = None

    def cut(self) -> None:
        """Reset all connections, and refuse new ones: what was written still arrives."""
        self._is_cut = True
        self._abort(self._transports)

    def bar(self, hosts: Iterable[str]) -> None:
        """Reset the connections to these hosts, and refuse new ones."""
        self.barred.update(hosts)
        self._abort(each for each in self._transports if each.get_extra_info("peername")[0] in self.barred)

    def _abort(self, transports: "Iterable[MemoryTransport]") -> None:
        for transport in transports:
            transport.abort()


CABLE: ContextVar[Cable | None] = ContextVar("cable", default=None)


class MemoryNetwork:
    """Who listens at which (host, port)."""

    def __init__(self) -> None:
        self._listeners: dict[Address, tuple[ProtocolFactory, Context]] = {}
        self._hosts: dict[str, int] = {}
        self._next_port = 50_000

    def add_host(self, host: str) -> None:
        """From now on the name belongs to this network, also while nothing listens: it refuses then."""
        self._hosts.setdefault(host, 0)

    def knows(self, host: str | None) -> bool:
        return host in self._hosts

    def listen(self, host: str, port: int, factory: ProtocolFactory) -> None:
        self.add_host(host)
        if (host, port) in self._listeners:
            raise OSError(f"{host}:{port} is in use")
        self._listeners[host, port] = factory, contextvars.copy_context()

    def stop_listening(self, host: str, port: int) -> None:
        self._listeners.pop((host, port), None)

    def connect(self, loop: asyncio.AbstractEventLoop, factory: ProtocolFactory, address: Address) -> Any:
        """Join a new client protocol with a new one of the listener; returns (transport, protocol).

        Raises ConnectionRefusedError.
        """
        listener = self._listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(f"nothing listens at {address[0]}:{address[1]}")
        make_server, context = listener[0], listener[1].copy()
        client = factory()
        self._next_port += 1
        own = ("client", self._next_port)
        near = MemoryTransport(loop, client, own=own, peer=address)
        cable = CABLE.get()
        if cable is not None:
            cable.join(near)
        server = context.run(make_server)
        far = context.run(MemoryTransport, loop, server, own=address, peer=own)
        near.join(far)
        far.join(near)
        context.run(server.connection_made, far)
        client.connection_made(near)
        return near, client


class _NoSocket:
    """Takes the options that clients set on a connection's socket."""

    def setsockopt(self, *_option: object) -> None:
        """Nothing follows from it in memory."""


class MemoryTransport(asyncio.Transport):
    """One end. What is written here arrives at the other one in the next turn of the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BaseProtocol, *, own: Address, peer: Address
    ) -> None:
        super().__init__({"sockname": own, "peername": peer, "socket": _NoSocket()})
        self._loop = loop
        self._context = contextvars.copy_context()
        """Each end works in its own: what a server begins is not its client's."""
        self._protocol = protocol
        self._other: MemoryTransport | None = None
        self._closing = False
        self._lost = False
        self._paused = False
        self._waiting: list[bytes | None] = []
        """Arrived while reading was paused; None is the end of the other side's bytes."""

    def join(self, other: "MemoryTransport") -> None:
        self._other = other

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing and data:
            self._tell(bytes(data))

    def close(self) -> None:
        """What was written still arrives."""
        if not self._closing:
            self._closing = True
            self._tell(None)
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """As a reset: what has not arrived is lost for both."""
        self._closing = True
        self._loop.call_soon(self._lose, None)
        if self._other is not None:
            self._other.soon(self._other.reset)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            self.soon(self.arrive, data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The network takes everything at once."""

    def _tell(self, data: bytes | None) -> None:
        if self._other is not None:
            self._other.soon(self._other.arrive, data)

    def soon(self, call: Callable[..., None], *arguments: object) -> None:
        """In the next turn of the loop, in the context of this end."""
        self._loop.call_soon(call, *arguments, context=self._context)

    def arrive(self, data: bytes | None) -> None:
        """Take bytes from the other side, None for their end."""
        if self._paused:
            self._waiting.append(data)
        elif self._lost:
            pass
        elif data is not None:
            self._deliver(data)
        elif not self._protocol.eof_received():  # type: ignore[attr-defined]
            self.close()

    def _deliver(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.Protocol):
            protocol.data_received(data)
            return
        assert isinstance(protocol, asyncio.BufferedProtocol)
        position = 0
        while position < len(data):
            room = memoryview(protocol.get_buffer(len(data) - position)).cast("B")
            size = min(len(room), len(data) - position)
            room[:size] = data[position : position + size]
            position += size
            protocol.buffer_updated(size)

    def reset(self) -> None:
        """The other side has aborted."""
        self._closing = True
        self._lose(ConnectionResetError("the peer reset the connection"))

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)


class MemoryNetworkMixin(asyncio.BaseEventLoop):
    """For an event loop: connections to the hosts of `network` need no sockets and no name servers."""

    @property
    def network(self) -> MemoryNetwork:
        network: MemoryNetwork | None = self.__dict__.get("_memory_network")
        if network is None:
            network = self.__dict__["_memory_network"] = MemoryNetwork()
        return network

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        if not self.network.knows(host):
            return await super().create_connection(protocol_factory, host, port, **options)
        if options.get("ssl"):
            raise NotImplementedError("the network in memory has no TLS")
        return self.network.connect(self, protocol_factory, (str(host), int(port)))

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        if not self.network.knows(host):
            return await super().getaddrinfo(host, port, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
