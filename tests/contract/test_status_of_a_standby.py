"""`twinlog status` that reaches a checkpoint service on standby: groups are the owner's, or not known."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from opentelemetry.metrics import NoOpMeter

from contract.ui_services import CLUSTERS, FLOW
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2_grpc as pb2_grpc
from twinlog.cli.common.call import Services
from twinlog.cli.status.details import ask_checkpoint
from twinlog.cli.status.rows import STANDS_BY, FlowRow, Status
from twinlog.errors import StateError
from twinlog.service.interceptors import RpcBoundary
from twinlog.service.peers import open_to_owner

TIMEOUT_SECONDS = 20.0
NOBODY = "127.0.0.1:1"


class _Owner(pb2_grpc.CheckpointServiceServicer):
    async def ListGroups(self, request: Any, context: Any) -> pb2.ListGroupsResponse:  # noqa: N802
        summary = pb2.GroupSummary(flow=FLOW, group_count=3, partitions_by_verdict={"EXACT": 7})
        return pb2.ListGroupsResponse(
            ready_flows=[FLOW],
            clusters=CLUSTERS,
            summaries=[summary],
            flows=[pb2.FlowProgress(flow=FLOW, ready=True)],
        )

    async def ListMoves(self, request: Any, context: Any) -> pb2.ListMovesResponse:  # noqa: N802
        return pb2.ListMovesResponse(moves=[pb2.FlowMove(flow=FLOW)])


class _Standby(_Owner):
    def __init__(self, owner: str) -> None:
        self._owner = owner

    async def ListGroups(self, request: Any, context: Any) -> pb2.ListGroupsResponse:  # noqa: N802
        if request.HasField("from_owner_of"):
            raise StateError("stands by", reason=STANDS_BY, metadata={"owner_address": self._owner})
        progress = pb2.FlowProgress(flow=FLOW, obstacle="stands by", obstacle_reason=STANDS_BY)
        return pb2.ListGroupsResponse(
            ready_flows=[FLOW],
            clusters=CLUSTERS,
            summaries=[pb2.GroupSummary(flow=FLOW)],
            flows=[progress],
            owned_elsewhere=[FLOW],
        )


@asynccontextmanager
async def serving(servicer: _Owner) -> AsyncIterator[str]:
    server = grpc.aio.server(interceptors=[RpcBoundary(service="checkpoint", meter=NoOpMeter("test"))])
    pb2_grpc.add_CheckpointServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def an_owner() -> _Owner:
    return _Owner()  # type: ignore[abstract]


def a_standby(owner: str) -> _Standby:
    return _Standby(owner)  # type: ignore[abstract]


async def asked_at(endpoint: str) -> FlowRow:
    status = Status(services=[])
    channel = open_to_owner(endpoint, lambda _: None)
    async with Services(open_to=lambda _: channel, seconds=TIMEOUT_SECONDS) as at:
        await ask_checkpoint(at, status)
    return status.flow(FLOW)


@pytest.mark.parametrize("through_the_standby", [True, False])
async def test_the_groups_are_those_that_the_owner_counts(through_the_standby: bool) -> None:
    async with serving(an_owner()) as owner, serving(a_standby(owner)) as standby:
        row = await asked_at(standby if through_the_standby else owner)
    assert (row.group_count, row.groups) == (3, {"EXACT": 7})
    assert not row.notes


async def test_without_the_owner_nothing_is_known_of_groups() -> None:
    async with serving(a_standby(NOBODY)) as standby:
        row = await asked_at(standby)
    assert row.group_count is None, "none is an answer, too, and not this one"
    assert row.stands_by("checkpoint")
