"""`twinlog throttle`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.flow_choice import is_flow
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.output import Output, OutputOption, print_json
from twinlog.cli.common.undo import print_undo, undo_command
from twinlog.cli.source.client import (
    CALL_TIMEOUT_SECONDS,
    TopicOption,
    answered,
    list_flows,
    parse_bytes,
    parse_scope,
    scope_name,
    scope_words,
    shown_bytes,
    source_stub,
    who,
)
from twinlog.errors import ConfigError


def throttle_command(
    flow: Annotated[
        str | None, typer.Argument(metavar="[A->B]", help="The flow; all when left out.", show_default=False)
    ] = None,
    rate: Annotated[
        str | None,
        typer.Argument(
            metavar="[RATE]",
            help="Bytes per second: 500k, 20M, 1G; none = no limit. Left out: show the limits in force.",
            show_default=False,
        ),
    ] = None,
    topic: TopicOption = "",
    flow_option: Annotated[
        str | None, typer.Option("--flow", metavar="A->B", help="The same as the argument.", hidden=True)
    ] = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Limit the bytes per second of a flow or a topic, from now on and across restarts.

    Without RATE the command changes nothing and lists the limits in force.
    """
    with reported_failures():
        named, wanted = _named(flow, flow_option, rate)
        if wanted is None:
            throttles = run_async(_list(named, topic, config, endpoint))
            _print(throttles, output, prefix="")
            return
        if named is None:
            raise ConfigError("name the flow, such as 'A->B' (in quotes)", metadata={"key": "FLOW"})
        scope = parse_scope(named, topic, None)
        bytes_per_second = parse_bytes(wanted)
        before, throttles = run_async(_throttle(scope, bytes_per_second, config, endpoint))
        _print(throttles, output, prefix="" if bytes_per_second else "still ")
        if output is Output.TABLE:
            print_undo(undo_of_throttle(scope, before, bytes_per_second))


def _named(flow: str | None, option: str | None, rate: str | None) -> tuple[str | None, str | None]:
    """Flow and rate, by argument or option. Raises ConfigError.

    In `throttle --flow 'A->B' 20M` the rate is at the place of the flow.
    """
    for text in (flow, rate):
        if text is not None and text.startswith("--"):
            raise ConfigError(f"no such option: {text}", metadata={"key": text})
    if option is None:
        return flow, rate
    if rate is None and flow is not None and not is_flow(flow):
        return option, flow
    if flow not in (None, option):
        raise ConfigError(
            f"two flows are named: {flow} and --flow {option}: name one", metadata={"key": "--flow"}
        )
    return option, rate


async def _list(
    flow: str | None, topic: str, config: Path | None, endpoint: list[str] | None
) -> list[pb2.Throttle]:
    async with source_stub(config, endpoint) as stub:
        return [
            throttle
            for status in await list_flows(stub, flow)
            for throttle in status.throttles
            if topic in ("", throttle.scope.source_topic)
        ]


async def _throttle(
    scope: pb2.Scope, bytes_per_second: int, config: Path | None, endpoint: list[str] | None
) -> tuple[list[pb2.Throttle], list[pb2.Throttle]]:
    """The limits of the flow before and after."""
    async with source_stub(config, endpoint) as stub:
        flows = await list_flows(stub, None)
        before = [each for flow in flows if flow.flow == scope.flow for each in flow.throttles]
        request = pb2.SetThrottleRequest(scope=scope, bytes_per_second=bytes_per_second, by=who())
        answer = await answered(stub.SetThrottle(request, timeout=CALL_TIMEOUT_SECONDS))
        return before, list(answer.throttles)


def undo_of_throttle(scope: pb2.Scope, before: Iterable[pb2.Throttle], now: int) -> list[str]:
    """The limit that was in force, or none; nothing if it is the same."""
    was = next((each.bytes_per_second for each in before if each.scope == scope), 0)
    if was == now:
        return []
    flow, *rest = scope_words(scope)
    return [undo_command("throttle", flow, str(was or "none"), *rest)]


def _print(throttles: list[pb2.Throttle], output: Output, *, prefix: str) -> None:
    if output is Output.JSON:
        print_json([_as_json(each) for each in throttles])
        return
    lines = [f"{prefix}limited: {_words(each)}" for each in throttles]
    typer.echo("\n".join(lines) or "nothing is limited now")


def _words(throttle: pb2.Throttle) -> str:
    known = f", by {throttle.by} since {throttle.since.ToJsonString()}" if throttle.by else ""
    return f"{scope_name(throttle.scope)} to {shown_bytes(throttle.bytes_per_second)}/s{known}"


def _as_json(throttle: pb2.Throttle) -> dict[str, Any]:
    return {
        "scope": scope_name(throttle.scope),
        "topic": throttle.scope.source_topic or None,
        "bytes_per_second": throttle.bytes_per_second,
        "by": throttle.by or None,
        "since": throttle.since.ToJsonString() if throttle.HasField("since") else None,
    }
