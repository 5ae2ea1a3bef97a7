"""`twinlog foreign`: records that others wrote into copies; `twinlog foreign ack` acknowledges them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.flow_choice import OptionalFlowOption, required_flow
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.numbers import producer_words
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.configsync.client import flow_name
from twinlog.cli.source.client import (
    CALL_TIMEOUT_SECONDS,
    PartitionOption,
    TopicOption,
    answered,
    every_partition,
    list_flows,
    parse_scope,
    partition_name,
    source_stub,
    who,
)
from twinlog.cli.source.gaps import flow_and_verb

_COLUMNS = (
    Column(title="flow"),
    Column(title="partition"),
    Column(title="records", right=True),
    Column(title="last in the copy"),
    Column(title="written by"),
    Column(title="at"),
)
_Row = tuple[str, pb2.ForeignCopy]


def foreign_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ack] [A->B]",
            help="Only this flow. `ack 'A->B'` acknowledges its foreign records.",
            show_default=False,
        ),
    ] = None,
    flow: OptionalFlowOption = None,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With ack: change nothing.")] = False,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the copies into which somebody else wrote; `ack` acknowledges that.

    Records are counted since the source service started or they were acknowledged. `ack` changes no copy: it
    says that somebody knows of them, and `twinlog status` and the live page no longer name them. Foreign
    records that come later are told again.
    """
    with reported_failures():
        named, acknowledges = flow_and_verb(words or [], flow)
        if acknowledges:
            scope = parse_scope(required_flow(named, None), topic, partition)
            request = pb2.AcknowledgeForeignWritesRequest(scope=scope, dry_run=dry_run, by=who())
            rows = run_async(_acknowledge(request, config, endpoint))
            _print(rows, output, "nothing to acknowledge")
            if rows and output is Output.TABLE:
                typer.echo(
                    "nothing was changed (--dry-run)" if dry_run else "undo: none; the audit log has it"
                )
            return
        _print(run_async(_list(named, topic, partition, config, endpoint)), output, "no foreign records")


async def _list(
    flow: str | None,
    topic: str,
    partition: int | None,
    config: Path | None,
    endpoint: list[str] | None,
) -> list[_Row]:
    found: list[_Row] = []
    async with source_stub(config, endpoint) as stub:
        for each in await list_flows(stub, flow):
            found += [
                (
                    flow_name(each.flow),
                    pb2.ForeignCopy(
                        partition=row.source, records=row.foreign_records, last=row.foreign_write
                    ),
                )
                for row in await every_partition(stub, each.flow, topic)
                if row.foreign_records and partition in (None, row.source.partition)
            ]
    return found


async def _acknowledge(
    request: pb2.AcknowledgeForeignWritesRequest, config: Path | None, endpoint: list[str] | None
) -> list[_Row]:
    async with source_stub(config, endpoint) as stub:
        answer = await answered(stub.AcknowledgeForeignWrites(request, timeout=CALL_TIMEOUT_SECONDS))
    return [(flow_name(request.scope.flow), copy) for copy in answer.copies]


def _print(rows: Sequence[_Row], output: Output, empty: str) -> None:
    if output is Output.JSON:
        print_json([_as_json(*row) for row in rows])
        return
    print_table("", _COLUMNS, [_cells(*row) for row in rows], empty=empty)


def _cells(flow: str, copy: pb2.ForeignCopy) -> list[str]:
    last = copy.last
    return [
        flow,
        partition_name(copy.partition),
        f"{copy.records:,}",
        f"{last.from_offset} to {last.to_offset - 1}",
        producer_words(last.producer_id),
        last.written_at.ToJsonString(),
    ]


def _as_json(flow: str, copy: pb2.ForeignCopy) -> dict[str, Any]:
    last = copy.last
    return {
        "flow": flow,
        "topic": copy.partition.topic,
        "partition": copy.partition.partition,
        "records": copy.records,
        "from_offset": last.from_offset,
        "to_offset": last.to_offset,
        "producer_id": last.producer_id,
        "written_at": last.written_at.ToJsonString(),
    }
