"""The audit log: one line for each call that changes something, whatever comes of it, and no secret in it."""

import asyncio
import hashlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.metrics import NoOpMeterProvider

from contract.access.access_rig import AUTH, TIMEOUT_SECONDS
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint_pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import (
    CheckpointServiceServicer,
    CheckpointServiceStub,
    add_CheckpointServiceServicer_to_server,
)
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import (
    ConfigSyncServiceServicer,
    ConfigSyncServiceStub,
    add_ConfigSyncServiceServicer_to_server,
)
from twinlog.config import Address
from twinlog.config.security import ClientSecurity
from twinlog.errors import StateError
from twinlog.service.access.audit import Begun, begun, changed
from twinlog.service.access.gate import Gate
from twinlog.service.access.port import PortAccess
from twinlog.service.access.tokens import TokenFile
from twinlog.service.grpc_server import Context, GrpcServer, GrpcService
from twinlog.service.peers import open_channel
from twinlog.telemetry.logging import configure_logging
from unit.conftest import log_stream as log_stream


class Rules(ConfigSyncServiceServicer):
    async def UpdateRules(  # noqa: N802
        self, request: pb2.UpdateRulesRequest, context: Context
    ) -> pb2.UpdateRulesResponse:
        if request.dry_run:
            raise StateError("not now", reason="OWNED_ELSEWHERE")
        changed(before={"topics": "a"}, after={"topics": "b"})
        return pb2.UpdateRulesResponse()

    async def GetRules(self, request: pb2.GetRulesRequest, context: Context) -> pb2.GetRulesResponse:  # noqa: N802
        return pb2.GetRulesResponse()


class Runs(CheckpointServiceServicer):
    """A run that continues without its call."""

    def __init__(self) -> None:
        self.begun: list[Begun] = []
        self.left = asyncio.Event()

    async def RunFailover(  # noqa: N802
        self, request: checkpoint_pb2.RunFailoverRequest, context: Context
    ) -> AsyncIterator[checkpoint_pb2.RunFailoverResponse]:
        self.begun.append(begun())
        try:
            yield checkpoint_pb2.RunFailoverResponse()
            await asyncio.Event().wait()
        finally:
            self.left.set()


def tokens(directory: Path) -> TokenFile:
    file = directory / "tokens"
    lines = (
        f"{name} {name} {hashlib.sha256(f'{name}-secret-token'.encode()).hexdigest()}\n"
        for name in ("viewer", "admin")
    )
    file.write_text("".join(lines))
    return TokenFile(str(file))


def stubs(directory: Path, who: str) -> ClientSecurity:
    file = directory / f"{who}.token"
    file.write_text(f"{who}-secret-token")
    return ClientSecurity(token_file=str(file))


@pytest.fixture
def runs() -> Runs:
    return Runs()  # type: ignore[abstract]  # its other methods answer UNIMPLEMENTED


@pytest.fixture
async def endpoint(tmp_path: Path, log_stream: io.StringIO, runs: Runs) -> AsyncIterator[str]:
    configure_logging(service="configsync", version="1", format="json", level="info", stream=log_stream)
    server = GrpcServer(
        [
            GrpcService(
                name=pb2.DESCRIPTOR.services_by_name["ConfigSyncService"].full_name,
                add=add_ConfigSyncServiceServicer_to_server,
                servicer=Rules(),  # type: ignore[abstract]  # its other methods answer UNIMPLEMENTED
            ),
            GrpcService(
                name=checkpoint_pb2.DESCRIPTOR.services_by_name["CheckpointService"].full_name,
                add=add_CheckpointServiceServicer_to_server,
                servicer=runs,
            ),
        ],
        service="configsync",
        listen=Address(host="127.0.0.1", port=0),
        meter=NoOpMeterProvider().get_meter("test"),
        ready=lambda: True,
        access=PortAccess(gate=Gate(AUTH, tokens=tokens(tmp_path))),
    )
    await server.start()
    yield f"127.0.0.1:{server.port}"
    await server.stop(0)


