"""`twinlog partitions`: the copy of every partition."""

import asyncio
import random
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.configsync_client import flow_name, parse_flow
from twinlog.cli.failures import reported_failures, run_async
from twinlog.cli.flow_choice import OptionalFlowArgument, OptionalFlowOption, chosen_flow
from twinlog.cli.location import ConfigOption, EndpointOption
from twinlog.cli.output import (
    Column,
    Output,
    OutputOption,
    clear_screen,
    print_json,
    print_json_line,
    print_table,
)
from twinlog.cli.source_client import (
    CALL_TIMEOUT_SECONDS,
    TopicOption,
    answered,
    partition_name,
    shown_bytes,
    source_stub,
)
from twinlog.cli.watched_partitions import KnownPartitions, Told
from twinlog.service.waiting import Backoff
from twinlog.service.watch_client import Lost, Received, Restarted, WatchCall, watch

PAGE = 5000

_NOTHING = "no partition is copied; `twinlog explain topic NAME` says why"
_COLUMNS = (
    Column(title="flow"),
    Column(title="partition"),
    Column(title="state"),
    Column(title="position", right=True),
    Column(title="lag", right=True),
    Column(title="records/s", right=True),
    Column(title="bytes/s", right=True),
    Column(title="lane"),
    Column(title="delay", right=True),
    Column(title="reason"),
)


def partitions_command(
    flow: OptionalFlowArgument = None,
    topic: TopicOption = "",
    follow: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            help="Go on until Ctrl-C: the table whenever something changes; with -o json one line with all "
            "partitions, then one with those that changed (state REMOVED: no longer copied).",
        ),
    ] = False,
    flow_option: OptionalFlowOption = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the copy of every partition: state, position, lag, lane, rates, and why one does not run."""
    with reported_failures():
        named = chosen_flow(flow, flow_option)
    run_async(_show(named, topic, follow, config, endpoint, output))


async def _show(
    flow: str | None,
    topic: str,
    follow: bool,
    config: Path | None,
    endpoint: list[str] | None,
    output: Output,
) -> None:
    if follow:
        await _follow(flow, topic, config, endpoint, output)
        return
    found = await _partitions(flow, topic, config, endpoint)
    with reported_failures():
        if output is Output.JSON:
            print_json([_as_json(status) for status in found])
        else:
            print_table("", _COLUMNS, [_cells(status) for status in found], empty=_NOTHING)


async def _follow(
    flow: str | None, topic: str, config: Path | None, endpoint: list[str] | None, output: Output
) -> None:
    """Show the partitions as the service tells of them, also over its restarts. Raises what keeps it from
    the first answer."""
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
                    typer.echo(f"{error} ({error.reason}); trying again", err=True)
                case Received(response=response):
                    told = known.take(response)
                    if told is not None:
                        with reported_failures():
                            _print(known, told, output)


async def _partitions(
    flow: str | None, topic: str, config: Path | None, endpoint: list[str] | None
) -> list[pb2.PartitionStatus]:
    request = pb2.ListPartitionsRequest(
        flow=None if flow is None else parse_flow(flow), source_topic=topic, page_size=PAGE
    )
    found: list[pb2.PartitionStatus] = []
    async with source_stub(config, endpoint) as stub:
        while True:
            answer = await answered(stub.ListPartitions(request, timeout=CALL_TIMEOUT_SECONDS))
            found += answer.partitions
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token


def _print(known: KnownPartitions, told: Told, output: Output) -> None:
    if output is Output.JSON:
        removed = [{**_as_json(status), "state": "REMOVED"} for status in told.removed]
        print_json_line([*map(_as_json, told.changed), *removed])
        return
    clear_screen()
    print_table("", _COLUMNS, [_cells(status) for status in known.sorted()], empty=_NOTHING)


def _cells(status: pb2.PartitionStatus) -> list[str]:
    known_delay = status.HasField("replication_latency")
    return [
        flow_name(status.flow),
        partition_name(status.source),
        _name(pb2.PartitionState.Name(status.state)),
        "?" if status.position < 0 else str(status.position),
        "?" if status.source_end_offset < 0 else str(status.lag_records),
        f"{status.records_per_second:.0f}",
        shown_bytes(status.bytes_per_second),
        "" if status.lane == pb2.LANE_UNSPECIFIED else _name(pb2.Lane.Name(status.lane)),
        f"{status.replication_latency.ToMilliseconds()} ms" if known_delay else "",
        f"{status.reason} {status.message}".strip(),
    ]


def _as_json(status: pb2.PartitionStatus) -> dict[str, Any]:
    return {
        "flow": flow_name(status.flow),
        "topic": status.source.topic,
        "partition": status.source.partition,
        "target_topic": status.target_topic,
        "state": _name(pb2.PartitionState.Name(status.state)),
        "position": None if status.position < 0 else status.position,
        "source_end_offset": None if status.source_end_offset < 0 else status.source_end_offset,
        "lag_records": None if status.source_end_offset < 0 else status.lag_records,
        "records_per_second": round(status.records_per_second, 3),
        "bytes_per_second": round(status.bytes_per_second, 3),
        "lane": None if status.lane == pb2.LANE_UNSPECIFIED else _name(pb2.Lane.Name(status.lane)),
        "slot": status.slot,
        "reason": status.reason,
        "message": status.message,
        "retry_at": status.retry_at.ToJsonString() if status.HasField("retry_at") else None,
        "as_of": status.as_of.ToJsonString() if status.HasField("as_of") else None,
        "replication_latency_ms": (
            status.replication_latency.ToMilliseconds() if status.HasField("replication_latency") else None
        ),
    }


def _name(constant: str) -> str:
    """`PARTITION_STATE_RUNNING` and `LANE_RAW` without their type."""
    return constant.removeprefix("PARTITION_STATE_").removeprefix("LANE_")
