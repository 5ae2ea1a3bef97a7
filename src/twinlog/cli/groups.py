"""`twinlog groups`: where every consumer group stands on both clusters."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.checkpoint_client import (
    CALL_TIMEOUT_SECONDS,
    FlowOption,
    answered,
    checkpoint_stub,
    shown,
    topic_partition,
    verdict_name,
)
from twinlog.cli.configsync_client import flow_name, parse_flow
from twinlog.cli.failures import reported_failures, run_async
from twinlog.cli.location import ConfigOption, EndpointOption
from twinlog.cli.output import Column, Output, OutputOption, print_json, print_json_line, print_table
from twinlog.clock import SystemClock
from twinlog.service.runtime import wait_or_stop

_HELP = """Show where every consumer group stands on the source and where it goes on on the target.

The verdict says what the translated offset is worth: EXACT, the very record the group reads next, \
compared on both sides; UP_TO_DATE, everything copied is read; FLOOR, never ahead, some records are read \
again; NO_SYNC, NOT_REPLICATED, TOO_OLD, NOT_READY, SOURCE_UNREADABLE, there is no offset, and the message \
says why; ACTIVE_ON_TARGET, the group has members there.
"""

_COLUMNS = (
    Column(title="flow"),
    Column(title="group"),
    Column(title="partition"),
    Column(title="offset", right=True),
    Column(title="lag", right=True),
    Column(title="on target", right=True),
    Column(title="lag", right=True),
    Column(title="committed", right=True),
    Column(title="verdict"),
    Column(title="age", right=True),
    Column(title="message"),
)


def groups_command(
    group: Annotated[str, typer.Option("--group", metavar="ID", help="Only this group.")] = "",
    flow: FlowOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it anew every few seconds, until Ctrl-C.")
    ] = False,
    every: Annotated[float, typer.Option("--every", min=0.2, metavar="SECONDS", help="With --watch.")] = 2.0,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    with reported_failures():
        request = pb2.ListGroupsRequest(group=group, flow=None if flow is None else parse_flow(flow))
        run_async(_show(request, config, endpoint, output, every if watch else None))


groups_command.__doc__ = _HELP


async def _show(
    request: pb2.ListGroupsRequest,
    config: Path | None,
    endpoint: list[str] | None,
    output: Output,
    every_seconds: float | None,
) -> None:
    async for answer in _answers(request, config, endpoint, every_seconds):
        if output is Output.JSON:
            (print_json if every_seconds is None else print_json_line)(_as_json(answer))
            continue
        if every_seconds is not None:
            _clear_screen()
        now_ms = SystemClock().now_ms()
        print_table("", _COLUMNS, [_cells(row, now_ms) for row in answer.groups])
        for unsupported in answer.unsupported_groups:
            typer.echo(
                f"{flow_name(unsupported.flow)} {unsupported.group}: {unsupported.group_type} groups have no"
                " offsets that could be translated"
            )


async def _answers(
    request: pb2.ListGroupsRequest,
    config: Path | None,
    endpoint: list[str] | None,
    every_seconds: float | None,
) -> AsyncIterator[pb2.ListGroupsResponse]:
    never = asyncio.Event()
    async with checkpoint_stub(config, endpoint) as stub:
        while True:
            yield await answered(stub.ListGroups(request, timeout=CALL_TIMEOUT_SECONDS))
            if every_seconds is None:
                return
            await wait_or_stop(never, every_seconds)


def _cells(row: pb2.GroupPartition, now_ms: int) -> list[str]:
    return [
        flow_name(row.flow),
        row.group,
        topic_partition(row.source),
        str(row.upstream_offset),
        shown(row.source_lag if row.HasField("source_lag") else None),
        shown(row.downstream_offset if row.HasField("downstream_offset") else None),
        shown(row.target_lag if row.HasField("target_lag") else None),
        shown(row.offset_on_target if row.HasField("offset_on_target") else None),
        verdict_name(row.verdict),
        f"{max(0, now_ms - row.as_of.ToMilliseconds()) / 1000:.0f} s",
        row.message,
    ]


def _as_json(answer: pb2.ListGroupsResponse) -> dict[str, Any]:
    return {
        "groups": [group_as_json(row) for row in answer.groups],
        "unsupported_groups": [
            {"flow": flow_name(entry.flow), "group": entry.group, "type": entry.group_type}
            for entry in answer.unsupported_groups
        ],
        "ready_flows": [flow_name(flow) for flow in answer.ready_flows],
    }


def group_as_json(row: pb2.GroupPartition) -> dict[str, Any]:
    """One row for programs."""
    return {
        "flow": flow_name(row.flow),
        "group": row.group,
        "source_topic": row.source.topic,
        "target_topic": row.target.topic,
        "partition": row.source.partition,
        "upstream_offset": row.upstream_offset,
        "source_lag": row.source_lag if row.HasField("source_lag") else None,
        "downstream_offset": row.downstream_offset if row.HasField("downstream_offset") else None,
        "target_lag": row.target_lag if row.HasField("target_lag") else None,
        "offset_on_target": row.offset_on_target if row.HasField("offset_on_target") else None,
        "committed_on_target": row.committed_on_target,
        "verdict": verdict_name(row.verdict),
        "message": row.message,
        "as_of": row.as_of.ToJsonString(),
    }


def _clear_screen() -> None:
    """Does nothing when stdout is no terminal."""
    from rich.console import Console

    Console().clear()
