"""The audit log: one line for each call that changes something, whatever comes of it, and no secret in it."""

import hashlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.metrics import NoOpMeterProvider

from contract.test_access import AUTH, TIMEOUT_SECONDS
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import (
    ConfigSyncServiceServicer,
    ConfigSyncServiceStub,
    add_ConfigSyncServiceServicer_to_server,
)
from twinlog.config import Address
from twinlog.config.security import ClientSecurity
from twinlog.errors import StateError
from twinlog.service.access.audit import changed
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
async def endpoint(tmp_path: Path, log_stream: io.StringIO) -> AsyncIterator[str]:
    configure_logging(service="configsync", version="1", format="json", level="info", stream=log_stream)
    server = GrpcServer(
        [
            GrpcService(
                name=pb2.DESCRIPTOR.services_by_name["ConfigSyncService"].full_name,
                add=add_ConfigSyncServiceServicer_to_server,
                servicer=Rules(),  # type: ignore[abstract]  # its other methods answer UNIMPLEMENTED
            )
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


async def test_who_what_before_after_whence_and_what_came_of_it(
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
