"""`twinlog positions get` and `twinlog positions set`."""

from collections.abc import Sequence

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.call import Call, command
from twinlog.cli.common.failures import require_terminal
from twinlog.cli.common.fields import Field, Fields, as_json, print_rows, table
from twinlog.cli.common.names import (
    CLOCK,
    EXPECTED,
    counted,
    offset_of,
    parse_time,
    shortened,
    shown_time,
    who,
)
from twinlog.cli.common.options import flag, group, option
from twinlog.cli.common.pasteable import print_undo, undo_command
from twinlog.cli.source.client import (
    FlowArgument,
    PartitionOption,
    TopicOption,
    every_partition,
    parse_scope,
    scope_name,
)
from twinlog.cli.source.partitions import LAG, OFFSETS, POSITION, SOURCE_END
from twinlog.errors import ConfigError, NotFoundError

app = group("Show or move where partitions are copied from.")

OFFSETS_END = "from there on, its offsets differ from the source's"

_POSITION: Fields[pb2.PartitionStatus] = table(
    "topic=source.topic partition=source.partition =source|partition",
    *(POSITION, SOURCE_END, LAG),
    *OFFSETS,
    Field("", column="offsets", text=lambda row: row.offsets),
)
_CHANGE: Fields[pb2.PositionChange] = table(
    "topic=partition.topic partition=partition.partition =partition|partition",
    "from=from_offset|from> to=to_offset|to> repeated_offsets|copied_again> skipped_offsets|left_out>",
    Field(
        "reason",
        column="problem",
        text=lambda change: (
            f"{change.reason} {change.message}".strip() or (OFFSETS_END if change.offsets_end else "")
        ),
    ),
    "message applied offsets_end fills_offsets",
)


@app.command("get")
@command
def get_command(call: Call, flow: FlowArgument, topic: TopicOption = "") -> None:
    """Show the next source offset of every partition."""
    scope = parse_scope(flow, topic, None)
    found = call.ask(lambda at: every_partition(at.source, scope.flow, topic, from_owner=True))
    call.tell_rows(_POSITION, _known(scope, found), empty="no partition is copied")


@app.command("set")
@command
def set_command(
    call: Call,
    flow: FlowArgument,
    to: str = option(
        "--to WHERE",
        "An offset, earliest, latest, or a time: 2026-01-31T12:00:00Z, now, -10m; UTC without zone.",
    ),
    topic: TopicOption = "",
    partition: PartitionOption = None,
    everything: bool = flag("--all", "Move all partitions of the flow to the same offset."),
    dry_run: bool = flag("--dry-run", "Only show what would be copied again or left out."),
    yes: bool = flag("--yes -y", "Do not ask."),
) -> None:
    """Move where partitions are copied from. Try --dry-run first: copying again makes duplicate records.

    A copy that has the source's offsets can only be moved forward, and that cannot be undone.

    Only the selected partitions pause for a moment. Skipped records are listed by `twinlog gaps`. Without
    --topic the command moves the whole flow, and asks first; without a terminal it needs --yes. The last
    lines are the commands that move the other partitions back; records that were copied meanwhile stay. Exit
    code 1 if a partition was not moved.
    """
    target = _target(to, now_ms=CLOCK.get().now_ms())
    _require_clear(target, topic, everything=everything)
    scope = parse_scope(flow, topic, partition)
    request = pb2.SetPositionsRequest(scope=scope, target=target, dry_run=dry_run, by=who())
    if not topic and not dry_run and not yes:
        require_terminal()
        _ask(call, request)
    answer = call.ask(lambda at: at.source.SetPositions(request))
    undo = undo_of_moves(flow, answer.changes)

    def text() -> None:
        title = f"{_title(answer.changes, dry_run=dry_run)}{_meant(target)}"
        print_rows(_CHANGE, answer.changes, title=title, empty=title)
        print_undo(undo)

    changes = [as_json(_CHANGE, each) for each in answer.changes]
    failed = any(each.reason for each in answer.changes)
    call.tell(
        {"applied": answer.applied, "changes": changes, "undo": undo},
        text,
        fails=failed,
    )


def _require_clear(target: pb2.PositionTarget, topic: str, *, everything: bool) -> None:
    """Raises ConfigError for a request that is hardly intended."""
    if everything and topic:
        raise ConfigError("--all means every topic of the flow: omit --topic", key="--all")
    if not topic and not everything and target.HasField("offset"):
        raise ConfigError(
            f"--to {target.offset} without --topic would move every partition of every topic to this offset:"
            " give --topic, or --all if you mean that",
            key="--topic",
        )


def _ask(call: Call, request: pb2.SetPositionsRequest) -> None:
    """Show what moving a whole flow means, and ask for confirmation."""
    request.dry_run = True
    changes = call.ask(lambda at: at.source.SetPositions(request)).changes
    request.dry_run = False
    if not call.in_json:
        print_rows(_CHANGE, changes, empty="no partition is copied")
    typer.confirm(f"Move {counted(len(changes), 'partition')} of the whole flow?", abort=True, err=True)


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
    return f"moved {moved} of {counted(len(changes), 'partition')}{doubt}"


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
            key="--to",
        ) from None
    target = pb2.PositionTarget()
    target.timestamp.FromMilliseconds(at_ms)
    return target


def _known(scope: pb2.Scope, found: list[pb2.PartitionStatus]) -> list[pb2.PartitionStatus]:
    """Return the partitions. Raises NotFoundError for a topic that the flow does not copy."""
    if scope.source_topic and not found:
        raise NotFoundError(
            f"{scope_name(scope)} is not copied now; a new topic is found with the next refresh",
            reason="PARTITION_UNKNOWN",
            metadata={"topic": scope.source_topic},
        )
    return found
