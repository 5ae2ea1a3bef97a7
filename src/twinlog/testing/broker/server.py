"""The brokers of a cluster, listening."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Protocol, Self

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map

from twinlog.clock import SystemClock
from twinlog.kafka.protocol.requests import API_KEYS
from twinlog.testing.broker.acls import Login
from twinlog.testing.broker.calls import KAFKA_4_3, Call, Handler, Release
from twinlog.testing.broker.cluster import Cluster
from twinlog.testing.broker.codec import (
    Fields,
    Request,
    UnreadableRequestError,
    UnsupportedVersionError,
    read_request,
    write_answer,
)
from twinlog.testing.broker.faults import Fault, Faults, Loss
from twinlog.testing.broker.handlers import HANDLERS
from twinlog.testing.broker.partitions import Node
from twinlog.testing.memory_network import MemoryNetwork, MemoryNetworkMixin
from twinlog.testing.virtual_time import LoopClock, VirtualTimeLoop

# Where brokers listen: on sockets of this machine, or in the memory of the loop.

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


# One client's connection: frames in, one request after the other, answers out.

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


_API_VERSIONS = API_KEYS["api_versions"]
_BEFORE_LOGIN = {API_KEYS[name] for name in ("api_versions", "sasl_handshake", "sasl_authenticate")}
_OFTEN_THE_SAME = (_API_VERSIONS, API_KEYS["metadata"])
_QUOTAS = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}


class FakeKafka:
    """`async with FakeKafka() as kafka`: its brokers listen until the end of the block.

    An error in a handler is an error of the block: nothing is answered in its place.
    """

    def __init__(
        self,
        *,
        name: str = "kafka",
        node_count: int = 1,
        seed: int = 0,
        release: Release = KAFKA_4_3,
        handlers: Mapping[int, Handler] = HANDLERS,
    ) -> None:
        """`name` keeps the host names of several clusters of one loop apart."""
        in_memory = isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
        self.cluster = Cluster(
            node_count=node_count,
            clock=LoopClock() if in_memory else SystemClock(),
            random=Random(seed),  # noqa: S311 - it has to repeat itself
        )
        self.faults = Faults()
        self.on_request: Callable[[Node, Request], None] = lambda _node, _request: None
        """Told of every request before it is looked at."""
        self.release = release
        self._name = name
        self._handlers = handlers
        self._told: dict[tuple[int, int, str], bytes] = {}
        """Answers of `_OFTEN_THE_SAME`, by API key, version and fields: writing one takes a millisecond."""
        self._offered = {key: offer for key in handlers if (offer := release.offered(key))}
        self._listeners: dict[int, Listener] = {}
        self._connections: dict[ClientConnection, asyncio.Task[None]] = {}
        self._tasks = asyncio.TaskGroup()

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return ",".join(f"{node.host}:{node.port}" for node in self.cluster.nodes.values())

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        for node in self.cluster.nodes.values():
            listener = self._listeners[node.node_id] = new_listener(self._name, node.node_id)
            await self._listen(node)
            node.host, node.port = listener.host, listener.port
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self._listeners.values():
            listener.close()
        self.cluster.groups.close()
        for connection, task in self._connections.items():
            connection.abort()
            task.cancel()
        try:
            await self._tasks.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if group.exceptions != (error,):
                raise  # Otherwise the block's own error goes on as it is.

    async def _listen(self, node: Node) -> None:
        await self._listeners[node.node_id].open(
            lambda: ClientConnection(partial(self._serve, node), partial(self._start, node))
        )

    def _start(self, node: Node, connection: ClientConnection) -> None:
        connection.node_id = node.node_id
        task = self._tasks.create_task(connection.run(), name=f"broker {node.node_id}: a client")
        self._connections[connection] = task
        task.add_done_callback(lambda _: self._connections.pop(connection, None))

    async def _serve(self, node: Node, connection: ClientConnection, frame: bytes) -> None:
        try:
            request = read_request(frame)
            offer = self._offered.get(request.api_key)
            if offer is None or not offer[0] <= request.version <= offer[1]:
                raise UnsupportedVersionError(request.api_key, request.version, request.correlation_id)
        except UnsupportedVersionError as error:
            self._refuse(connection, error)
            return
        knows_client = self.cluster.passwords is None or connection.login.is_complete
        if not knows_client and request.api_key not in _BEFORE_LOGIN:
            connection.close()
            return
        await self._answer(node, connection, request, len(frame))
        if request.api_key == API_KEYS["sasl_authenticate"] and connection.login.has_failed:
            connection.close()

    async def _answer(self, node: Node, connection: ClientConnection, request: Request, size: int) -> None:
        api = api_key_map[request.api_key]
        self.on_request(node, request)
        faults = self.faults.of(api, node.node_id, request.client_id or "")
        await _pause(sum(each.request_seconds for each in faults))
        for fault in faults:
            if fault.hangs:
                await fault.ended.wait()
        if any(each.swallows_unseen for each in faults):
            return
        loss = next((each.loses for each in faults if each.loses), None)
        if loss is Loss.BEFORE:
            connection.abort()
            return
        answer = await self._handlers[request.api_key](self._call(node, connection, request, faults))
        if loss is Loss.AFTER:
            connection.abort()
        elif answer is not None and not any(each.swallows for each in faults):
            quota_ms = self._quota_ms(connection, request, answer, size)
            throttle_ms = max((quota_ms, *(each.throttle_ms for each in faults)))
            if throttle_ms:
                answer = {**answer, "throttle_time": throttle_ms}
                if api == "fetch":
                    answer = {**answer, "responses": []}
            await self._send(connection, request, answer, faults, cut=loss is Loss.WITHIN)
            await _pause(throttle_ms / 1000)

    def _principal(self, connection: ClientConnection, request: Request) -> str:
        return self.cluster.principals.get(request.client_id or "", connection.login.principal)

    def _quota_ms(self, connection: ClientConnection, request: Request, answer: Fields, size: int) -> int:
        """How long a client with a quota has to wait: its producers by what they send, its consumers by what
        they are sent."""
        key = _QUOTAS.get(api_key_map[request.api_key])
        if key is None or not self.cluster.quotas.by_entity:
            return 0
        if key == "consumer_byte_rate":
            size = len(write_answer(request.api_key, request.version, request.correlation_id, answer))
        user = self._principal(connection, request).removeprefix("User:")
        return self.cluster.quotas.throttle_ms(key, user, request.client_id or "", size)

    def _call(
        self, node: Node, connection: ClientConnection, request: Request, faults: Sequence[Fault]
    ) -> Call:
        return Call(
            cluster=self.cluster,
            node=node,
            release=self.release,
            api_key=request.api_key,
            version=request.version,
            client_id=request.client_id or "",
            client_host=connection.client_host,
            principal=self._principal(connection, request),
            login=connection.login,
            body=request.body,
            offered=self._offered,
            injected=next((each.error for each in faults if each.error), ErrorCode.none),
        )

    async def _send(
        self,
        connection: ClientConnection,
        request: Request,
        answer: Fields,
        faults: Sequence[Fault],
        *,
        cut: bool,
    ) -> None:
        data = self._written(request, answer)
        await _pause(sum(each.answer_seconds for each in faults))
        if cut:
            connection.send(data[: len(data) // 2])
            connection.close()
            return
        connection.send(data)

    def _written(self, request: Request, answer: Fields) -> bytes:
        if request.api_key not in _OFTEN_THE_SAME:
            return write_answer(request.api_key, request.version, request.correlation_id, answer)
        # What a broker offers does not change.
        fields = {**answer, "api_keys": ()} if request.api_key == _API_VERSIONS else answer
        key = request.api_key, request.version, repr(fields)
        if key not in self._told:
            self._told[key] = write_answer(request.api_key, request.version, 0, answer)
        told = self._told[key]
        return told[:4] + request.correlation_id.to_bytes(4, signed=True) + told[8:]

    async def stop_node(self, node_id: int, *, is_noticed: bool = True) -> None:
        """The broker is away: nothing listens there, and its connections are reset. Not `is_noticed`: too few
        controllers are left, and the metadata stays as it was."""
        if is_noticed:
            self.cluster.node_down(node_id)
        self._listeners[node_id].close()
        for connection, task in list(self._connections.items()):
            if connection.node_id == node_id:
                connection.abort()
                task.cancel()

    async def start_node(self, node_id: int) -> None:
        """It is back, at the same address."""
        await self._listen(self.cluster.nodes[node_id])
        self.cluster.node_up(node_id)

    def _refuse(self, connection: ClientConnection, error: UnsupportedVersionError) -> None:
        """A broker closes the connection; only ApiVersions is answered, in version 0, with what it offers of
        itself (KIP-511)."""
        if error.api_key != _API_VERSIONS:
            connection.close()
            return
        lowest, highest = self._offered[_API_VERSIONS]
        answer = {
            "error_code": ErrorCode.unsupported_version,
            "api_keys": [{"api_key": _API_VERSIONS, "min_version": lowest, "max_version": highest}],
        }
        connection.send(write_answer(_API_VERSIONS, 0, error.correlation_id, answer))


async def _pause(seconds: float) -> None:
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().create_future()
