"""The port for tasks: separate from the operators' port, always with TLS, and only for WorkerService.

Both ends authenticate. The driver makes a certificate at its start, and every task gets it with its work, so
the task talks to no other driver. The task shows the token of its epoch, which it got the same way. So
Kafka's credentials, which tasks get over this port, are always encrypted.
"""

import asyncio
from collections.abc import Awaitable, Callable

from opentelemetry.metrics import Meter

from twinlog.api.source.v1.worker_service_pb2 import DESCRIPTOR as WORKER_API
from twinlog.api.source.v1.worker_service_pb2_grpc import add_WorkerServiceServicer_to_server
from twinlog.clock import Clock
from twinlog.config import Address, Configuration, Service
from twinlog.config.security import AuthSettings
from twinlog.errors import ConfigError
from twinlog.service.access.gate import Gate, PortAccess
from twinlog.service.access.pem_files import own_certificate
from twinlog.service.grpc_server import GrpcServer, GrpcService
from twinlog.service.rpc import GRPC, Rpc
from twinlog_source.driver.lender import DriverPlace
from twinlog_source.driver.stream.worker_servicer import WorkerServicer
from twinlog_source.task.stream.session import DRIVER_NAME

ALL_INTERFACES = ("0.0.0.0", "[::]", "::")  # noqa: S104 (recognised, not bound)
LISTEN_KEY = "twinlog.source.worker.listen"


class WorkerPort:
    """Started before the first task, stopped after the last."""

    def __init__(
        self,
        servicer: WorkerServicer,
        *,
        listen: Address,
        meter: Meter,
        clock: Clock,
        rpc: Rpc = GRPC,
    ) -> None:
        self._pem = own_certificate(DRIVER_NAME, clock)
        self._server = GrpcServer(
            [
                GrpcService(
                    name=WORKER_API.services_by_name["WorkerService"].full_name,
                    add=add_WorkerServiceServicer_to_server,
                    servicer=servicer,
                )
            ],
            service=Service.SOURCE,
            listen=listen,
            meter=meter,
            ready=lambda: True,
            access=PortAccess(pem=self._pem, gate=Gate(AuthSettings(), workers=True), lacks="", word="tls"),
            listen_key=LISTEN_KEY,
            rpc=rpc,
        )

    @property
    def certificate(self) -> str:
        """The certificate by which tasks recognise the driver; not a secret."""
        return self._pem.chain.decode()

    @property
    def number(self) -> int:
        """0 until the port is started."""
        return self._server.port

    async def start(self) -> None:
        """Raises ConfigError (ADDRESS_IN_USE)."""
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0.0)


def listen_address(configuration: Configuration) -> Address:
    """The configured address. By default, any free port if only tasks of a Spark inside the service connect;
    otherwise the port that tasks of other machines are told. Raises ConfigError (ADDRESS_IN_USE) if that is
    the port of twinlog.source.listen."""
    spark = configuration.spark
    if spark.worker_listen is not None:
        return spark.worker_listen
    own = configuration.endpoints[Service.SOURCE].listen
    host = own.host
    if spark.worker_endpoint is not None:
        if spark.worker_endpoint.port == own.port != 0:
            raise ConfigError(
                f"twinlog.source.worker.endpoint: port {own.port} is that of twinlog.source.listen, and tasks"
                " have a port of their own: choose another one, for example 17405",
                reason="ADDRESS_IN_USE",
                metadata={"key": "twinlog.source.worker.endpoint", "address": str(own)},
            )
        return Address(host=host, port=spark.worker_endpoint.port)
    return Address(host="127.0.0.1" if spark.is_local else host, port=0)


def endpoint_of(configuration: Configuration, port: int) -> str:
    """The address at which tasks reach the bound port."""
    named = configuration.spark.worker_endpoint
    if named is not None:
        return str(named)
    host = listen_address(configuration).host
    return f"{'127.0.0.1' if host in ALL_INTERFACES else host}:{port}"


class LentPort:
    """Where lent workers find this process: at the port of its own tasks if that is configured, or all is on
    one machine; else at one that opens when the first lender comes, beside the operators' port."""

    def __init__(
        self,
        configuration: Configuration,
        port: WorkerPort,
        *,
        open_port: Callable[[Address], Awaitable[WorkerPort]],
        own_address: Callable[[], str],
    ) -> None:
        """`own_address`: where this process is called. `open_port` raises ConfigError."""
        self._configuration, self._port = configuration, port
        self._open_port, self._own_address = open_port, own_address
        self._opened: WorkerPort | None = None
        self._opening = asyncio.Lock()

    async def place(self) -> DriverPlace:
        """Raises ConfigError."""
        spark, listen = self._configuration.spark, self._configuration.endpoints[Service.SOURCE].listen
        own = Address.parse(self._own_address())
        if spark.worker_endpoint is not None or own.is_loopback:
            endpoint = endpoint_of(self._configuration, self._port.number)
            return DriverPlace(endpoint=endpoint, certificate=self._port.certificate)
        port = self._port
        if listen_address(self._configuration).is_loopback:
            async with self._opening:
                if self._opened is None:
                    self._opened = await self._open_port(Address(host=listen.host, port=0))
            port = self._opened
        endpoint = str(Address(host=own.host, port=port.number))
        return DriverPlace(endpoint=endpoint, certificate=port.certificate)
