"""Every method of every service, for every role and every way to identify, over real gRPC and TLS."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2, checkpoint_service_pb2_grpc
from twinlog.api.configsync.v1 import configsync_service_pb2, configsync_service_pb2_grpc
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2, heartbeat_service_pb2_grpc
from twinlog.api.source.v1 import (
    source_service_pb2,
    source_service_pb2_grpc,
    worker_service_pb2,
    worker_service_pb2_grpc,
)
from twinlog.config import Address
from twinlog.config.security import AuthSettings, ClientSecurity, TlsFiles
from twinlog.errors import ConfigError, TwinlogError
from twinlog.service.access.gate import Gate, TokenVerifier, caller_name
from twinlog.service.access.pem_files import PemFiles
from twinlog.service.access.port import PortAccess
from twinlog.service.access.roles import ANONYMOUS, Role
from twinlog.service.access.tokens import TokenFile
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.grpc_server import Context, GrpcServer, GrpcService
from twinlog.service.interceptors import MAX_WATCHES, SECURITY_METADATA_KEY
from twinlog.service.limits import MAX_CALLS_PER_CALLER
from twinlog.service.peers import open_channel
from twinlog.testing.brokers import eventually
from twinlog.testing.certificates import Authority

SERVICES = {
    "SourceService": (source_service_pb2, source_service_pb2_grpc),
    "WorkerService": (worker_service_pb2, worker_service_pb2_grpc),
    "CheckpointService": (checkpoint_service_pb2, checkpoint_service_pb2_grpc),
    "HeartbeatService": (heartbeat_service_pb2, heartbeat_service_pb2_grpc),
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
    "ApplySync",
    "CancelMove",
}
ADMINS = {"SetPositions", "UpdateRules", "RunFailover", "RunFailback", "AbortMove"}
AUTH = AuthSettings(
    viewers=("cn:viewer", "cn:source"), operators=("dns:operator.example",), admins=("cn:admin",)
)
PEOPLE = ("viewer", "operator", "admin", "stranger")
TIMEOUT_SECONDS = 60.0


def expected(method: MethodDescriptor, role: Role) -> str:
    """The reason of a refusal; empty for a call that is let through."""
    if method.name == "Run":
        return "WRONG_PORT"
    needed = (
        Role.ADMIN if method.name in ADMINS else Role.OPERATOR if method.name in OPERATORS else Role.VIEWER
    )
    return "" if role >= needed else "NOT_AUTHORIZED"


class _Answers:
    """Any method of any service: who called."""

    def __init__(self, seen: list[tuple[str, str]]) -> None:
        self._seen = seen

    def method(self, method: MethodDescriptor) -> Any:
        answer = GetMessageClass(method.output_type)
        if not method.server_streaming:

            async def unary(request: Any, context: Context) -> Any:
                self._seen.append((method.name, caller_name("claimed", context)))
                return answer()

            return unary

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            self._seen.append((method.name, caller_name("claimed", context)))
            yield answer()

        return stream


def services(seen: list[tuple[str, str]]) -> list[GrpcService]:
    answers = _Answers(seen)
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

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def client(self, files: TlsFiles | None = None, token: str = "") -> ClientSecurity:
        """Who shows these; trusts the authority."""
        ca = self.directory / "trusted.ca"
        ca.write_bytes(self.authority.pem)
        token_file = ""
        if token:
            token_file = str(self.directory / f"{hashlib.sha256(token.encode()).hexdigest()}.token")
            Path(token_file).write_text(token + "\n")
        return ClientSecurity(
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

    async def every_refusal(self, security: ClientSecurity) -> dict[str, str]:
        async with open_channel(self.endpoint, security) as channel:
            return {method.full_name: await self.refusal(method, channel) for method in METHODS}

    async def shows(self, chain: bytes) -> bool:
        """Whether the next connection gets this certificate."""
        shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", self.server.port))
        return shown.strip() in chain.decode()

    async def failure(self, security: ClientSecurity) -> TwinlogError:
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
) -> AsyncIterator[Port]:
    authority = Authority()
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
    gate = Gate(
        AUTH,
        client_certificates=certificates,
        own_names=frozenset if pem is None else lambda: pem.current().names,
        tokens=TokenFile(str(token_file)) if tokens else None,
        oidc=oidc,
        workers=workers,
    )
    server = GrpcServer(
        services(seen),
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
    )
    await server.start()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.renew_certificate(stop), name="certificate")
        try:
            yield Port(directory, authority, server, files, seen)
        finally:
            stop.set()
            await server.stop(0)


def person(port: Port, name: str) -> TlsFiles:
    return port.authority.files(port.directory, name, f"{name}.example")


ROLES = {"viewer": Role.VIEWER, "operator": Role.OPERATOR, "admin": Role.ADMIN, "stranger": Role.NONE}


# ---------------------------------------------------------------------------------------------------- matrix


@pytest.mark.parametrize("who", PEOPLE)
async def test_every_method_for_a_certificate_of_every_role(tmp_path: Path, who: str) -> None:
    async with opened(tmp_path, certificates=True) as port:
        refused = await port.every_refusal(port.client(person(port, who)))
        assert refused == {method.full_name: expected(method, ROLES[who]) for method in METHODS}
        assert {name for _, name in port.seen} == (set() if who == "stranger" else {f"CN={who}"})


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("who", ["viewer", "operator", "admin"])
async def test_every_method_for_a_token_of_every_role(tmp_path: Path, who: str, tls: bool) -> None:
    async with opened(tmp_path, tls=tls, tokens=True) as port:
        refused = await port.every_refusal(port.client(token=f"{who}-token"))
        assert refused == {method.full_name: expected(method, ROLES[who]) for method in METHODS}
        assert {name for _, name in port.seen} == {f"file:{who}"}


@pytest.mark.parametrize(
    ("token", "reason"), [("", "NOT_AUTHENTICATED"), ("a-revoked-token", "TOKEN_UNKNOWN")]
)
async def test_every_method_refuses_who_is_not_known(tmp_path: Path, token: str, reason: str) -> None:
    async with opened(tmp_path, tokens=True) as port:
        refused = await port.every_refusal(port.client(token=token))
        assert set(refused.values()) == {reason, "WRONG_PORT"}
        assert not port.seen


async def test_every_method_is_open_on_a_port_that_asks_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path, tls=False) as port:
        refused = await port.every_refusal(ClientSecurity())
        assert refused == {method.full_name: expected(method, Role.ADMIN) for method in METHODS}
        assert {name for _, name in port.seen} == {"claimed"}


async def test_a_port_for_tasks_serves_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=True) as port:
        refused = await port.every_refusal(port.client())
        assert {name for name, reason in refused.items() if not reason} == {
            method.full_name for method in METHODS if method.name == "Run"
        }


# ------------------------------------------------------------------------------------------------ identities


async def test_a_token_wins_over_a_certificate(tmp_path: Path) -> None:
    async with opened(tmp_path, certificates=True, tokens=True) as port:
        security = port.client(person(port, "stranger"), token="viewer-token")
        async with open_channel(port.endpoint, security) as channel:
            await look(channel)
        assert port.seen == [("GetTopology", "file:viewer")]


async def test_who_has_the_ports_own_names_is_the_deployment_itself(tmp_path: Path) -> None:
    async with opened(tmp_path, certificates=True) as port:
        refused = await port.every_refusal(port.client(port.files))
        assert refused == {method.full_name: expected(method, Role.ADMIN) for method in METHODS}


async def test_health_is_open_to_everybody_and_says_how_the_port_is_secured(tmp_path: Path) -> None:
    async with (
        opened(tmp_path, tokens=True) as port,
        open_channel(port.endpoint, port.client()) as channel,
    ):
        call = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="liveness"), timeout=TIMEOUT_SECONDS
        )
        answer = await call
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert dict(await call.initial_metadata())[SECURITY_METADATA_KEY] == "tls"


@pytest.mark.parametrize(("token", "reason"), [("viewer-token", ""), ("", "NOT_AUTHENTICATED")])
async def test_reflection_is_for_those_who_may_look(tmp_path: Path, token: str, reason: str) -> None:
    async with (
        opened(tmp_path, tokens=True) as port,
        open_channel(port.endpoint, port.client(token=token)) as channel,
    ):
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call: Any = stub.ServerReflectionInfo(iter([request]), timeout=TIMEOUT_SECONDS)
        found = ""
        try:
            services = [answer.list_services_response.service async for answer in call]
        except grpc.aio.AioRpcError as failure:
            found, services = error_from_rpc(failure).reason, []
        assert found == reason
        assert bool(services) is not bool(reason)


async def test_a_revoked_token_is_refused_by_the_next_call(tmp_path: Path) -> None:
    async with (
        opened(tmp_path, tokens=True) as port,
        open_channel(port.endpoint, port.client(token="viewer-token")) as channel,
    ):
        await look(channel)
        (tmp_path / "tokens").write_text("# nobody\n")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await look(channel)
        assert error_from_rpc(refused.value).reason == "TOKEN_UNKNOWN"


async def test_a_renewed_token_is_sent_by_the_next_call(tmp_path: Path) -> None:
    async with opened(tmp_path, tokens=True) as port:
        security = port.client(token="an-old-token")
        async with open_channel(port.endpoint, security) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await look(channel)
            put(security.token_file, b"viewer-token\n")
            await look(channel)


# ----------------------------------------------------------------------------------------------- certificates


async def test_certificate_files_are_replaced_under_calls_and_no_caller_is_refused(tmp_path: Path) -> None:
    """A call that comes as the earlier server stops may be cancelled before it begins; once more it works."""
    async with opened(tmp_path, certificates=True) as port:
        files = person(port, "viewer")
        assert port.files is not None
        calls = 0
        done = asyncio.Event()

        async def keep_calling(channel: grpc.aio.Channel) -> None:
            nonlocal calls
            while not done.is_set():
                try:
                    await look(channel)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.CANCELLED:
                        raise
                    await look(channel)
                calls += 1

        async def called(times: int) -> None:
            goal = calls + times

            async def enough() -> bool:
                return calls >= goal

            await eventually(enough)

        async with open_channel(port.endpoint, port.client(files)) as channel, asyncio.TaskGroup() as group:
            group.create_task(keep_calling(channel), name="calls")
            for hosts in (("127.0.0.1", "one.example"), ("127.0.0.1", "two.example")):
                await called(5)
                renewed = port.authority.sign("server", *hosts)
                put(port.files.certificate, renewed.chain)
                await called(5)  # a new certificate beside its old key
                put(port.files.key, renewed.key)
                await eventually(partial(port.shows, renewed.chain))
                mine = port.authority.sign("viewer", *hosts)
                put(files.certificate, mine.chain)
                await called(5)
                put(files.key, mine.key)
                await called(5)
                async with open_channel(port.endpoint, port.client(files)) as another:
                    await look(another)
            done.set()


async def test_a_stream_outlives_the_certificate_under_which_it_began(tmp_path: Path) -> None:
    async with opened(tmp_path) as port:
        assert port.files is not None
        async with open_channel(port.endpoint, port.client()) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            renewed = port.authority.sign("server", "127.0.0.1")
            put(port.files.key, renewed.key)
            put(port.files.certificate, renewed.chain)
            await eventually(partial(port.shows, renewed.chain))
            await look(channel)
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                group.create_task(port.server.watch_readiness(stop), name="health")
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
                stop.set()


async def test_a_port_that_may_renew_its_certificate_is_not_shared_by_two_servers(tmp_path: Path) -> None:
    async with opened(tmp_path) as port:
        with pytest.raises(ConfigError) as refused:
            async with opened(tmp_path, number=port.server.port):
                pass
        assert refused.value.reason == "ADDRESS_IN_USE"


async def test_calls_of_a_rotated_client_show_the_new_certificate(tmp_path: Path) -> None:
    async with opened(tmp_path, certificates=True) as port:
        files = person(port, "viewer")
        async with open_channel(port.endpoint, port.client(files)) as channel:
            await look(channel)
            mine = port.authority.sign("admin")
            put(files.key, mine.key)
            put(files.certificate, mine.chain)
            await look(channel)
        assert [name for _, name in port.seen] == ["CN=viewer", "CN=admin"]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("expired", "has expired"),
        ("other CA", "does not come from a CA"),
        ("other host", "is for another host"),
    ],
)
async def test_a_server_that_is_not_what_it_says_is_named(tmp_path: Path, case: str, words: str) -> None:
    async with opened(tmp_path) as port:
        assert port.files is not None
        security = port.client()
        if case == "other CA":
            put(security.ca, Authority().pem)
        elif case == "other host":
            security = replace(security, server_name="elsewhere.example")
        else:
            # A service whose certificate expires while it runs: its files were good when it started.
            late = port.authority.files(tmp_path, "late", "127.0.0.1", days=-1)
            server = grpc.aio.server()
            pair = (got(late.key), got(late.certificate))
            number = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
            await server.start()
            async with open_channel(f"127.0.0.1:{number}", security) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await look(channel)
            await server.stop(0)
            error = error_from_rpc(failed.value, peer="the port")
        if case != "expired":
            error = await port.failure(security)
        assert error.reason == "TLS_FAILED"
        assert words in str(error)


@pytest.mark.parametrize("case", ["none", "expired", "other CA"])
async def test_a_client_whose_certificate_is_not_good_gets_nowhere(tmp_path: Path, case: str) -> None:
    """And the port serves others as before."""
    async with opened(tmp_path, certificates=True) as port:
        good = port.client(person(port, "viewer"))
        bad = port.client(Authority().files(tmp_path, "admin") if case == "other CA" else None)
        if case == "expired":
            files = port.authority.files(tmp_path, "expired", days=-1)
            with pytest.raises(ConfigError, match="expired at"):
                open_channel(port.endpoint, port.client(files))
        error = await port.failure(bad)
        assert error.reason in ("PEER_UNAVAILABLE", "TLS_FAILED")
        assert "TLS" in str(error)
        assert not port.seen
        async with open_channel(port.endpoint, good) as channel:
            await look(channel)


async def test_tls_and_plain_text_do_not_meet(tmp_path: Path) -> None:
    async with opened(tmp_path) as port:
        assert "TLS" in str(await port.failure(ClientSecurity()))
    async with opened(tmp_path, tls=False) as port:
        error = await port.failure(replace(port.client(), tls=True))
        assert error.reason == "TLS_FAILED"
        assert "does not speak TLS" in str(error)


async def test_a_token_is_not_sent_in_clear_to_another_machine(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret-token\n")
    with pytest.raises(ConfigError) as refused:
        open_channel("source.example:17401", ClientSecurity(token_file=str(file)))
    assert refused.value.reason == "TOKEN_NEEDS_TLS"
    assert "secret-token" not in str(refused.value)


# ----------------------------------------------------------------------------------------------------- limits


async def test_a_caller_has_only_so_many_calls_open_and_others_are_served() -> None:
    class _Here:
        def peer(self) -> str:
            return "ipv4:10.0.0.1:4711"

    gate = Gate(AuthSettings())
    context: Any = _Here()
    many = [gate.entered("/x", ANONYMOUS, context) for _ in range(MAX_CALLS_PER_CALLER)]
    for each in many:
        each.__enter__()
    with pytest.raises(TwinlogError, match="has 500 calls open"), gate.entered("/x", ANONYMOUS, context):
        pass
    with gate.entered("/x", replace(ANONYMOUS, name="CN=other", via="certificate"), context):
        pass
    for each in many:
        each.__exit__(None, None, None)
    with gate.entered("/x", ANONYMOUS, context):
        pass


@pytest.mark.parametrize("workers", [False, True])
async def test_one_address_watches_the_health_of_a_port_only_so_often(tmp_path: Path, workers: bool) -> None:
    """Whoever has no token could open streams without end; single checks stay possible."""
    request = health_pb2.HealthCheckRequest(service="liveness")
    async with (
        opened(tmp_path, tls=False, workers=workers) as port,
        open_channel(port.endpoint, ClientSecurity()) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        watches = [stub.Watch(request, timeout=TIMEOUT_SECONDS) for _ in range(MAX_WATCHES)]
        for each in watches:
            assert (await each.read()).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError, match="watches the health") as refused:
            await stub.Watch(request, timeout=TIMEOUT_SECONDS).read()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await stub.Check(request, timeout=TIMEOUT_SECONDS)
        watches.pop().cancel()

        async def watched_again() -> bool:
            try:
                answer = await stub.Watch(request, timeout=TIMEOUT_SECONDS).read()
            except grpc.aio.AioRpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

        await eventually(watched_again)
        for each in watches:
            each.cancel()


@pytest.mark.parametrize("words", ["Socket closed", "Connection reset by peer", "Broken pipe"])
def test_a_connection_that_ends_at_once_may_be_a_matter_of_tls(words: str) -> None:
    failure = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE,
        initial_metadata=grpc.aio.Metadata(),
        trailing_metadata=grpc.aio.Metadata(),
        details=f"failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: {words}",
    )
    assert "if it speaks TLS" in str(error_from_rpc(failure, peer="the port"))


async def test_many_handshakes_at_once_are_answered(tmp_path: Path) -> None:
    """With credentials that ask Python at each handshake the process stood still within seconds."""
    async with opened(tmp_path, certificates=True) as port:
        security = port.client(person(port, "viewer"))

        async def call_once() -> None:
            async with open_channel(port.endpoint, security) as channel:
                await look(channel)

        for _ in range(20):
            async with asyncio.TaskGroup() as group:
                for number in range(10):
                    group.create_task(call_once(), name=f"caller {number}")
