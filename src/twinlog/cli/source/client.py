"""What commands about the copy share: options, scopes, and lists of the source service."""

from typing import Annotated

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.common.names import MOST_PARTITION, flow_name, parse_flow
from twinlog.cli.common.options import argument, option
from twinlog.errors import ConfigError

FlowArgument = Annotated[str, argument("A->B", "The flow.")]
TopicOption = Annotated[
    str, option("--topic NAME", "Only this topic, by its name on either side; all when left out.")
]
PartitionOption = Annotated[
    int | None, option("--partition N", "Only this partition of the topic.", min=0, max=MOST_PARTITION)
]


async def list_flows(stub: SourceServiceStub, flow: str | None) -> list[pb2.FlowStatus]:
    """All flows, or the named one. Raises ConfigError when it does not exist."""
    wanted = None if flow is None else parse_flow(flow)
    listed = await stub.ListFlows(pb2.ListFlowsRequest())
    found = [status for status in listed.flows if wanted is None or status.flow == wanted]
    if wanted is not None and not found:
        known = ", ".join(flow_name(status.flow) for status in listed.flows) or "none"
        raise ConfigError(f"there is no flow {flow} here; flows: {known}", key="FLOW")
    return found


async def every_partition(
    stub: SourceServiceStub, flow: types_pb2.Flow | None, topic: str, *, from_owner: bool = False
) -> list[pb2.PartitionStatus]:
    """All partitions as the owners of their flows tell them. Of a flow whose owner does not answer a standby
    tells the stored positions, which may be slightly old, and no faults; not if `from_owner`, which needs a
    flow. Raises the service's error."""
    request = pb2.ListPartitionsRequest(flow=flow, source_topic=topic, from_owner=from_owner)
    return [*(await stub.ListPartitions(request)).partitions]


def flow_partition(status: pb2.PartitionStatus) -> tuple[str, str, str, int]:
    """As lists are sorted."""
    return status.flow.source, status.flow.target, status.source.topic, status.source.partition


def parse_scope(flow: str, topic: str, partition: int | None) -> pb2.Scope:
    """Raises ConfigError."""
    if partition is not None and not topic:
        raise ConfigError("--partition needs --topic", key="--partition")
    return pb2.Scope(flow=parse_flow(flow), source_topic=topic, partition=partition)


def scope_name(scope: pb2.Scope) -> str:
    """`A->B`, `A->B orders`, `A->B orders-3`."""
    number = f"-{scope.partition}" if scope.HasField("partition") else ""
    return (
        f"{flow_name(scope.flow)} {scope.source_topic}{number}"
        if scope.source_topic
        else flow_name(scope.flow)
    )


def scope_words(scope: pb2.Scope) -> list[str]:
    """The scope as arguments of a command line."""
    words = [flow_name(scope.flow)]
    if scope.source_topic:
        words += ["--topic", scope.source_topic]
    if scope.HasField("partition"):
        words += ["--partition", str(scope.partition)]
    return words


def parse_bytes(text: str, key: str, hint: str = "") -> int:
    """Read `none`, `500000`, `500k`, `20M`, `1G` (thousands). Raises ConfigError about this argument."""
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
            f"{key}: {text!r} is not a number of bytes such as 500k, 20M or 1G, or none{hint}", key=key
        )
    return int(value)
