"""`twinlog partitions`: the copy of every partition."""

from collections.abc import Sequence
from typing import Annotated

import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.common.call import Call, Services, command, watched
from twinlog.cli.common.failures import tell
from twinlog.cli.common.fields import Fields, as_json
from twinlog.cli.common.flow_choice import OptionalFlowArgument, OptionalFlowOption, chosen_flow
from twinlog.cli.common.names import parse_flow
from twinlog.cli.common.output import clear_screen, print_json_line, print_rows, screen_rows
from twinlog.cli.common.times import CLOCK
from twinlog.cli.source import partition_rows as rows
from twinlog.cli.source.client import TopicOption, every_partition
from twinlog.cli.source.watched_partitions import KnownPartitions, Told
from twinlog.service.feeds.client import Lost, Received, Restarted

_NO_TROUBLE = "every partition runs"
_NOTHING = "no partition is copied; `twinlog explain topic NAME` says why"


@command
def partitions_command(
    call: Call,
    flow: OptionalFlowArgument = None,
    topic: TopicOption = "",
    follow: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            help="Follow until Ctrl-C: the table whenever something changes; with -o json one line with all "
            "partitions, then one with those that changed (state REMOVED: no longer copied).",
        ),
    ] = False,
    flow_option: OptionalFlowOption = None,
    trouble: Annotated[
        bool,
        typer.Option(
            "--trouble",
            help="Only partitions with a problem, or slow ones; of many with the same one the first.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="With --trouble: each of those with the same problem.")
    ] = False,
) -> None:
    """Show the copy of every partition: state, position, lag, rates, and any problem; problems come first.

    `?` means not known. A narrow terminal shows fewer columns.
    """
    named = chosen_flow(flow, flow_option)
    wanted = None if named is None else parse_flow(named)
    if follow:
        call.ask(lambda at: _follow(call, at, wanted, topic, trouble=trouble))
        return
    found = call.ask(lambda at: every_partition(at.source, wanted, topic))
    if trouble:
        found = [status for status in found if rows.is_troubled(status)]
    call.tell(
        [as_json(_fields(), status) for status in found],
        lambda: _print_rows(found, trouble=trouble, few_of_each=trouble and not verbose),
    )


async def _follow(
    call: Call, at: Services, flow: types_pb2.Flow | None, topic: str, *, trouble: bool
) -> None:
    """Show the partitions as the service sends them, also after its restarts. Raises the error of the first
    connection."""
    known = KnownPartitions()
    stub = SourceServiceStub(at.channel("source"))
    request = pb2.WatchPartitionsRequest(flow=flow, source_topic=topic)
    async for event in watched(stub.WatchPartitions, request, "source"):
        match event:
            case Restarted():
                known.begin()
            case Lost(error=error):
                if not known.complete or not error.retriable:
                    raise error
                tell(error, f"{error} ({error.reason}); trying again")
            case Received(response=response):
                told = known.take(response)
                if told is not None:
                    _print(known, told, call.in_json, trouble=trouble)


def _print(known: KnownPartitions, told: Told, in_json: bool, *, trouble: bool) -> None:
    if in_json:
        fields = _fields()
        changed = [as_json(fields, status) for status in told.changed]
        removed = [{**as_json(fields, status), "state": "REMOVED"} for status in told.removed]
        print_json_line([*changed, *removed])
        return
    clear_screen()
    found = [each for each in known.sorted() if rows.is_troubled(each) or not trouble]
    _print_rows(found, trouble=trouble, most=screen_rows())


def _print_rows(
    found: Sequence[pb2.PartitionStatus],
    *,
    trouble: bool,
    most: int | None = None,
    few_of_each: bool = False,
) -> None:
    """The table, worst first; on a screen that is redrawn, as many rows as fit. `few_of_each`: of many with
    the same problem the first, and how many more there are."""
    shown, more = (
        rows.first_of_each(rows.worst_first(found)) if few_of_each else (rows.worst_first(found), {})
    )
    shown = shown[:most]
    empty = _NO_TROUBLE if trouble else _NOTHING
    print_rows(_fields(), shown, empty=empty)
    for (state, reason), count in more.items():
        typer.echo(f"and {count:,} more {' '.join(filter(None, (state, reason)))}; -v lists them")
    if not few_of_each and len(shown) < len(found):
        typer.echo(f"… and {len(found) - len(shown)} more; --trouble shows those that do not run")


def _fields() -> Fields[pb2.PartitionStatus]:
    return rows.partition_fields(CLOCK.get().now_ms())
