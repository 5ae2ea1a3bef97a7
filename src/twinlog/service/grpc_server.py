"""The gRPC server of a service: health, reflection, limits, and an orderly shutdown."""

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from opentelemetry.metrics import Meter

from twinlog.config import Address
from twinlog.errors import ConfigError, TwinlogError
from twinlog.service.access.gate import PortAccess
from twinlog.service.access.pem_files import Pem
from twinlog.service.answering_process import AnsweringProcess
from twinlog.service.interceptors import REQUEST_SECONDS, RpcBoundary, too_late
from twinlog.service.interceptors import Context as Context
from twinlog.service.limits import MAX_CONCURRENT_RPCS, MAX_CONCURRENT_STREAMS, MAX_MESSAGE_BYTES
from twinlog.service.rpc import GRPC, Rpc
from twinlog.service.waiting import wait_or_stop

_log = structlog.stdlib.get_logger(__name__)

OVERALL = ""
LIVENESS = "liveness"
READINESS = "readiness"

_RENEWAL_SECONDS = 5.0
_HANDSHAKE_SECONDS = 10.0
"""How long a connection may take until it speaks gRPC; gRPC's own limit is two minutes."""
_OLD_STREAMS_SECONDS = 300.0
"""How long streams continue that began under the earlier certificate."""
_NOT_READY_POLL_SECONDS = 0.2
_READY_POLL_SECONDS = 1.0
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""An address of the name that this machine lacks, such as `::1` of `localhost` without IPv6."""
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Clients ping every 30 s; a server that permits less often than that would disconnect them.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.max_concurrent_streams", MAX_CONCURRENT_STREAMS),
    # An idle connection is closed; the client opens another when it needs one. Strangers' connections take
    # files that brokers' need.
    ("grpc.max_connection_idle_ms", 60_000),
    # No pings to measure bandwidth: requests are small, and idle tasks have many streams.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 20),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcService:
    """One proto service: its full name, the generated `add_…Servicer_to_server` and the servicer."""

    name: str
    add: Callable[[Any, grpc.aio.Server], None]
    servicer: object


class GrpcServer:
    """Health answers for "", "liveness", "readiness" and each full service name.

    - "liveness" is SERVING from start to drain: the loops run (one that fails ends the process), and the
      event loop answers. Brokers and peers that are away never change it.
    - "" and the full names are SERVING while `ready()` is true: the service can answer its RPCs. A cluster
      that is away is a status in the answers, so it does not change them either.
    - "readiness" is SERVING while `works()` is true: every flow has an owner, and this process works at those
      it owns. Clusters that were never reached leave it NOT_SERVING.
    """

    def __init__(
        self,
        services: Sequence[GrpcService],
        *,
        service: str,
        listen: Address,
        meter: Meter,
        ready: Callable[[], bool],
        works: Callable[[], bool] | None = None,
        port_file: Path | None = None,
        hindrance: Callable[[], TwinlogError] = too_late,
        access: PortAccess | None = None,
        listen_key: str = "",
        process: AnsweringProcess | None = None,
        renewal_seconds: float = _RENEWAL_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
        handshake_seconds: float = _HANDSHAKE_SECONDS,
        rpc: Rpc = GRPC,
    ) -> None:
        """`works`: see above, None = same as `ready`. `hindrance`: see `RpcBoundary`. `access`: TLS and
        access control, None = neither. `listen_key`: the key of `listen`, by default the service's own.
        `process`: sent with every answer, None = nothing. `renewal_seconds`: interval of reading the
        certificate's files. `request_seconds`: see `RpcBoundary`. `handshake_seconds`: after that a
        connection that has said nothing is closed. `rpc`: makes the server."""
        self._rpc = rpc
        self._options = (*_OPTIONS, ("grpc.server_handshake_timeout_ms", round(handshake_seconds * 1000)))
        self._renewal_seconds = renewal_seconds
        self._listen_key = listen_key or f"twinlog.{service}.listen"
        self._names = [entry.name for entry in services]
        self._service = service
        self._listen = listen
        self._ready = ready
        self._works = works or ready
        self._port_file = port_file
        self._access = access or PortAccess()
        self._health = health.aio.HealthServicer()
        self._services = services
        self._boundary = RpcBoundary(
            service=service,
            meter=meter,
            hindrance=hindrance,
            gate=self._access.gate,
            security=self._access.word,
            process=process,
            request_seconds=request_seconds,
        )
        self._pem = self._access.pem
        self._servers = [self._make_server()]
        """The last one accepts connections; earlier ones finish their streams."""
        self.port = 0
        """The bound port, once started."""

    @property
    def certificate(self) -> Pem | None:
        """That of the port; None without TLS."""
        return self._pem

    async def start(self) -> None:
        """Bind and answer; only liveness is SERVING until `watch_readiness` runs.

        Raises ConfigError (ADDRESS_IN_USE) naming the key when the address cannot be bound.
        """
        await self._set(_NOT_SERVING)
        await self._health.set(READINESS, _NOT_SERVING)
        await self._health.set(LIVENESS, _SERVING)
        key = self._listen_key
        try:
            listen = self._listen
            if self._access.newest is not None:
                listen = Address(host=listen.host, port=free_port(listen))
            self.port = self._access.bind(self._servers[-1], str(listen), self._pem)
        except (RuntimeError, OSError) as error:
            raise ConfigError(
                f"{key}: cannot listen on {self._listen}: the address is in use by another process, or is not"
                f" one of this machine. Choose another one with {key} or --listen (port 0 takes a free one).",
                reason="ADDRESS_IN_USE",
                metadata={"key": key, "address": str(self._listen)},
            ) from error
        await self._servers[-1].start()
        bound = Address(host=self._listen.host, port=self.port)
        _log.info("listening", address=str(bound), port=self.port, services=self._names)
        if not bound.is_loopback and self._access.lacks:
            _log.warning(
                "listening_beyond_loopback",
                address=str(bound),
                message=f"there is no {self._access.lacks}: all who reach this address may change what is"
                " copied; keep it inside a network you trust",
            )
        if self._port_file is not None:
            await asyncio.to_thread(_write_port, self._port_file, self.port)

    async def watch_readiness(self, stop: asyncio.Event) -> None:
        """Loop: health follows `ready()` and `works()`."""
        shown: bool | None = None
        worked: bool | None = None
        while not stop.is_set():
            now_ready, now_works = self._ready(), self._works()
            if now_works is not worked:
                await self._health.set(READINESS, _SERVING if now_works else _NOT_SERVING)
                if worked is not None or now_works:
                    _log.info("readiness_changed", ready=now_works)
                worked = now_works
            if now_ready is not shown:
                await self._set(_SERVING if now_ready else _NOT_SERVING)
                if shown is not None or now_ready:
                    _log.info("serving_changed", serving=now_ready)
                shown = now_ready
            await wait_or_stop(stop, _READY_POLL_SECONDS if now_ready else _NOT_READY_POLL_SECONDS)

    async def renew_certificate(self, stop: asyncio.Event) -> None:
        """Loop: keep the port on the newest certificate.

        gRPC never changes a server's certificate, so a second server takes over the port: both listen for a
        moment, then the first stops accepting. Its calls end, and its streams have `_OLD_STREAMS_SECONDS`. No
        connection is refused; a call that arrives just as the first one stops may be CANCELLED before it
        begins.
        """
        if self._access.newest is None:
            await stop.wait()
            return
        async with asyncio.TaskGroup() as group:
            while not await wait_or_stop(stop, self._renewal_seconds):
                newest = await asyncio.to_thread(self._access.newest)
                if newest == self._pem:
                    continue
                later = self._make_server()
                try:
                    self._access.bind(later, str(Address(host=self._listen.host, port=self.port)), newest)
                except RuntimeError as error:
                    _log.warning("certificate_not_shown", message=f"{error}; the earlier one stays in use")
                    continue
                await later.start()
                earlier = self._servers[-1]
                self._servers.append(later)
                self._pem = newest
                _log.info("certificate_shown", names=sorted(newest.names), expires=newest.expires.isoformat())
                group.create_task(self._end(earlier), name="earlier-certificate")

    async def _end(self, earlier: grpc.aio.Server) -> None:
        # Ends sooner when `stop` is called meanwhile.
        await earlier.stop(_OLD_STREAMS_SECONDS)
        self._servers.remove(earlier)

    def _make_server(self) -> grpc.aio.Server:
        shared = self._access.newest is not None
        server: grpc.aio.Server = self._rpc.server(
            interceptors=[self._boundary],
            # Two processes on one port must be an error, not a lottery; see `free_port` for the shared case.
            options=(*self._options, ("grpc.so_reuseport", int(shared))),
            maximum_concurrent_rpcs=MAX_CONCURRENT_RPCS,
        )
        for entry in self._services:
            entry.add(entry.servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            [*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], server
        )
        return server

    async def leave(self) -> None:
        """Set health to NOT_SERVING permanently: callers stop coming, calls in flight continue.
        Idempotent."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new calls, give open ones `grace_seconds`, then cut them. Returns when all are gone.
        Idempotent."""
        await self.leave()
        async with asyncio.TaskGroup() as group:
            for number, server in enumerate(self._servers):
                group.create_task(server.stop(grace_seconds), name=f"stop-server-{number}")

    async def _set(self, status: Any) -> None:
        for name in (OVERALL, *self._names):
            await self._health.set(name, status)


def free_port(listen: Address, *, resolve: Callable[..., Any] = socket.getaddrinfo) -> int:
    """The port of `listen`, or a free one if that is 0, with no listener at this moment.

    A socket with a shareable port binds although another socket has that port, and port 0 may give it a used
    one. Skips addresses of a name that this machine lacks. Raises OSError when the address is in use, or none
    is of this machine.
    """
    host, port = listen.host.strip("[]"), listen.port
    bound, refused = False, None
    for family, kind, protocol, _, address in resolve(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        try:
            with socket.socket(family, kind, protocol) as found:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                found.bind((address[0], port or address[1], *address[2:]))
                port, bound = found.getsockname()[1], True
        except OSError as error:
            if error.errno not in _NO_SUCH_ADDRESS:
                raise
            refused = error
    if refused is not None and not bound:
        raise refused
    return port


def _write_port(path: Path, port: int) -> None:
    """Write the whole file in one step: a reader that polls for it never sees an empty one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(f"{port}\n")
    partial.replace(path)
