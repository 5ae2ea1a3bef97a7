"""`twinlog positions get` and `twinlog positions set`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.failures import (
    EXIT_FAILED,
    exiting_with,
    reported_failures,
    require_terminal,
    run_async,
)
from twinlog.cli.common.location import ConfigOption, EndpointOption
from twinlog.cli.common.numbers import offset_of, shortened
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.common.times import EXPECTED, parse_time, shown_time
from twinlog.cli.common.undo import print_undo, undo_command
from twinlog.cli.configsync.plan_view import count_of
from twinlog.cli.source.client import (
    CALL_TIMEOUT_SECONDS,
    FlowArgument,
    PartitionOption,
    TopicOption,
    answered,
    every_partition,
    parse_scope,
    partition_name,
    scope_name,
    source_stub,
    who,
)
from twinlog.cli.source.partition_rows import end_cell, lag_cell, offsets_json, position_cell
from twinlog.clock import SystemClock
from twinlog.errors import ConfigError, NotFoundError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Show or move where partitions are copied from."
)

OFFSETS_END = "from there on, its offsets differ from the source's"

_POSITIONS = (
    Column(title="partition"),
    Column(title="position", right=True),
    Column(title="source end", right=True),
    Column(title="lag", right=True),
    Column(title="offsets"),
)
_CHANGES = (
    Column(title="partition"),
    Column(title="from", right=True),
    Column(title="to", right=True),
    Column(title="copied again", right=True),
    Column(title="left out", right=True),
    Column(title="problem"),
)


@app.command("get")
def get_command(
    flow: FlowArgument,
    topic: TopicOption = "",
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the next source offset of every partition."""
    with reported_failures():
        found = run_async(_get(parse_scope(flow, topic, None), config, endpoint))
        if output is Output.JSON:
            print_json(
                [
                    {
                        "topic": each.source.topic,
                        "partition": each.source.partition,
                        "position": None if each.position < 0 else each.position,
                        "source_end_offset": None if each.source_end_offset < 0 else each.source_end_offset,
                        "lag_records": each.lag_records if each.HasField("lag_records") else None,
                        **offsets_json(each),
                    }
                    for each in found
                ]
            )
            return
        rows = [
            [
                partition_name(each.source),
                position_cell(each),
                end_cell(each),
                lag_cell(each),
                each.offsets,
            ]
            for each in found
        ]
        print_table("", _POSITIONS, rows, empty="no partition is copied")


