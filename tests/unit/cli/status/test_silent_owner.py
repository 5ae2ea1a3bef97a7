"""An owner that does not answer delays the status once, not with every question."""

import asyncio

import grpc

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.call import called
from twinlog.errors import TwinlogError
from twinlog.service.peers import CALL_TIMEOUT_SECONDS
from twinlog.service.waiting import wait_or_stop

FLOW = types_pb2.Flow(source="A", target="B")


class Standby:
    """A process that sends calls on to an owner, who is silent."""

    asked = 0

    async def ListFlows(  # noqa: N802
        self, request: pb2.ListFlowsRequest, *, timeout: float = 0.0
    ) -> pb2.ListFlowsResponse:
        if not request.HasField("from_owner_of"):
            return pb2.ListFlowsResponse(flows=[pb2.FlowStatus(flow=FLOW)], owned_elsewhere=[FLOW])
        self.asked += 1
        await wait_or_stop(asyncio.Event(), timeout)
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, nothing, nothing)


async def test_who_remembers_silent_owners_asks_each_once() -> None:
    standby, silent, now = Standby(), dict[str, TwinlogError](), asyncio.get_running_loop().time
    began = now()
    for _ in range(3):
        answer = await called(standby, "source", silent=silent).ListFlows(pb2.ListFlowsRequest())
        assert [each.flow for each in answer.flows] == [FLOW], "what the standby knows"
    assert (standby.asked, now() - began) == (1, CALL_TIMEOUT_SECONDS)
    assert [each.reason for each in silent.values()] == ["PEER_TIMEOUT"]
    await called(standby, "source").ListFlows(pb2.ListFlowsRequest())
    assert standby.asked == 2, "a page that follows a table asks again"
