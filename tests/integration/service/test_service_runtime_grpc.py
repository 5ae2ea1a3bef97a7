"""A real grpc.aio server and client on a free port: errors, health, drain, metadata."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import structlog
from google.rpc import code_pb2, error_details_pb2  # type: ignore[import-untyped]
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.api.common.v1 import table_service_pb2 as tables_pb2
from twinlog.api.common.v1.table_service_pb2_grpc import (
    TableServiceStub,
    add_TableServiceServicer_to_server,
)
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import (
    ConfigSyncServiceServicer,
    ConfigSyncServiceStub,
    add_ConfigSyncServiceServicer_to_server,
)
from twinlog.config import Address
from twinlog.errors import (
    ConfigError,
    ConflictError,
    FatalKafkaError,
    KafkaError,
    NotFoundError,
    StateError,
    TransientKafkaError,
    TwinlogError,
    WireFormatError,
)
from twinlog.service.answering_process import PROCESS_METADATA_KEY, AnsweringProcess
from twinlog.service.errors_wire import (
    ExhaustedError,
    PeerUnavailableError,
    error_from_rpc,
)
from twinlog.service.grpc_server import Context, GrpcServer, GrpcService
from twinlog.service.interceptors import VERSION_METADATA_KEY, too_late
from twinlog.service.peers import open_channel
from twinlog.service.probe import probe
from twinlog.testing.brokers import eventually

FULL_NAME = pb2.DESCRIPTOR.services_by_name["ConfigSyncService"].full_name
TABLES = tables_pb2.DESCRIPTOR.services_by_name["TableService"].full_name
TIMEOUT_SECONDS = 30.0
PROCESS = AnsweringProcess(host="vm", pid=7, config="/etc/mm2.properties")


class Scripted(ConfigSyncServiceServicer):
    """Answers as the test says."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.waits = False
        self.stop = asyncio.Event()
        self.watchers = 0
        self.ignores_stop = False

    async def ListTopics(self, request: pb2.ListTopicsRequest, context: Context) -> pb2.ListTopicsResponse:  # noqa: N802
        if self.failure is not None:
            raise self.failure
        if self.waits:
            await self.stop.wait()
        return pb2.ListTopicsResponse(next_page_token="token")

    async def Follow(  # noqa: N802
        self, request: tables_pb2.FollowRequest, context: Context
    ) -> AsyncIterator[tables_pb2.FollowResponse]:
        self.watchers += 1
        yield tables_pb2.FollowResponse()
        if self.failure is not None:
            raise self.failure
        await (asyncio.Event() if self.ignores_stop else self.stop).wait()


class Running:
    """The server, its servicer and a channel to it."""

    def __init__(self, server: GrpcServer, servicer: Scripted, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.servicer = servicer
        self.channel = channel
        self.stub = ConfigSyncServiceStub(channel)
        self.tables = TableServiceStub(channel)

    async def health(self, service: str) -> str:
        answer = await health_pb2_grpc.HealthStub(self.channel).Check(
            health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_SECONDS
        )
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


@asynccontextmanager
async def _running(
    ready: Callable[[], bool] = lambda: True,
    port_file: Path | None = None,
    hindrance: Callable[[], TwinlogError] = too_late,
    works: Callable[[], bool] | None = None,
    handshake_seconds: float = 10.0,
) -> AsyncIterator[Running]:
    servicer = Scripted()  # type: ignore[abstract]  # its other methods answer UNIMPLEMENTED
    server = GrpcServer(
        [
            GrpcService(name=FULL_NAME, add=add_ConfigSyncServiceServicer_to_server, servicer=servicer),
            GrpcService(name=TABLES, add=add_TableServiceServicer_to_server, servicer=servicer),
        ],
        service="configsync",
        listen=Address(host="127.0.0.1", port=0),
        meter=NoOpMeterProvider().get_meter("test"),
        ready=ready,
        works=works,
        port_file=port_file,
        hindrance=hindrance,
        process=PROCESS,
        handshake_seconds=handshake_seconds,
    )
    await server.start()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.watch_readiness(stop), name="health")
        async with open_channel(f"127.0.0.1:{server.port}") as channel:
            try:
                yield Running(server, servicer, channel)
            finally:
                stop.set()
                await server.stop(0)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with _running() as started:
        yield started


# ---------------------------------------------------------------------------------------------------- errors


async def test_a_caller_hears_what_is_in_the_way_before_its_time_is_up() -> None:
    """Its own deadline would blame the service for a cluster that does not answer."""
    away = TransientKafkaError("cluster A does not answer", reason="KAFKA_TIMEOUT")
    async with _running(hindrance=lambda: away) as running:
        running.servicer.waits = True

        async def told() -> TwinlogError | None:
            """Nothing where this machine took longer than what is left of the time."""
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await running.stub.ListTopics(pb2.ListTopicsRequest(), timeout=2.0)
            is_late = refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            return None if is_late else error_from_rpc(refused.value, peer="configsync")

        error = await eventually(told)
    assert (error.reason, str(error)) == ("KAFKA_TIMEOUT", "cluster A does not answer")


