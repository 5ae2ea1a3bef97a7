"""`twinlog partitions`: the copy of every partition."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.failures import reported_failures, run_async, tell
from twinlog.cli.common.flow_choice import OptionalFlowArgument, OptionalFlowOption, chosen_flow
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.output import (
    Output,
    OutputOption,
    clear_screen,
    print_json,
    print_json_line,
    print_table,
    screen_rows,
)
from twinlog.cli.configsync.client import parse_flow
from twinlog.cli.source import partition_rows as rows
from twinlog.cli.source.client import TopicOption, every_partition, source_stub
from twinlog.cli.source.watched_partitions import KnownPartitions, Told
from twinlog.clock import SystemClock
from twinlog.service.feeds.client import Lost, Received, Restarted, WatchCall, watch
from twinlog.service.waiting import Backoff

_NO_TROUBLE = "every partition runs"
_NOTHING = "no partition is copied; `twinlog explain topic NAME` says why"


def partitions_command(
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
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the copy of every partition: state, position, lag, rates, and any problem; problems come first.

    `?` means not known. A narrow terminal shows fewer columns.
    """
    with reported_failures():
        named = chosen_flow(flow, flow_option)
    run_async(_show(named, topic, follow, trouble, config, endpoint, output, verbose=verbose))


async def _show(
    flow: str | None,
    topic: str,
    follow: bool,
    trouble: bool,
    config: Path | None,
    endpoint: list[str] | None,
    output: Output,
    *,
    verbose: bool,
) -> None:
    if follow:
        await _follow(flow, topic, trouble, config, endpoint, output)
        return
    found = await _partitions(flow, topic, config, endpoint)
    if trouble:
        found = [status for status in found if rows.is_troubled(status)]
    with reported_failures():
        if output is Output.JSON:
            now_ms = _now_ms()
            print_json([rows.as_json(status, now_ms=now_ms) for status in found])
        else:
            _print_rows(found, trouble=trouble, few_of_each=trouble and not verbose)


async def _follow(
    flow: str | None,
    topic: str,
    trouble: bool,
    config: Path | None,
    endpoint: list[str] | None,
    output: Output,
) -> None:
    """Show the partitions as the service sends them, also after its restarts. Raises the error of the first
    connection."""
    known = KnownPartitions()
    asked = None if flow is None else parse_flow(flow)
    backoff = Backoff(initial_seconds=0.5, max_seconds=5.0, random=random.random)
    async with source_stub(config, endpoint) as stub:

        def open_stream(token: bytes) -> WatchCall[pb2.WatchPartitionsResponse]:
            request = pb2.WatchPartitionsRequest(flow=asked, source_topic=topic, resume_token=token)
            return stub.WatchPartitions(request)

        async for event in watch(open_stream, peer="source", stop=asyncio.Event(), backoff=backoff):
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
                        with reported_failures():
                            _print(known, told, output, trouble=trouble)


async def _partitions(
    flow: str | None, topic: str, config: Path | None, endpoint: list[str] | None
) -> list[pb2.PartitionStatus]:
    async with source_stub(config, endpoint) as stub:
        return await every_partition(stub, None if flow is None else parse_flow(flow), topic)


def _print(known: KnownPartitions, told: Told, output: Output, *, trouble: bool) -> None:
    if output is Output.JSON:
        now_ms = _now_ms()
        changed = [rows.as_json(status, now_ms=now_ms) for status in told.changed]
        removed = [{**rows.as_json(status, now_ms=now_ms), "state": "REMOVED"} for status in told.removed]
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
    now_ms = _now_ms()
    shown, more = (
        rows.first_of_each(rows.worst_first(found)) if few_of_each else (rows.worst_first(found), {})
    )
    shown = shown[:most]
    empty = _NO_TROUBLE if trouble else _NOTHING
    print_table("", rows.COLUMNS, [rows.cells(status, now_ms=now_ms) for status in shown], empty=empty)
    for (state, reason), count in more.items():
        typer.echo(f"and {count:,} more {' '.join(filter(None, (state, reason)))}; -v lists them")
    if not few_of_each and len(shown) < len(found):
        typer.echo(f"… and {len(found) - len(shown)} more; --trouble shows those that do not run")


def _now_ms() -> int:
    return SystemClock().now_ms()
