"""How commands call configsync: one channel, one deadline, Twinlog's errors."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import grpc

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.cli.common.location import service_channel
from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.service.errors_wire import error_from_rpc

Answer = TypeVar("Answer")

PASS_TIMEOUT_SECONDS = 90.0
"""Reading two clusters takes as long as their clients wait, and another pass may have to end first."""

PAGE = 5000
"""Actions or ACLs of one page."""


@asynccontextmanager
async def configsync_stub(
    config: Path | None, endpoints: list[str] | None
) -> AsyncIterator[ConfigSyncServiceStub]:
    """A stub for configsync. Raises ConfigError for a wrong file or option."""
    async with service_channel(config, endpoints, "configsync") as channel:
        yield ConfigSyncServiceStub(channel)


async def answered(call: Awaitable[Answer]) -> Answer:
    """Return the answer of a call. Raises the service's error."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error, peer="configsync") from error


async def chosen_flows(stub: ConfigSyncServiceStub, name: str | None) -> list[types_pb2.Flow]:
    """The flow of this name, or all flows of configsync. Raises ConfigError for a name that is not a flow."""
    if name is not None:
        return [parse_flow(name)]
    answer = await answered(stub.ListFlows(pb2.ListFlowsRequest(), timeout=5.0))
    return [status.flow for status in answer.flows]


async def every_topic(
    stub: ConfigSyncServiceStub, flow: types_pb2.Flow, *, timeout_seconds: float
) -> list[pb2.ReplicatedTopic]:
    """All topics of a flow. `timeout_seconds` applies to each page. Raises AioRpcError."""
    request = pb2.ListTopicsRequest(flow=flow)
    found: list[pb2.ReplicatedTopic] = []
    while True:
        answer = await stub.ListTopics(request, timeout=timeout_seconds)
        found += answer.topics
        if not answer.next_page_token:
            return found
        request.page_token = answer.next_page_token


def parse_flow(name: str) -> types_pb2.Flow:
    """Raises ConfigError."""
    try:
        flow = Flow.parse(name)
    except ValueError as error:
        raise ConfigError(str(error), metadata={"key": "FLOW"}) from None
    return types_pb2.Flow(source=flow.source, target=flow.target)


def flow_name(flow: types_pb2.Flow) -> str:
    return f"{flow.source}->{flow.target}"