async def ask(endpoint: str, directory: Path, who: str, *, dry_run: bool = False) -> str:
    """The code of the answer."""
    change = pb2.RuleChange(key="topics", value="password=hunter2-planted")
    request = pb2.UpdateRulesRequest(changes=[change], dry_run=dry_run)
    async with open_channel(endpoint, stubs(directory, who)) as channel:
        stub = ConfigSyncServiceStub(channel)
        await stub.GetRules(pb2.GetRulesRequest(), timeout=TIMEOUT_SECONDS)
        try:
            await stub.UpdateRules(request, timeout=TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as failure:
            return failure.code().name
    return "OK"


async def test_an_audit_entry_has_caller_change_address_and_outcome(
    endpoint: str, tmp_path: Path, log_stream: io.StringIO
) -> None:
    assert await ask(endpoint, tmp_path, "admin") == "OK"
    assert await ask(endpoint, tmp_path, "admin", dry_run=True) == "FAILED_PRECONDITION"
    assert await ask(endpoint, tmp_path, "viewer") == "PERMISSION_DENIED"
    text = log_stream.getvalue()
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in text.splitlines() if line.startswith("{") and '"audit"' in line
    ]
    told = [(line["caller"], line["role"], line["via"], line["outcome"]) for line in lines]
    assert told == [
        ("file:admin", "admin", "token", "OK"),
        ("file:admin", "admin", "token", "OWNED_ELSEWHERE"),
        ("file:viewer", "viewer", "token", "NOT_AUTHORIZED"),
    ]
    assert all(line["method"] == "UpdateRules" and line["peer"] and line["request_id"] for line in lines)
    assert (lines[0]["before"], lines[0]["after"]) == ({"topics": "a"}, {"topics": "b"})
    assert lines[0]["request"]["changes"][0]["key"] == "topics"
    assert "before" not in lines[1]
    assert "hunter2" not in text
    assert "secret-token" not in text


async def test_callers_that_nobody_knows_have_few_short_lines(endpoint: str, log_stream: io.StringIO) -> None:
    """Else who has no token fills the disk, and keeps the loop busy with requests of megabytes."""
    request = pb2.UpdateRulesRequest(changes=[pb2.RuleChange(key="topics", value="planted")])
    calls = 200
    async with open_channel(endpoint, ClientSecurity()) as channel:
        stub = ConfigSyncServiceStub(channel)
        for _ in range(calls):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.UpdateRules(request, timeout=TIMEOUT_SECONDS)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    lines = [json.loads(each) for each in log_stream.getvalue().splitlines() if '"audit"' in each]
    assert 0 < len(lines) < calls
    first = lines[0]
    assert (first["method"], first["caller"], first["request"]) == ("UpdateRules", "", None)
    assert (first["outcome"], "left_out" in first) == ("NOT_AUTHENTICATED", False)


async def test_what_a_call_begins_is_on_record_though_its_caller_disconnects(
    endpoint: str, tmp_path: Path, log_stream: io.StringIO, runs: Runs
) -> None:
    def lines() -> list[dict[str, Any]]:
        return [json.loads(each) for each in log_stream.getvalue().splitlines() if '"audit"' in each]

    async with open_channel(endpoint, stubs(tmp_path, "admin")) as channel:
        call = CheckpointServiceStub(channel).RunFailover(
            checkpoint_pb2.RunFailoverRequest(), timeout=TIMEOUT_SECONDS
        )
        assert await call.read() == checkpoint_pb2.RunFailoverResponse()
        (started,) = lines()
        assert (started["method"], started["caller"], started["outcome"]) == (
            "RunFailover",
            "file:admin",
            "STARTED",
        )
        call.cancel()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await runs.left.wait()
    runs.begun[0].ended("OK", before={"offset": None}, after={"offset": 7})
    _, ended = lines()
    assert (ended["before"], ended["after"], ended["outcome"]) == ({"offset": None}, {"offset": 7}, "OK")
    for fact in ("method", "caller", "role", "via", "peer", "request", "request_id"):
        assert started[fact] == ended[fact]
