"""One caller does not take a port from the others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from contract.access.access_rig import TIMEOUT_SECONDS, opened
from twinlog.config.security import AuthSettings, ClientSecurity
from twinlog.errors import TwinlogError
from twinlog.service.access.gate import Gate
from twinlog.service.access.roles import ANONYMOUS
from twinlog.service.interceptors import MAX_WATCHES
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


@pytest.mark.parametrize("workers", [False, True])
async def test_one_address_watches_the_health_of_a_port_only_so_often(tmp_path: Path, workers: bool) -> None:
    """A caller without a token could open streams without end; single checks stay possible."""
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
