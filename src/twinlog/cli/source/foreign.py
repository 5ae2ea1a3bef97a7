"""`twinlog foreign`: records that others wrote into copies; `twinlog foreign ack` acknowledges them."""

from dataclasses import dataclass
from typing import Annotated

import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.fields import Field, Fields
from twinlog.cli.common.flow_choice import OptionalFlowOption, required_flow
from twinlog.cli.common.names import partition_name, who
from twinlog.cli.common.numbers import producer_words
from twinlog.cli.source.client import (
    PartitionOption,
    TopicOption,
    every_partition,
    list_flows,
    parse_scope,
)
from twinlog.cli.source.gaps import flow_and_verb, how_to_ack


@dataclass(frozen=True, slots=True)
class _Row:
    flow: types_pb2.Flow
    copy: pb2.ForeignCopy


FOREIGN: Fields[_Row] = (
    Field("flow", column="flow"),
    Field("topic", "copy.partition.topic"),
    Field("partition", "copy.partition.partition"),
    Field("", column="partition", text=lambda row: partition_name(row.copy.partition)),
    Field("records", "copy.records", "records", lambda row: f"{row.copy.records:,}", right=True),
    Field("from_offset", "copy.last.from_offset"),
    Field("to_offset", "copy.last.to_offset"),
    Field("", column="last in the copy", text=lambda row: _range(row.copy.last)),
    Field(
        "producer_id",
        "copy.last.producer_id",
        "written by",
        lambda row: producer_words(row.copy.last.producer_id),
    ),
    Field("written_at", "copy.last.written_at", "at"),
)


@command
def foreign_command(
    call: Call,
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
) -> None:
    """Show the copies into which somebody else wrote; `ack` acknowledges that.

    Records are counted since the source service started or they were acknowledged. `ack` changes no copy: it
    says that somebody knows of them, and `twinlog status` and the live page no longer name them. Foreign
    records that come later are told again.
    """
    named, acknowledges = flow_and_verb(words or [], flow)
    if not acknowledges:
        rows = call.ask(lambda at: _list(at, named, topic, partition))
        call.tell_rows(FOREIGN, rows, empty="no foreign records", lines=how_to_ack("foreign", rows))
        return
    scope = parse_scope(required_flow(named, None), topic, partition)
    request = pb2.AcknowledgeForeignWritesRequest(scope=scope, dry_run=dry_run, by=who())
    copies = call.ask(lambda at: at.source.AcknowledgeForeignWrites(request)).copies
    done = "nothing was changed (--dry-run)" if dry_run else "undo: none; the audit log has it"
    rows = [_Row(scope.flow, copy) for copy in copies]
    call.tell_rows(FOREIGN, rows, empty="nothing to acknowledge", lines=[done] if rows else [])


async def _list(at: Services, flow: str | None, topic: str, partition: int | None) -> list[_Row]:
    return [
        _Row(
            each.flow,
            pb2.ForeignCopy(partition=row.source, records=row.foreign_records, last=row.foreign_write),
        )
        for each in await list_flows(at.source, flow)
        for row in await every_partition(at.source, each.flow, topic)
        if row.foreign_records and partition in (None, row.source.partition)
    ]


def _range(write: pb2.ForeignWrite) -> str:
    return f"{write.from_offset} to {write.to_offset - 1}"
