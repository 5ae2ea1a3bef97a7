"""`twinlog partitions`: the copy of every partition."""

from collections.abc import Sequence

import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.call import Call, Differences, Services, command, looks
from twinlog.cli.common.failures import tell
from twinlog.cli.common.fields import Fields, as_json
from twinlog.cli.common.names import parse_flow
from twinlog.cli.common.options import OptionalFlowArgument, flag, option
from twinlog.cli.common.output import clear_screen, print_json_line, print_rows, screen_rows
from twinlog.cli.common.times import CLOCK, MOST_SECONDS
from twinlog.cli.source import partition_rows as rows
from twinlog.cli.source.client import TopicOption, every_partition
from twinlog.errors import TwinlogError

_NO_TROUBLE = "every partition runs"
_NOTHING = "no partition is copied; `twinlog explain topic NAME` says why"


@command
def partitions_command(
    call: Call,
    flow: OptionalFlowArgument = None,
    topic: TopicOption = "",
    follow: bool = flag(
        "--watch -w",
        "Follow until Ctrl-C: the table whenever something changes; with -o json one line with all "
        "partitions, then one with those that changed (state REMOVED: no longer copied).",
    ),
    every: float = option(
        "--every SECONDS", "With --watch: the time between two looks.", 1.0, min=0.2, max=MOST_SECONDS
    ),
    trouble: bool = flag(
        "--trouble", "Only partitions with a problem, or slow ones; of many with the same one the first."
    ),
    verbose: bool = flag("--verbose -v", "With --trouble: each of those with the same problem."),
) -> None:
    """Show the copy of every partition: state, position, lag, rates, and any problem; problems come first.

    `?` means not known. A narrow terminal shows fewer columns.
    """
    wanted = None if flow is None else parse_flow(flow)
    if follow:
        call.ask(lambda at: _follow(call, at, wanted, topic, every, trouble=trouble))
        return
    found = call.ask(lambda at: every_partition(at.source, wanted, topic))
    if trouble:
        found = [status for status in found if rows.is_troubled(status)]
    call.tell(
        [as_json(_fields(), status) for status in found],
        lambda: _print_rows(found, trouble=trouble, few_of_each=trouble and not verbose),
    )


async def _follow(
    call: Call, at: Services, flow: types_pb2.Flow | None, topic: str, every_seconds: float, *, trouble: bool
) -> None:
    """Show the partitions whenever they differ, also after restarts of the service."""
    seen = Differences(key=_key, shape=_shape)
    async for look in looks(lambda: every_partition(at.source, flow, topic), seconds=every_seconds):
        if isinstance(look, TwinlogError):
            tell(look, f"{look} ({look.reason}); trying again")
        elif (news := seen.take(look)) is None:
            continue
        elif call.in_json:
            changed = [as_json(_fields(), status) for status in sorted(news[0], key=_key)]
            removed = [{**as_json(_fields(), status), "state": "REMOVED"} for status in news[1]]
            print_json_line([*changed, *removed])
        else:
            clear_screen()
            found = [each for each in sorted(look, key=_key) if rows.is_troubled(each) or not trouble]
            _print_rows(found, trouble=trouble, most=screen_rows())


def _key(status: pb2.PartitionStatus) -> tuple[str, str, str, int]:
    return status.flow.source, status.flow.target, status.source.topic, status.source.partition


def _shape(status: pb2.PartitionStatus) -> pb2.PartitionStatus:
    """Without times of observation, and fields that change with the clock."""
    shape = pb2.PartitionStatus()
    shape.CopyFrom(status)
    for name in ("as_of", "source_end_as_of", "oldest_record_at", "caught_up_in"):
        shape.ClearField(name)
    if shape.HasField("proof"):
        shape.proof.ClearField("proven_at")
        shape.proof.ClearField("checked_at")
    return shape


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