_META = {"topic": "orders", "flow": "A->B"}
_ERRORS: list[tuple[TwinlogError, int]] = [
    (ConfigError("file:3: a.key: expected x", metadata={"key": "a.key"}), code_pb2.INVALID_ARGUMENT),
    (NotFoundError("there is no flow A->C", metadata=_META), code_pb2.NOT_FOUND),
    (ConflictError("rules have changed", reason="RULES_CHANGED"), code_pb2.ABORTED),
    (StateError("the flow is paused", reason="PAUSED"), code_pb2.FAILED_PRECONDITION),
    (TransientKafkaError("away", code=7, metadata=_META), code_pb2.UNAVAILABLE),
    (FatalKafkaError("no right", code=29), code_pb2.FAILED_PRECONDITION),
    (KafkaError("what", code=1234), code_pb2.UNKNOWN),
    (WireFormatError("bytes", metadata={"offset": "7"}), code_pb2.DATA_LOSS),
    (ExhaustedError("too many"), code_pb2.RESOURCE_EXHAUSTED),
    (PeerUnavailableError("source is away"), code_pb2.UNAVAILABLE),
    (TwinlogError("other"), code_pb2.INTERNAL),
]


@pytest.mark.parametrize(("error", "code"), _ERRORS, ids=lambda value: type(value).__name__)
async def test_an_error_arrives_as_what_it_was(running: Running, error: TwinlogError, code: int) -> None:
    running.servicer.failure = error

    with pytest.raises(grpc.aio.AioRpcError) as failure:
        # Without retries: the service config would repeat UNAVAILABLE.
        await running.stub.ListTopics(pb2.ListTopicsRequest(), timeout=TIMEOUT_SECONDS)

    assert failure.value.code().value[0] == code
    arrived = error_from_rpc(failure.value)
    assert type(arrived) is type(error)
    assert (str(arrived), arrived.reason, arrived.metadata) == (str(error), error.reason, error.metadata)
    assert arrived.retriable == error.retriable
    if isinstance(error, KafkaError):
        assert isinstance(arrived, KafkaError)
        assert arrived.code == error.code


async def test_every_status_has_one_error_info_of_its_service_and_the_remedy_s_details(
    running: Running,
) -> None:
    async def details() -> list[str]:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await running.stub.ListTopics(pb2.ListTopicsRequest(), timeout=TIMEOUT_SECONDS)
        status = rpc_status.from_call(failure.value)
        info = error_details_pb2.ErrorInfo()
        assert status.details[0].Unpack(info)
        assert info.domain == "configsync.twinlog"
        return [detail.TypeName().rpartition(".")[2] for detail in status.details]

    running.servicer.failure = NotFoundError("none")
    assert await details() == ["ErrorInfo"]
    running.servicer.failure = ConfigError("wrong", metadata={"key": "k"})
    assert await details() == ["ErrorInfo", "BadRequest"]
    running.servicer.failure = TransientKafkaError("away")
    assert await details() == ["ErrorInfo", "RetryInfo"]


@pytest.fixture
def log_events() -> Iterator[list[structlog.typing.EventDict]]:
    with structlog.testing.capture_logs() as events:
        yield events


async def test_a_defect_tells_the_client_an_id_and_the_log_the_traceback(
    running: Running, log_events: list[structlog.typing.EventDict]
) -> None:
    running.servicer.failure = KeyError("secret internals")

    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await running.stub.ListTopics(pb2.ListTopicsRequest(), timeout=TIMEOUT_SECONDS)

    error = error_from_rpc(failure.value)
    assert failure.value.code() is grpc.StatusCode.INTERNAL
    assert "secret internals" not in (failure.value.details() or "")
    (logged,) = [event for event in log_events if event["event"] == "rpc_failed"]
    assert logged["error_id"] == error.metadata["error_id"]
    assert logged["exc_info"]


@pytest.mark.parametrize("is_in_group", [False, True])
async def test_a_caller_that_dies_while_it_is_answered_is_no_defect(
    running: Running, log_events: list[structlog.typing.EventDict], is_in_group: bool
) -> None:
    """gRPC says so before it cancels the call, for instance of a task that was killed."""
    gone = grpc.aio.InternalError('Failed "execute_batch"')
    running.servicer.failure = ExceptionGroup("of a TaskGroup", [gone]) if is_in_group else gone

    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await running.stub.ListTopics(pb2.ListTopicsRequest(), timeout=TIMEOUT_SECONDS)

    assert failure.value.code() is grpc.StatusCode.CANCELLED
    assert not [event for event in log_events if event["event"] == "rpc_failed"]


async def test_a_stream_maps_errors_too(running: Running) -> None:
    running.servicer.failure = NotFoundError("none")

    call = running.tables.Follow(tables_pb2.FollowRequest(), timeout=TIMEOUT_SECONDS)
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        async for _ in call:
            pass

    assert isinstance(error_from_rpc(failure.value), NotFoundError)


