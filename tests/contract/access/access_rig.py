"""A port with roles, certificates and tokens, and callers of every kind."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2, checkpoint_service_pb2_grpc
from twinlog.api.common.v1 import (
    owners_service_pb2,
    owners_service_pb2_grpc,
    table_service_pb2,
    table_service_pb2_grpc,
)
from twinlog.api.configsync.v1 import configsync_service_pb2, configsync_service_pb2_grpc
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2, heartbeat_service_pb2_grpc
from twinlog.api.source.v1 import (
    source_service_pb2,
    source_service_pb2_grpc,
    worker_service_pb2,
    worker_service_pb2_grpc,
)
from twinlog.config import Address
from twinlog.config.security import AuthSettings, PeerSecurity, TlsFiles
from twinlog.errors import TwinlogError
from twinlog.local.certificates import Authority
from twinlog.service.access.gate import Gate, PortAccess, TokenVerifier, caller_name
from twinlog.service.access.pem_files import PemFiles
from twinlog.service.access.roles import Role
from twinlog.service.access.tokens import TokenFile
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.grpc_server import Context, GrpcServer, GrpcService
from twinlog.service.peers import open_channel

SERVICES = {
    "SourceService": (source_service_pb2, source_service_pb2_grpc),
    "WorkerService": (worker_service_pb2, worker_service_pb2_grpc),
    "CheckpointService": (checkpoint_service_pb2, checkpoint_service_pb2_grpc),
    "HeartbeatService": (heartbeat_service_pb2, heartbeat_service_pb2_grpc),
    "TableService": (table_service_pb2, table_service_pb2_grpc),
    "OwnersService": (owners_service_pb2, owners_service_pb2_grpc),
    "ConfigSyncService": (configsync_service_pb2, configsync_service_pb2_grpc),
}


METHODS: list[MethodDescriptor] = [
    method
    for name, (messages, _) in SERVICES.items()
    for method in messages.DESCRIPTOR.services_by_name[name].methods
]


OPERATORS = {
    "PauseReplication",
    "ResumeReplication",
    "SetThrottle",
    "AcknowledgeGaps",
    "AcknowledgeForeignWrites",
    "TryTransform",
    "Calibrate",
    "ApplySync",
    "CancelMove",
    "MoveFlow",
}


ADMINS = {"SetPositions", "UpdateRules", "RunFailover", "RunFailback", "AbortMove", "LendCores"}


AUTH = AuthSettings(
    viewers=("cn:viewer", "cn:source"), operators=("dns:operator.example",), admins=("cn:admin",)
)


PEOPLE = ("viewer", "operator", "admin", "stranger")


TIMEOUT_SECONDS = 60.0


def expected(method: MethodDescriptor, role: Role) -> str:
    """The reason of a refusal; empty for a call that is let through."""
    if method.containing_service.name == "WorkerService":
        return "WRONG_PORT"
    needed = (
        Role.ADMIN if method.name in ADMINS else Role.OPERATOR if method.name in OPERATORS else Role.VIEWER
    )
    return "" if role >= needed else "NOT_AUTHORIZED"


class _Answers:
    """Any method of any service: who called; refused while there is a refusal."""

    def __init__(self, seen: list[tuple[str, str]], refusals: list[TwinlogError]) -> None:
        self._seen = seen
        self._refusals = refusals

    def _note(self, method: str, context: Context) -> None:
        self._seen.append((method, caller_name("claimed", context)))
        for refusal in self._refusals:
            raise refusal

    def method(self, method: MethodDescriptor) -> Any:
        answer = GetMessageClass(method.output_type)
        if not method.server_streaming:

            async def unary(request: Any, context: Context) -> Any:
                self._note(method.name, context)
                return answer()

            return unary

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            self._note(method.name, context)
            yield answer()

        return stream


def services(seen: list[tuple[str, str]], refusals: list[TwinlogError]) -> list[GrpcService]:
    answers = _Answers(seen, refusals)
    found = []
    for name, (messages, stubs) in SERVICES.items():
        descriptor = messages.DESCRIPTOR.services_by_name[name]
        servicer = type(
            name, (), {each.name: staticmethod(answers.method(each)) for each in descriptor.methods}
        )
        add = getattr(stubs, f"add_{name}Servicer_to_server")
        found.append(GrpcService(name=descriptor.full_name, add=add, servicer=servicer()))
    return found


def put(file: str, content: bytes) -> None:
    Path(file).write_bytes(content)


def got(file: str) -> bytes:
    return Path(file).read_bytes()


@dataclass(slots=True)
class Port:
    """A server with every service, and clients of it."""

    directory: Path
    authority: Authority
    server: GrpcServer
    files: TlsFiles | None
    seen: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[TwinlogError] = field(default_factory=list)
    """What every call is refused with, while there is one."""

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def client(self, files: TlsFiles | None = None, token: str = "") -> PeerSecurity:
        """Who shows these; trusts the authority."""
        ca = self.directory / "trusted.ca"
        ca.write_bytes(self.authority.pem)
        token_file = ""
        if token:
            token_file = str(self.directory / f"{hashlib.sha256(token.encode()).hexdigest()}.token")
            Path(token_file).write_text(token + "\n")
        return PeerSecurity(
            tls=self.files is not None,
            ca=str(ca),
            certificate="" if files is None else files.certificate,
            key="" if files is None else files.key,
            token_file=token_file,
        )

    async def refusal(self, method: MethodDescriptor, channel: grpc.aio.Channel) -> str:
        """The reason for which a call was refused; empty when it was answered."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        kind = ("stream" if method.client_streaming else "unary") + (
            "_stream" if method.server_streaming else "_unary"
        )
        request = GetMessageClass(method.input_type)()
        call = getattr(channel, kind)(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        try:
            if method.client_streaming:
                await call(timeout=TIMEOUT_SECONDS).read()
            elif method.server_streaming:
                async for _ in call(request, timeout=TIMEOUT_SECONDS):
                    pass
            else:
                await call(request, timeout=TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as failure:
            return error_from_rpc(failure, peer="the port").reason
        return ""

    async def every_refusal(self, security: PeerSecurity) -> dict[str, str]:
        async with open_channel(self.endpoint, security) as channel:
            return {method.full_name: await self.refusal(method, channel) for method in METHODS}

    async def shows(self, chain: bytes) -> bool:
        """Whether the next connection gets this certificate."""
        try:
            shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", self.server.port))
        except (ConnectionResetError, ssl.SSLEOFError):
            # It met the server of the earlier certificate, just closing; another one listens already.
            return False
        return shown.strip() in chain.decode()

    async def failure(self, security: PeerSecurity) -> TwinlogError:
        """What a look at the port fails with."""
        async with open_channel(self.endpoint, security) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await look(channel)
            return error_from_rpc(failed.value, peer="the port")


async def look(channel: grpc.aio.Channel) -> None:
    stub = heartbeat_service_pb2_grpc.HeartbeatServiceStub(channel)
    await stub.GetTopology(heartbeat_service_pb2.GetTopologyRequest(), timeout=TIMEOUT_SECONDS)


@asynccontextmanager
async def opened(
    directory: Path,
    *,
    tls: bool = True,
    certificates: bool = False,
    tokens: bool = False,
    workers: bool = False,
    oidc: TokenVerifier | None = None,
    number: int = 0,
    authority: Authority | None = None,
    request_seconds: float = TIMEOUT_SECONDS,
) -> AsyncIterator[Port]:
    authority = authority or Authority()
    files = authority.files(directory, "server", "127.0.0.1") if tls else None
    pem = None if files is None else PemFiles(files)
    token_file = directory / "tokens"
    if tokens:
        roles = {"viewer": "viewer", "operator": "operator", "admin": "admin"}
        token_file.write_text(
            "".join(
                f"{name} {role} {hashlib.sha256(f'{name}-token'.encode()).hexdigest()}\n"
                for name, role in roles.items()
            )
        )
    seen: list[tuple[str, str]] = []
    refusals: list[TwinlogError] = []
    gate = Gate(
        AUTH,
        client_certificates=certificates,
        own_names=frozenset if pem is None else lambda: pem.current().names,
        tokens=TokenFile(str(token_file)) if tokens else None,
        oidc=oidc,
        workers=workers,
    )
    server = GrpcServer(
        services(seen, refusals),
        service="source",
        listen=Address(host="127.0.0.1", port=number),
        meter=NoOpMeterProvider().get_meter("test"),
        ready=lambda: True,
        access=PortAccess(
            pem=None if pem is None else pem.current(),
            newest=None if pem is None else pem.current,
            client_certificates=certificates,
            gate=gate,
            lacks="",
            word="tls",
        ),
        renewal_seconds=0.02,
        request_seconds=request_seconds,
    )
    await server.start()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.renew_certificate(stop), name="certificate")
        try:
            yield Port(directory, authority, server, files, seen, refusals)
        finally:
            stop.set()
            await server.stop(0)


def person(port: Port, name: str) -> TlsFiles:
    return port.authority.files(port.directory, name, f"{name}.example")


ROLES = {"viewer": Role.VIEWER, "operator": Role.OPERATOR, "admin": Role.ADMIN, "stranger": Role.NONE}
