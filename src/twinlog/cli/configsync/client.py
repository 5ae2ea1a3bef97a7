"""What commands about topics, configuration and access share."""

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.cli.common.names import parse_flow
from twinlog.service.feeds.pages import every


async def chosen_flows(stub: ConfigSyncServiceStub, name: str | None) -> list[types_pb2.Flow]:
    """The flow of this name, or all flows of configsync. Raises ConfigError for a name that is not a flow."""
    if name is not None:
        return [parse_flow(name)]
    answer = await stub.ListFlows(pb2.ListFlowsRequest(), timeout=5.0)
    return [status.flow for status in answer.flows]


async def every_topic(
    stub: ConfigSyncServiceStub, flow: types_pb2.Flow, *, timeout_seconds: float
) -> pb2.ListTopicsResponse:
    """All topics of a flow, and whether all are known. `timeout_seconds` applies to each page. Raises the
    stub's errors."""
    request = pb2.ListTopicsRequest(flow=flow)
    return await every(stub.ListTopics, request, "topics", timeout=timeout_seconds)
