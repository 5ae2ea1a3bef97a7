"""The brokers of a cluster, listening."""

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random
from types import TracebackType
from typing import Self

from kio.schema.errors import ErrorCode

from twinlog.clock import Clock, SystemClock
from twinlog.testing.broker.calls import API_KEYS, Call, Handler
from twinlog.testing.broker.cluster import Cluster
from twinlog.testing.broker.codec import UnsupportedVersionError, read_request, write_answer
from twinlog.testing.broker.connection import ClientConnection
from twinlog.testing.broker.handlers import HANDLERS
from twinlog.testing.broker.networks import Listener, new_listener
from twinlog.testing.broker.partitions import Node
from twinlog.testing.broker.releases import KAFKA_4_3, Release
from twinlog.testing.virtual_time import LoopClock, VirtualTimeLoop

_API_VERSIONS = API_KEYS["api_versions"]


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
        clock: Clock | None = None,
        auto_create: bool = False,
        handlers: Mapping[int, Handler] = HANDLERS,
    ) -> None:
        """`name` keeps the host names of several clusters of one loop apart."""
        in_memory = isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
        self.cluster = Cluster(
            node_count=node_count,
            clock=clock or (LoopClock() if in_memory else SystemClock()),
            random=Random(seed),  # noqa: S311 - it has to repeat itself
            auto_create=auto_create,
        )
        self.release = release
        self._name = name
        self._handlers = handlers
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
        call = Call(
            cluster=self.cluster,
            node=node,
            release=self.release,
            api_key=request.api_key,
            version=request.version,
            client_id=request.client_id or "",
            client_host=connection.client_host,
            principal=self.cluster.principals.get(request.client_id or "", connection.principal),
            body=request.body,
            offered=self._offered,
        )
        answer = await self._handlers[request.api_key](call)
        if answer is not None:
            connection.send(write_answer(request.api_key, request.version, request.correlation_id, answer))

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
