"""How commands call the checkpoint service: one channel, one deadline, Twinlog's errors, shared wording."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import grpc
import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.location import service_channel
from twinlog.cli.configsync.client import flow_name
from twinlog.errors import ConfigError
from twinlog.service.errors_wire import error_from_rpc

CALL_TIMEOUT_SECONDS = 60.0
"""Translating many offsets reads logs; most calls take milliseconds."""
PAGE = 5000
"""Rows of one page."""

Answer = TypeVar("Answer")

FlowOption = Annotated[
    str | None,
    typer.Option("--flow", metavar="A->B", help="The same as the argument.", hidden=True),
]


@asynccontextmanager
async def checkpoint_stub(
    config: Path | None, endpoints: list[str] | None
) -> AsyncIterator[CheckpointServiceStub]:
    """A stub for the checkpoint service. Raises ConfigError for a wrong file or option."""
    async with service_channel(config, endpoints, "checkpoint") as channel:
        yield CheckpointServiceStub(channel)


async def answered(call: Awaitable[Answer]) -> Answer:
    """Return the answer of a call. Raises the service's error."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error, peer="checkpoint") from error


async def every_group(
    stub: CheckpointServiceStub, request: pb2.ListGroupsRequest, *, page: int = PAGE
) -> pb2.ListGroupsResponse:
    """Return the answer with the rows of all its pages. Raises the service's error."""
    asked = pb2.ListGroupsRequest()
    asked.CopyFrom(request)
    asked.page_size = page
    whole = await answered(stub.ListGroups(asked, timeout=CALL_TIMEOUT_SECONDS))
    while whole.next_page_token:
        asked.page_token = whole.next_page_token
        more = await answered(stub.ListGroups(asked, timeout=CALL_TIMEOUT_SECONDS))
        whole.groups.extend(more.groups)
        whole.next_page_token = more.next_page_token
    return whole


async def only_flow(stub: CheckpointServiceStub) -> types_pb2.Flow:
    """The one flow that the service translates. Raises ConfigError when it is not exactly one."""
    request = pb2.ListGroupsRequest(summary_only=True)
    listed = await answered(stub.ListGroups(request, timeout=CALL_TIMEOUT_SECONDS))
    flows = [each.flow for each in listed.flows]
    if len(flows) == 1:
        return flows[0]
    if not flows:
        raise ConfigError(
            "no flow of the checkpoint service translates groups: see `twinlog status`",
            metadata={"key": "--flow"},
        )
    names = ", ".join(flow_name(flow) for flow in flows)
    raise ConfigError(
        f"there are several flows, say which, such as {flow_name(flows[0])!r}: {names}",
        metadata={"key": "--flow"},
    )


def verdict_name(verdict: "pb2.Verdict.ValueType") -> str:
    return pb2.Verdict.Name(verdict).removeprefix("VERDICT_")


def shown(number: int | None) -> str:
    """A number, or a dash if it is unknown."""
    return "-" if number is None else str(number)


def topic_partition(partition: types_pb2.TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
