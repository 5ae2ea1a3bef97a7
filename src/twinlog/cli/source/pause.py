"""`twinlog pause` and `twinlog resume`."""

from collections.abc import Iterable
from typing import Annotated

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.fields import Field, Fields, as_json
from twinlog.cli.common.flow_choice import (
    OptionalFlowArgument,
    OptionalFlowOption,
    chosen_flow,
    required_flow,
)
from twinlog.cli.common.names import who
from twinlog.cli.common.undo import print_undo, undo_command
from twinlog.cli.source.client import (
    PartitionOption,
    TopicOption,
    list_flows,
    parse_scope,
    scope_name,
    scope_words,
)
from twinlog.errors import ConfigError

PAUSE: Fields[pb2.Pause] = (
    Field("scope", lambda pause: scope_name(pause.scope)),
    Field("topic", "scope.source_topic?"),
    Field("partition", "scope.partition"),
    Field("by"),
    Field("since"),
)


@command
def pause_command(
    call: Call,
    flow: OptionalFlowArgument = None,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    flow_option: OptionalFlowOption = None,
) -> None:
    """Stop copying a flow, a topic or a partition within a second, until `twinlog resume`.

    A pause survives restarts; everything else is still copied. Without a flow the command changes nothing and
    lists what is paused, by whom and since when.
    """
    named = chosen_flow(flow, flow_option)
    if named is None and (topic or partition is not None):
        raise ConfigError("--topic needs the flow, such as 'A->B'", metadata={"key": "--topic"})
    if named is None:
        _tell(call, call.ask(_pauses), [])
        return
    scope = parse_scope(named, topic, partition)
    request = pb2.PauseReplicationRequest(scope=scope, by=who())
    pauses = call.ask(lambda at: at.source.PauseReplication(request)).pauses
    _tell(call, pauses, [undo_command("resume", *scope_words(scope))])


@command
def resume_command(
    call: Call,
    flow: OptionalFlowArgument = None,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="End every pause of the flow, of its topics and of its partitions.")
    ] = False,
    flow_option: OptionalFlowOption = None,
) -> None:
    """End a pause: name exactly what was paused, or give --all. The command prints what is still paused."""
    if everything and (topic or partition is not None):
        raise ConfigError(
            "--all ends every pause of the flow: omit --topic and --partition", metadata={"key": "--all"}
        )
    scope = parse_scope(required_flow(flow, flow_option), topic, partition)
    request = pb2.ResumeReplicationRequest(scope=scope, by=who(), all=everything)

    async def resume(at: Services) -> tuple[list[pb2.Pause], Iterable[pb2.Pause]]:
        before = [pause for pause in await _pauses(at) if pause.scope.flow == scope.flow]
        return before, (await at.source.ResumeReplication(request)).pauses

    before, pauses = call.ask(resume)
    _tell(call, pauses, undo_of_resume(before, pauses), still="still ")


async def _pauses(at: Services) -> list[pb2.Pause]:
    return [pause for flow in await list_flows(at.source, None) for pause in flow.pauses]


def undo_of_resume(before: Iterable[pb2.Pause], after: Iterable[pb2.Pause]) -> list[str]:
    """A command for each pause that was ended."""
    left = [pause.scope for pause in after]
    return [undo_command("pause", *scope_words(pause.scope)) for pause in before if pause.scope not in left]


def _tell(call: Call, pauses: Iterable[pb2.Pause], undo: list[str], *, still: str = "") -> None:
    def text() -> None:
        lines = [
            f"{still}paused: {scope_name(pause.scope)}, by {pause.by} since {pause.since.ToJsonString()}"
            for pause in pauses
        ]
        typer.echo("\n".join(lines) or "nothing is paused now")
        print_undo(undo)

    call.tell([as_json(PAUSE, pause) for pause in pauses], text)
