"""`twinlog gaps`: what is known not to be on the target."""

from pathlib import Path
from typing import Annotated

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.configsync_client import flow_name, parse_flow
from twinlog.cli.failures import reported_failures, run_async
from twinlog.cli.location import ConfigOption, EndpointOption
from twinlog.cli.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.source_client import CALL_TIMEOUT_SECONDS, TopicOption, answered, partition_name, source_stub

_COLUMNS = (
    Column(title="flow"),
    Column(title="partition"),
    Column(title="from", right=True),
    Column(title="to", right=True),
    Column(title="offsets", right=True),
    Column(title="reason"),
    Column(title="found"),
)


def gaps_command(
    flow: Annotated[str | None, typer.Option("--flow", metavar="A->B", help="Only this flow.")] = None,
    topic: TopicOption = "",
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show every range of source offsets that is known not to be on the target, with its reason.

    `to` is the first offset after the range, `offsets` how many of the range are missing: fewer than it spans
    where the oldest ranges of a partition were joined. Nothing is printed when nothing is missing.
    """
    gaps = run_async(_gaps(flow, topic, config, endpoint))
    with reported_failures():
        if output is Output.JSON:
            print_json(
                [
                    {
                        "flow": flow_name(gap.flow),
                        "topic": gap.partition.topic,
                        "partition": gap.partition.partition,
                        "from": gap.from_offset,
                        "to": gap.to_offset,
                        "offsets": gap.lost_offsets,
                        "reason": gap.reason,
                        "found_at": gap.found_at.ToJsonString(),
                    }
                    for gap in gaps
                ]
            )
            return
        if not gaps:
            typer.echo("no gaps")
            return
        rows = [
            [
                flow_name(gap.flow),
                partition_name(gap.partition),
                str(gap.from_offset),
                str(gap.to_offset),
                str(gap.lost_offsets),
                gap.reason,
                gap.found_at.ToJsonString(),
            ]
            for gap in gaps
        ]
        print_table("", _COLUMNS, rows)


async def _gaps(
    flow: str | None, topic: str, config: Path | None, endpoint: list[str] | None
) -> list[pb2.LedgerGap]:
    request = pb2.ListGapsRequest(flow=None if flow is None else parse_flow(flow), source_topic=topic)
    async with source_stub(config, endpoint) as stub:
        return list((await answered(stub.ListGaps(request, timeout=CALL_TIMEOUT_SECONDS))).gaps)
