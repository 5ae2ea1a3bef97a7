"""`twinlog pause` and `twinlog resume`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.flow_choice import (
    OptionalFlowArgument,
    OptionalFlowOption,
    chosen_flow,
    required_flow,
)
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.output import Output, OutputOption, print_json
from twinlog.cli.common.undo import print_undo, undo_command
from twinlog.cli.source.client import (
    CALL_TIMEOUT_SECONDS,
    PartitionOption,
    TopicOption,
    answered,
    list_flows,
    parse_scope,
    scope_name,
    scope_words,
    source_stub,
    who,
)
from twinlog.errors import ConfigError


def pause_command(
    flow: OptionalFlowArgument = None,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    flow_option: OptionalFlowOption = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop copying a flow, a topic or a partition within a second, until `twinlog resume`.

    A pause survives restarts; everything else is still copied. Without a flow the command changes nothing and
    lists what is paused, by whom and since when.
    """
    with reported_failures():
        named = chosen_flow(flow, flow_option)
        if named is None and (topic or partition is not None):
            raise ConfigError("--topic needs the flow, such as 'A->B'", metadata={"key": "--topic"})
        if named is None:
            _print(run_async(_list(config, endpoint)), output, still="")
            return
        scope = parse_scope(named, topic, partition)
        pauses = run_async(_pause(scope, config, endpoint))
        _print(pauses, output, still="")
        if output is Output.TABLE:
            print_undo([undo_command("resume", *scope_words(scope))])


def resume_command(
    flow: OptionalFlowArgument = None,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="End every pause of the flow, of its topics and of its partitions.")
    ] = False,
    flow_option: OptionalFlowOption = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """End a pause: name exactly what was paused, or give --all. The command prints what is still paused."""
    with reported_failures():
        if everything and (topic or partition is not None):
            raise ConfigError(
                "--all ends every pause of the flow: omit --topic and --partition",
                metadata={"key": "--all"},
            )
        scope = parse_scope(required_flow(flow, flow_option), topic, partition)
        before, pauses = run_async(_resume(scope, everything, config, endpoint))
        _print(pauses, output, still="still ")
        if output is Output.TABLE:
            print_undo(undo_of_resume(before, pauses))


async def _list(config: Path | None, endpoint: list[str] | None) -> list[pb2.Pause]:
    async with source_stub(config, endpoint) as stub:
        return [pause for flow in await list_flows(stub, None) for pause in flow.pauses]


async def _pause(scope: pb2.Scope, config: Path | None, endpoint: list[str] | None) -> list[pb2.Pause]:
    async with source_stub(config, endpoint) as stub:
        request = pb2.PauseReplicationRequest(scope=scope, by=who())
        return list((await answered(stub.PauseReplication(request, timeout=CALL_TIMEOUT_SECONDS))).pauses)


async def _resume(
    scope: pb2.Scope, everything: bool, config: Path | None, endpoint: list[str] | None
) -> tuple[list[pb2.Pause], list[pb2.Pause]]:
    """The pauses before and after."""
    async with source_stub(config, endpoint) as stub:
        flows = await list_flows(stub, None)
        before = [pause for flow in flows if flow.flow == scope.flow for pause in flow.pauses]
        request = pb2.ResumeReplicationRequest(scope=scope, by=who(), all=everything)
        answer = await answered(stub.ResumeReplication(request, timeout=CALL_TIMEOUT_SECONDS))
        return before, list(answer.pauses)


def undo_of_resume(before: Iterable[pb2.Pause], after: Iterable[pb2.Pause]) -> list[str]:
    """A command for each pause that was ended."""
    left = [pause.scope for pause in after]
    return [undo_command("pause", *scope_words(pause.scope)) for pause in before if pause.scope not in left]


def _print(pauses: Iterable[pb2.Pause], output: Output, *, still: str) -> None:
    if output is Output.JSON:
        print_json([_as_json(pause) for pause in pauses])
        return
    lines = [
        f"{still}paused: {scope_name(pause.scope)}, by {pause.by} since {pause.since.ToJsonString()}"
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
