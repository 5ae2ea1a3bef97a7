"""`twinlog topics`: every topic of a flow, and why one is not copied."""

from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.flow_choice import OptionalFlowArgument, OptionalFlowOption, chosen_flow
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.configsync.client import answered, chosen_flows, configsync_stub, every_topic, flow_name

_COLUMNS = (
    Column(title="flow", spare=1),
    Column(title="topic"),
    Column(title="on target"),
    Column(title="partitions", right=True),
    Column(title="state"),
    Column(title="reason"),
)
_READY = "READY"
_SECONDS = 10.0


def topics_command(
    flow: OptionalFlowArgument = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only topics that are not READY, or not in step.")
    ] = False,
    flow_option: OptionalFlowOption = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show every topic that the rules of a flow select: its copy, its partitions, and why one is not copied.

    Topics that no rule selects are not listed: `twinlog explain topic NAME` says which rule leaves one out.
    """
    with reported_failures():
        named = chosen_flow(flow, flow_option)
    found = run_async(_topics(named, config, endpoint))
    shown = [topic for topic in found if not waiting or is_troubled(topic)]
    with reported_failures():
        if output is Output.JSON:
            print_json([as_json(topic) for topic in shown])
        else:
            empty = "no topic waits" if found else "no topic is selected"
            print_table("", _COLUMNS, [cells(topic) for topic in shown], empty=empty)


def is_troubled(topic: pb2.ReplicatedTopic) -> bool:
    """Whether it waits, was deleted on the source, or is copied but not in sync."""
    return state_name(topic) != _READY or bool(topic.reason)


def cells(topic: pb2.ReplicatedTopic) -> list[str]:
    short = topic.target_partition_count < topic.partition_count
    return [
        flow_name(topic.flow),
        topic.source_topic,
        topic.target_topic,
        f"{topic.target_partition_count} of {topic.partition_count}" if short else str(topic.partition_count),
        state_name(topic),
        f"{topic.reason} {topic.message}".strip(),
    ]


def as_json(topic: pb2.ReplicatedTopic) -> dict[str, Any]:
    return {
        "flow": flow_name(topic.flow),
        "source_topic": topic.source_topic,
        "target_topic": topic.target_topic,
        "partition_count": topic.partition_count,
        "target_partition_count": topic.target_partition_count,
        "state": state_name(topic),
        "reason": topic.reason or None,
        "message": topic.message or None,
        "source_topic_id": topic.source_topic_id or None,
        "target_topic_id": topic.target_topic_id or None,
        "generation": topic.generation,
        "source_cleanup_policy": topic.source_cleanup_policy or None,
    }


def state_name(topic: pb2.ReplicatedTopic) -> str:
    """`READY`."""
    return pb2.TopicState.Name(topic.state).removeprefix("TOPIC_STATE_")


async def _topics(
    flow: str | None, config: Path | None, endpoint: list[str] | None
) -> list[pb2.ReplicatedTopic]:
    async with configsync_stub(config, endpoint) as stub:
        found: list[pb2.ReplicatedTopic] = []
        for each in await chosen_flows(stub, flow):
            found += await answered(every_topic(stub, each, timeout_seconds=_SECONDS))
        return found
