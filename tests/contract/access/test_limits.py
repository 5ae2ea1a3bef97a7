"""One caller does not take a port from the others."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from contract.access.access_rig import TIMEOUT_SECONDS, opened
from twinlog.config.security import AuthSettings, PeerSecurity
from twinlog.errors import ConfigError, TwinlogError
from twinlog.service.access.gate import Gate
from twinlog.service.access.roles import ANONYMOUS, Caller
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.health_calls import MAX_SILENT_CALLS, MAX_WATCHES
from twinlog.service.limits import MAX_CALLS_PER_CALLER
from twinlog.service.peers import open_channel
from twinlog.testing.brokers import eventually


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


async def test_an_address_whose_calls_wait_for_the_provider_leaves_room_for_others() -> None:
    class _From:
        def __init__(self, address: str) -> None:
            self._address = address

        def peer(self) -> str:
            return f"ipv4:{self._address}:4711"

        def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
            return (("authorization", "Bearer a.b.c"),)

    class _Silent:
        async def verify(self, token: str) -> Caller:
            answering.release()
            await silence.wait()
            return replace(ANONYMOUS, name="sub:ann", via="oidc")

    silence, answering = asyncio.Event(), asyncio.Semaphore(0)
    gate = Gate(AuthSettings(), oidc=_Silent())
    method = "/twinlog.heartbeat.v1.HeartbeatService/GetTopology"
    strange: Any = _From("10.0.0.1")
    other: Any = _From("10.0.0.2")
    async with asyncio.TaskGroup() as group:
        for _ in range(MAX_CALLS_PER_CALLER):
            group.create_task(gate.identify(method, strange), name="a call")
        for _ in range(MAX_CALLS_PER_CALLER):
            await answering.acquire()
        with pytest.raises(TwinlogError, match=r"10\.0\.0\.1 has 500 calls open"):
            await gate.identify(method, strange)
        waiting = group.create_task(gate.identify(method, other), name="another's call")
        await answering.acquire()
        silence.set()
        assert (await waiting).name == "sub:ann"
    assert (await gate.identify(method, strange)).name == "sub:ann", "nothing is left of those that ended"


@pytest.mark.parametrize("workers", [False, True])
async def test_one_address_watches_the_health_of_a_port_only_so_often(tmp_path: Path, workers: bool) -> None:
    """A caller without a token could open streams without end; single checks stay possible."""
    request = health_pb2.HealthCheckRequest(service="liveness")
    async with (
        opened(tmp_path, tls=False, workers=workers) as port,
        open_channel(port.endpoint, PeerSecurity()) as channel,
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


GET_TOPOLOGY = "/twinlog.api.heartbeat.v1.HeartbeatService/GetTopology"
CHECK = "/grpc.health.v1.Health/Check"


def raw_call(channel: grpc.aio.Channel, method: str) -> Any:
    return channel.stream_unary(method, request_serializer=bytes)


async def nothing(_: Any) -> None:
    """And the call stays open."""


async def the_end(call: Any) -> None:
    await call.done_writing()


async def damaged(call: Any) -> None:
    await call.write(b"\xff\xff planted")


Sends = Callable[[Any], Awaitable[None]]


async def refusal_of(channel: grpc.aio.Channel, method: str, sends: Sends) -> TwinlogError:
    """Of a call that sends this as its request."""
    call = raw_call(channel, method)(timeout=TIMEOUT_SECONDS)
    with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):  # it is refused before anything is sent
        await sends(call)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return error_from_rpc(refused.value, peer="the port")


@pytest.mark.parametrize("sends", [nothing, damaged])
async def test_who_is_not_known_is_refused_before_a_request_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sends: Sends
) -> None:
    """Calls that wait for their request would take the port from all others, and from probes."""
    async with (
        opened(tmp_path, tls=False, tokens=True) as port,
        open_channel(port.endpoint, PeerSecurity()) as channel,
    ):
        assert (await refusal_of(channel, GET_TOPOLOGY, sends)).reason == "NOT_AUTHENTICATED"
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("sends", [nothing, the_end])
async def test_a_request_has_to_come_in_time(tmp_path: Path, sends: Sends) -> None:
    async with (
        opened(tmp_path, tls=False, request_seconds=0.1) as port,
        open_channel(port.endpoint, PeerSecurity()) as channel,
    ):
        assert (await refusal_of(channel, GET_TOPOLOGY, sends)).reason == "REQUEST_MISSING"
        call = raw_call(channel, CHECK)(timeout=TIMEOUT_SECONDS)
        await sends(call)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_request_that_cannot_be_read_is_refused_with_a_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        opened(tmp_path, tls=False) as port,
        open_channel(port.endpoint, PeerSecurity()) as channel,
    ):
        refused = await refusal_of(channel, GET_TOPOLOGY, damaged)
        assert (refused.reason, type(refused)) == ("REQUEST_UNREADABLE", ConfigError)
    assert "Traceback" not in caplog.text


async def test_silent_calls_about_health_keep_no_probe_out(tmp_path: Path) -> None:
    async with (
        opened(tmp_path, tls=False) as port,
        open_channel(port.endpoint, PeerSecurity()) as channel,
    ):
        silent = [raw_call(channel, CHECK)(timeout=TIMEOUT_SECONDS) for _ in range(MAX_SILENT_CALLS + 10)]
        for each in silent:
            await each.initial_metadata()
        await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="liveness"), timeout=TIMEOUT_SECONDS
        )
        await eventually(lambda: sum(each.done() for each in silent) == 11)
        for each in silent:
            each.cancel()