async def test_a_peer_that_is_not_there_is_named_within_the_timeout() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{unused.getsockname()[1]}"
    async with open_channel(endpoint) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await ConfigSyncServiceStub(channel).ListTopics(pb2.ListTopicsRequest(), timeout=TIMEOUT_SECONDS)

    error = error_from_rpc(failure.value, peer="configsync")
    assert isinstance(error, PeerUnavailableError)
    assert str(error).startswith("configsync is not reachable")


async def test_answers_say_their_version(running: Running) -> None:
    call = running.stub.ListTopics(pb2.ListTopicsRequest(), timeout=TIMEOUT_SECONDS)
    await call

    metadata = dict(await call.initial_metadata())
    assert metadata[VERSION_METADATA_KEY]
    assert AnsweringProcess.of_metadata(str(metadata[PROCESS_METADATA_KEY])) == PROCESS


# ---------------------------------------------------------------------------------------------------- health


async def test_liveness_holds_from_the_start_and_readiness_follows_the_service() -> None:
    ready = False
    async with _running(lambda: ready) as running:
        assert await running.health("liveness") == "SERVING"
        for name in ("", "readiness", FULL_NAME):
            assert await running.health(name) == "NOT_SERVING"
        assert await probe([f"127.0.0.1:{running.server.port}"], service="readiness", wait=False) != []

        ready = True
        await eventually(lambda: _is(running, "readiness", "SERVING"))
        for name in ("", FULL_NAME):
            assert await running.health(name) == "SERVING"
        assert await probe([f"127.0.0.1:{running.server.port}"], service="readiness", wait=False) == []

        await running.server.leave()
        for name in ("", "readiness", "liveness", FULL_NAME):
            assert await running.health(name) == "NOT_SERVING"


async def test_a_service_answers_before_its_flows_are_at_work() -> None:
    works = False
    async with _running(lambda: True, works=lambda: works) as running:
        await eventually(lambda: _is(running, "", "SERVING"))
        assert await running.health("readiness") == "NOT_SERVING"
        works = True
        await eventually(lambda: _is(running, "readiness", "SERVING"))
        works = False
        await eventually(lambda: _is(running, "readiness", "NOT_SERVING"))
        assert await running.health("") == "SERVING"


async def _is(running: Running, service: str, health: str) -> bool:
    return await running.health(service) == health


async def test_reflection_lists_the_services(running: Running) -> None:
    async def ask() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    stub = reflection_pb2_grpc.ServerReflectionStub(running.channel)
    names = [
        service.name
        async for answer in stub.ServerReflectionInfo(ask(), timeout=TIMEOUT_SECONDS)
        for service in answer.list_services_response.service
    ]
    assert {FULL_NAME, "grpc.health.v1.Health"} <= set(names)


async def test_the_bound_port_is_written_whole(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    async with _running(port_file=port_file) as running:
        assert port_file.read_text() == f"{running.server.port}\n"


async def test_a_second_server_on_the_port_is_refused_and_the_key_named(running: Running) -> None:
    second = GrpcServer(
        [],
        service="source",
        listen=Address(host="127.0.0.1", port=running.server.port),
        meter=NoOpMeterProvider().get_meter("test"),
        ready=lambda: True,
    )
    with pytest.raises(ConfigError, match=r"twinlog\.source\.listen"):
        await second.start()
    await second.stop(0)


# ---------------------------------------------------------------------------------------------------- drain


async def test_a_watch_that_selects_on_stop_ends_cleanly_and_holds_nothing_up(running: Running) -> None:
    loop = asyncio.get_running_loop()
    call = running.tables.Follow(tables_pb2.FollowRequest())
    await call.read()

    began = loop.time()
    running.servicer.stop.set()
    await running.server.stop(60)

    assert loop.time() - began < 50
    assert await call.code() is grpc.StatusCode.OK


async def test_a_watch_that_ignores_stop_is_cut_at_the_grace(running: Running) -> None:
    running.servicer.ignores_stop = True
    loop = asyncio.get_running_loop()
    call = running.tables.Follow(tables_pb2.FollowRequest())
    await call.read()

    began = loop.time()
    await running.server.stop(0.5)

    assert 0.4 < loop.time() - began < 30
    assert await call.code() is not grpc.StatusCode.OK


async def test_log_lines_of_a_call_carry_its_request_id_and_method(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.JSONRenderer()],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    try:
        with caplog.at_level(logging.INFO):
            running.servicer.failure = NotFoundError("none")
            with pytest.raises(grpc.aio.AioRpcError):
                await running.stub.ListTopics(
                    pb2.ListTopicsRequest(), timeout=TIMEOUT_SECONDS, metadata=(("x-request-id", "r-1"),)
                )
    finally:
        structlog.reset_defaults()

    lines = [
        json.loads(record.getMessage()) for record in caplog.records if "rpc_refused" in record.getMessage()
    ]
    assert lines[0]["request_id"] == "r-1"
    assert lines[0]["rpc_method"].endswith("/ListTopics")


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with _running(handshake_seconds=0.5) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
        async with asyncio.timeout(60):
            # The server begins with its settings; then nothing comes but the end.
            while await reader.read(1024):
                pass
        writer.close()
        assert await running.health("liveness") == "SERVING"
