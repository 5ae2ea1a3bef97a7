"""`twinlog throttle`."""

from pathlib import Path
from typing import Annotated

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.failures import reported_failures, run_async
from twinlog.cli.location import ConfigOption, EndpointOption
from twinlog.cli.output import Output, OutputOption, print_json
from twinlog.cli.source_client import (
    CALL_TIMEOUT_SECONDS,
    FlowArgument,
    TopicOption,
    answered,
    parse_bytes,
    parse_scope,
    scope_name,
    shown_bytes,
    source_stub,
    who,
)


def throttle_command(
    flow: FlowArgument,
    rate: Annotated[
        str,
        typer.Argument(metavar="RATE", help="Bytes per second: 500k, 20M, 1G; none = no limit."),
    ],
    topic: TopicOption = "",
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Limit how many bytes per second a flow or a topic is copied with, from now on and across restarts."""
    with reported_failures():
        scope = parse_scope(flow, topic, None)
        throttles = run_async(_throttle(scope, parse_bytes(rate), config, endpoint))
        if output is Output.JSON:
            print_json(
                [
                    {
                        "scope": scope_name(each.scope),
                        "topic": each.scope.source_topic or None,
                        "bytes_per_second": each.bytes_per_second,
                    }
                    for each in throttles
                ]
            )
            return
        lines = [
            f"limited: {scope_name(each.scope)} to {shown_bytes(each.bytes_per_second)}/s"
            for each in throttles
        ]
        typer.echo("\n".join(lines) or "nothing is limited now")


async def _throttle(
    scope: pb2.Scope, bytes_per_second: int, config: Path | None, endpoint: list[str] | None
) -> list[pb2.Throttle]:
    async with source_stub(config, endpoint) as stub:
        request = pb2.SetThrottleRequest(scope=scope, bytes_per_second=bytes_per_second, by=who())
        return list((await answered(stub.SetThrottle(request, timeout=CALL_TIMEOUT_SECONDS))).throttles)
