"""How commands call the source service: one channel, one deadline, Twinlog's errors, and shared wording."""

import getpass
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import grpc
import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.common.location import service_channel
from twinlog.cli.common.numbers import MOST_PARTITION
from twinlog.cli.configsync.client import flow_name, parse_flow
from twinlog.errors import ConfigError
from twinlog.service.errors_wire import error_from_rpc

CALL_TIMEOUT_SECONDS = 30.0
PAGE = 5000

Answer = TypeVar("Answer")

FlowArgument = Annotated[str, typer.Argument(metavar="A->B", help="The flow.")]
TopicOption = Annotated[
    str,
    typer.Option("--topic", metavar="NAME", help="Only this source topic; all when left out."),
]
PartitionOption = Annotated[
    int | None,
    typer.Option(
        "--partition", min=0, max=MOST_PARTITION, metavar="N", help="Only this partition of the topic."
    ),
]


@asynccontextmanager
async def source_stub(config: Path | None, endpoints: list[str] | None) -> AsyncIterator[SourceServiceStub]:
    """A stub for the source service. Raises ConfigError for a wrong file or option."""
    async with service_channel(config, endpoints, "source") as channel:
        yield SourceServiceStub(channel)


async def answered(call: Awaitable[Answer]) -> Answer:
    """Return the answer of a call. Raises the service's error."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error, peer="source") from error


async def list_flows(stub: SourceServiceStub, flow: str | None) -> list[pb2.FlowStatus]:
    """All flows, or the named one. Raises ConfigError when it does not exist."""
    wanted = None if flow is None else parse_flow(flow)
    listed = await answered(stub.ListFlows(pb2.ListFlowsRequest(), timeout=CALL_TIMEOUT_SECONDS))
    found = [status for status in listed.flows if wanted is None or status.flow == wanted]
    if wanted is not None and not found:
        known = ", ".join(flow_name(status.flow) for status in listed.flows) or "none"
        raise ConfigError(f"there is no flow {flow} here; flows: {known}", metadata={"key": "FLOW"})
    return found


async def every_partition(
    stub: SourceServiceStub, flow: types_pb2.Flow | None, topic: str, *, from_owner: bool = False
) -> list[pb2.PartitionStatus]:
    """All partitions, page by page. `from_owner` needs a flow; a standby only knows stored positions, which
    may be slightly old. Raises the service's error."""
    request = pb2.ListPartitionsRequest(flow=flow, source_topic=topic, page_size=PAGE, from_owner=from_owner)
    found: list[pb2.PartitionStatus] = []
    while True:
        answer = await answered(stub.ListPartitions(request, timeout=CALL_TIMEOUT_SECONDS))
        found += answer.partitions
        if not answer.next_page_token:
            return found
        request.page_token = answer.next_page_token


async def every_gap(
    stub: SourceServiceStub, flow: types_pb2.Flow | None, topic: str, *, timeout_seconds: float
) -> pb2.ListGapsResponse:
    """The whole ledger, page by page. `timeout_seconds` applies to each page. Raises AioRpcError."""
    request = pb2.ListGapsRequest(flow=flow, source_topic=topic)
    whole = await stub.ListGaps(request, timeout=timeout_seconds)
    request.page_token = whole.next_page_token
    while request.page_token:
        page = await stub.ListGaps(request, timeout=timeout_seconds)
        whole.gaps.extend(page.gaps)
        request.page_token = page.next_page_token
    whole.next_page_token = ""
    return whole


def parse_scope(flow: str, topic: str, partition: int | None) -> pb2.Scope:
    """Raises ConfigError."""
    if partition is not None and not topic:
        raise ConfigError("--partition needs --topic", metadata={"key": "--partition"})
    return pb2.Scope(flow=parse_flow(flow), source_topic=topic, partition=partition)


def scope_name(scope: pb2.Scope) -> str:
    """`A->B`, `A->B orders`, `A->B orders-3`."""
    name = flow_name(scope.flow)
    if not scope.source_topic:
        return name
    number = f"-{scope.partition}" if scope.HasField("partition") else ""
    return f"{name} {scope.source_topic}{number}"


def scope_words(scope: pb2.Scope) -> list[str]:
    """The scope as arguments of a command line."""
    words = [flow_name(scope.flow)]
    if scope.source_topic:
        words += ["--topic", scope.source_topic]
    if scope.HasField("partition"):
        words += ["--partition", str(scope.partition)]
    return words


def partition_name(partition: types_pb2.TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def who(current_user: Callable[[], str] = getpass.getuser) -> str:
    """The caller's name, for the service's log and the flow's records."""
    try:
        user = current_user()
    except (KeyError, OSError):
        # Containers often run with a user number without a passwd entry.
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def shown_bytes(size: float) -> str:
    """`1.5 MB`: for people."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def parse_bytes(text: str) -> int:
    """Read `none`, `500000`, `500k`, `20M`, `1G` (thousands). Raises ConfigError."""
    factors = {"k": 10**3, "m": 10**6, "g": 10**9}
    plain = text.strip().lower().removesuffix("/s").removesuffix("b")
    if plain == "none":
        return 0
    factor = factors.get(plain[-1:], 1)
    number = plain[:-1] if factor > 1 else plain
    try:
        value = float(number) * factor
    except ValueError:
        value = -1.0
    if not 1 <= value < 10**15:
        raise ConfigError(
            f"{text!r} is not a rate: expected bytes per second such as 500k or 20M, or none",
            metadata={"key": "RATE"},
        )
    return int(value)