@app.command("set")
def set_command(
    flow: FlowArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="An offset, earliest, latest, or a time: 2026-01-31T12:00:00Z, now, -10m; UTC without zone.",
        ),
    ],
    topic: TopicOption = "",
    partition: PartitionOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Move all partitions of the flow to the same offset.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be copied again or left out.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move where partitions are copied from. Try --dry-run first: copying again makes duplicate records.

    A copy that has the source's offsets can only be moved forward, and that cannot be undone.

    Only the selected partitions pause for a moment. Skipped records are listed by `twinlog gaps`. Without
    --topic the command moves the whole flow, and asks first; without a terminal it needs --yes. The last
    lines are the commands that move the other partitions back; records that were copied meanwhile stay. Exit
    code 1 if a partition was not moved.
    """
    with reported_failures():
        target = _target(to, now_ms=SystemClock().now_ms())
        _require_clear(target, topic, everything=everything)
        request = pb2.SetPositionsRequest(
            scope=parse_scope(flow, topic, partition), target=target, dry_run=dry_run, by=who()
        )
        if not topic and not dry_run and not yes:
            require_terminal()
            _ask(request, config, endpoint, output)
        answer = run_async(_set(request, config, endpoint))
        undo = undo_of_moves(flow, answer.changes)
        with exiting_with(EXIT_FAILED if any(each.reason for each in answer.changes) else 0):
            if output is Output.JSON:
                changes = [_as_json(each) for each in answer.changes]
                print_json({"applied": answer.applied, "changes": changes, "undo": undo})
            else:
                title = f"{_title(answer.changes, dry_run=dry_run)}{_meant(target)}"
                print_table(title, _CHANGES, [_cells(each) for each in answer.changes], empty=title)
                print_undo(undo)


def _require_clear(target: pb2.PositionTarget, topic: str, *, everything: bool) -> None:
    """Raises ConfigError for a request that is hardly intended."""
    if everything and topic:
        raise ConfigError("--all means every topic of the flow: omit --topic", metadata={"key": "--all"})
    if not topic and not everything and target.HasField("offset"):
        raise ConfigError(
            f"--to {target.offset} without --topic would move every partition of every topic to this offset:"
            " give --topic, or --all if you mean that",
            metadata={"key": "--topic"},
        )


def _ask(
    request: pb2.SetPositionsRequest, config: Path | None, endpoint: list[str] | None, output: Output
) -> None:
    """Show what moving a whole flow means, and ask for confirmation."""
    trial = pb2.SetPositionsRequest()
    trial.CopyFrom(request)
    trial.dry_run = True
    changes = run_async(_set(trial, config, endpoint)).changes
    if output is Output.TABLE:
        print_table("", _CHANGES, [_cells(each) for each in changes], empty="no partition is copied")
    typer.confirm(f"Move {count_of(len(changes), 'partition')} of the whole flow?", abort=True, err=True)


def _title(changes: Sequence[pb2.PositionChange], *, dry_run: bool) -> str:
    """The actual outcome."""
    if not changes:
        return "no partition is copied: nothing was changed"
    if dry_run:
        return "dry run: nothing was changed"
    moved = sum(each.applied for each in changes)
    uncertain = sum(each.reason == "POSITION_UNCERTAIN" for each in changes)
    doubt = f"; unknown for {uncertain}" if uncertain else ""
    if not moved:
        return f"nothing was moved{doubt}"
    return f"moved {moved} of {count_of(len(changes), 'partition')}{doubt}"


def _meant(target: pb2.PositionTarget) -> str:
    """How a time was interpreted."""
    if not target.HasField("timestamp"):
        return ""
    return f" (to the first records of {shown_time(target.timestamp.ToMilliseconds())} or later)"


def undo_of_moves(flow: str, changes: Sequence[pb2.PositionChange]) -> list[str]:
    """A command for each partition that was moved from a known position, and can be moved back. It does not
    remove records that are on the target twice."""
    return [
        undo_command(
            *("positions", "set", flow, "--topic", change.partition.topic),
            *("--partition", str(change.partition.partition), "--to", str(change.from_offset)),
        )
        for change in changes
        if change.applied
        and change.from_offset >= 0
        and change.from_offset != change.to_offset
        and not change.fills_offsets
    ]


def _target(text: str, *, now_ms: int) -> pb2.PositionTarget:
    """Raises ConfigError."""
    if text == "earliest":
        return pb2.PositionTarget(earliest=pb2.Earliest())
    if text == "latest":
        return pb2.PositionTarget(latest=pb2.Latest())
    if text.isascii() and text.isdecimal():
        return pb2.PositionTarget(offset=offset_of(text, "--to"))
    try:
        at_ms = parse_time(text, now_ms=now_ms)
    except ConfigError:
        raise ConfigError(
            f"--to {shortened(text)}: expected an offset, earliest, latest, or a time such as {EXPECTED}",
            metadata={"key": "--to"},
        ) from None
    target = pb2.PositionTarget()
    target.timestamp.FromMilliseconds(at_ms)
    return target


async def _get(
    scope: pb2.Scope, config: Path | None, endpoint: list[str] | None
) -> list[pb2.PartitionStatus]:
    async with source_stub(config, endpoint) as stub:
        found = await every_partition(stub, scope.flow, scope.source_topic, from_owner=True)
        return _known(scope, found)


def _known(scope: pb2.Scope, found: list[pb2.PartitionStatus]) -> list[pb2.PartitionStatus]:
    """Return the partitions. Raises NotFoundError for a topic that the flow does not copy."""
    if scope.source_topic and not found:
        raise NotFoundError(
            f"{scope_name(scope)} is not copied now; a new topic is found with the next refresh",
            reason="PARTITION_UNKNOWN",
            metadata={"topic": scope.source_topic},
        )
    return found


async def _set(
    request: pb2.SetPositionsRequest, config: Path | None, endpoint: list[str] | None
) -> pb2.SetPositionsResponse:
    async with source_stub(config, endpoint) as stub:
        return await answered(stub.SetPositions(request, timeout=CALL_TIMEOUT_SECONDS))


def _cells(change: pb2.PositionChange) -> list[str]:
    return [
        partition_name(change.partition),
        str(change.from_offset),
        str(change.to_offset),
        str(change.repeated_offsets),
        str(change.skipped_offsets),
        f"{change.reason} {change.message}".strip() or (OFFSETS_END if change.offsets_end else ""),
    ]


def _as_json(change: pb2.PositionChange) -> dict[str, Any]:
    return {
        "topic": change.partition.topic,
        "partition": change.partition.partition,
        "from": change.from_offset,
        "to": change.to_offset,
        "repeated_offsets": change.repeated_offsets,
        "skipped_offsets": change.skipped_offsets,
        "reason": change.reason,
        "message": change.message,
        "applied": change.applied,
        "offsets_end": change.offsets_end,
        "fills_offsets": change.fills_offsets,
    }
