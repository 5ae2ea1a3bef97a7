"""Every method of every service, for every role and every way to identify, over real gRPC and TLS."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from contract.access.access_rig import METHODS, PEOPLE, ROLES, TIMEOUT_SECONDS, expected, look, opened, person
from twinlog.config.security import PeerSecurity
from twinlog.service.access.roles import Role
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.interceptors import SECURITY_METADATA_KEY
from twinlog.service.peers import open_channel
from twinlog.testing.brokers import eventually
from unit.service.access.test_roles import every_method


def test_no_method_of_any_proto_is_left_out() -> None:
    assert {each.full_name for each in METHODS} == {each.full_name for each in every_method()}


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
        refused = await port.every_refusal(PeerSecurity())
        assert refused == {method.full_name: expected(method, Role.ADMIN) for method in METHODS}
        assert {name for _, name in port.seen} == {"claimed"}


async def test_a_port_for_tasks_serves_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=True) as port:
        refused = await port.every_refusal(port.client())
        assert {name for name, reason in refused.items() if not reason} == {
            method.full_name for method in METHODS if method.containing_service.name == "WorkerService"
        }


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

        async def is_so() -> bool:
            """A refusal ends the stream, and may reach the client as that before its reason does."""
            call: Any = stub.ServerReflectionInfo(iter([request]), timeout=TIMEOUT_SECONDS)
            found = ""
            try:
                services = [answer.list_services_response.service async for answer in call]
            except grpc.aio.AioRpcError as failure:
                found, services = error_from_rpc(failure).reason, []
            assert found in (reason, "GRPC_INTERNAL"), found
            return found == reason and bool(services) is not bool(reason)

        assert await eventually(is_so)
