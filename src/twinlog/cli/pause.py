"""`twinlog pause` and `twinlog resume`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.failures import reported_failures, run_async
from twinlog.cli.location import ConfigOption, EndpointOption
from twinlog.cli.output import Output, OutputOption, print_json
from twinlog.cli.source_client import (
    CALL_TIMEOUT_SECONDS,
    FlowArgument,
    PartitionOption,
    TopicOption,
    answered,
    parse_scope,
    scope_name,
    source_stub,
    who,
)


def pause_command(
    flow: FlowArgument,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop copying a flow, a topic or a partition within a second, until it is resumed: also across restarts.

    Everything else goes on.
    """
    with reported_failures():
        pauses = run_async(_pause(parse_scope(flow, topic, partition), config, endpoint))
        _print(pauses, output)


def resume_command(
    flow: FlowArgument,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a pause back: name what was paused, exactly."""
    with reported_failures():
        pauses = run_async(_resume(parse_scope(flow, topic, partition), config, endpoint))
        _print(pauses, output)


async def _pause(scope: pb2.Scope, config: Path | None, endpoint: list[str] | None) -> list[pb2.Pause]:
    async with source_stub(config, endpoint) as stub:
        request = pb2.PauseReplicationRequest(scope=scope, by=who())
        return list((await answered(stub.PauseReplication(request, timeout=CALL_TIMEOUT_SECONDS))).pauses)


async def _resume(scope: pb2.Scope, config: Path | None, endpoint: list[str] | None) -> list[pb2.Pause]:
    async with source_stub(config, endpoint) as stub:
        request = pb2.ResumeReplicationRequest(scope=scope, by=who())
        return list((await answered(stub.ResumeReplication(request, timeout=CALL_TIMEOUT_SECONDS))).pauses)


def _print(pauses: Iterable[pb2.Pause], output: Output) -> None:
    if output is Output.JSON:
        print_json([_as_json(pause) for pause in pauses])
        return
    lines = [
        f"paused: {scope_name(pause.scope)}, by {pause.by} since {pause.since.ToJsonString()}"
        for pause in pauses
    ]
    typer.echo("\n".join(lines) or "nothing is paused now")


def _as_json(pause: pb2.Pause) -> dict[str, Any]:
    return {
        "scope": scope_name(pause.scope),
        "topic": pause.scope.source_topic or None,
        "partition": pause.scope.partition if pause.scope.HasField("partition") else None,
        "by": pause.by,
        "since": pause.since.ToJsonString(),
    }
