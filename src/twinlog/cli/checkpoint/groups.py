"""`twinlog groups`: the offsets of every consumer group on both clusters."""

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.cli.checkpoint.groups_view import (
    FLOW,
    GROUP,
    Order,
    answer_as_json,
    chosen_rows,
    confirmed_ms,
    group_fields,
    listings,
    notes,
)
from twinlog.cli.common.call import PAGE, Call, Differences, Services, command, looks
from twinlog.cli.common.fields import as_json
from twinlog.cli.common.names import flow_name, parse_flow
from twinlog.cli.common.options import argument, flag, flow_and_names, option
from twinlog.cli.common.output import clear_screen, print_json_line, print_rows
from twinlog.cli.common.pasteable import say
from twinlog.cli.common.times import CLOCK, MOST_OFFSET, MOST_SECONDS
from twinlog.errors import ConfigError, TwinlogError
from twinlog.service.feeds.pages import every

_Item = pb2.GroupPartition | pb2.FlowProgress


@command
def groups_command(
    call: Call,
    names: list[str] | None = argument("[A->B] [GROUP]", "Only this flow, only this group.", None),
    group: str = option("--group ID", "Only this group.", ""),
    least_lag: int = option(
        "--min-lag N", "Only where the group is N or more behind.", 0, min=0, max=MOST_OFFSET
    ),
    sort: Order = option("--sort", "By name, or by how far the group is behind on the source.", Order.NAME),
    watch: bool = flag("--watch", "Follow the changes until Ctrl-C; with -o json one line for each change."),
    every: float = option(
        "--every SECONDS", "With --watch: the time between two looks.", 2.0, min=0.2, max=MOST_SECONDS
    ),
) -> None:
    """Show the offsets of every consumer group on the source, and where it continues on the target.

    "offset" is what the group has committed on the source, "on target" the translated offset, "committed"
    what the group has committed on the target now.

    \b
    The verdict says how exact the translated offset is:
    PRESERVED          the same offset: the copy has the source's offsets
    EXACT              exactly the record that the group reads next
    UP_TO_DATE         the group has read everything that is copied
    BEFORE_START       the first record of a copy that begins after the group's offset
    FLOOR              never past the next record, but some are read again
    MAPPED             the same on a copy whose records Spark changes
    ACTIVE_ON_TARGET   the group has members on the target
    NO_SYNC, NOT_REPLICATED, TOO_OLD, PAST_END, SHARED_COPY, NOT_READY
                       there is no offset; the message says why
    SOURCE_UNREADABLE, TARGET_UNREADABLE
                       the last known offsets, with their age

    Exit code 1 if no flow translates the named group.
    """
    named, group = _named(names or [], group)
    wanted = None if named is None else parse_flow(named)
    request = pb2.ListGroupsRequest(group=group, flow=wanted, from_owner=True)
    if watch:
        if least_lag or sort is not Order.NAME:
            raise ConfigError("--min-lag and --sort are for a list, not for --watch", key="--watch")
        call.ask(lambda at: _watch(call, at, request, every))
        return
    answer = call.ask(lambda at: every_group(at.checkpoint, request))
    is_missing = bool(group) and not answer.groups
    rows = chosen_rows(answer.groups, least_lag=least_lag, order=sort)
    del answer.groups[:]
    answer.groups.extend(rows)

    def text() -> None:
        _print(answer.groups, answer.flows, notes(answer.flows, answer.clusters, answer.unsupported_groups))
        if is_missing:
            say(f"{group} is not translated: `twinlog explain group {shlex.quote(group)}` says why")

    call.tell(answer_as_json(answer), text, fails=is_missing)


async def every_group(
    stub: CheckpointServiceStub, request: pb2.ListGroupsRequest, *, page: int = PAGE
) -> pb2.ListGroupsResponse:
    """Return the answer with the rows of all its pages. Raises the service's error."""
    request.page_size = page
    return await every(stub.ListGroups, request, "groups")


def _named(names: list[str], group: str) -> tuple[str | None, str]:
    """Flow and group, by argument or option; a group with `->` in its id needs --group.

    Raises ConfigError.
    """
    flow, named = flow_and_names(names)
    groups = list(dict.fromkeys(filter(None, (*named, group))))
    if len(groups) > 1:
        raise ConfigError(f"several groups are named: {', '.join(groups)}: name one", key="NAME")
    return flow, groups[0] if groups else ""


async def _watch(call: Call, at: Services, request: pb2.ListGroupsRequest, every_seconds: float) -> None:
    """Show the present state at an interval, because ages grow although nothing changes; in JSON what
    changed."""
    seen, known = Differences(key=_key, shape=_shape), pb2.ListGroupsResponse()
    async for look in looks(lambda: every_group(at.checkpoint, request), seconds=every_seconds):
        lost = look if isinstance(look, TwinlogError) else None
        known = known if isinstance(look, TwinlogError) else look
        if call.in_json:
            for event in _events(seen, look):
                print_json_line(event)
            continue
        clear_screen()
        lines = notes(known.flows, known.clusters, known.unsupported_groups)
        if lost is not None:
            lines.append(f"showing the last known state; asking again: {lost}")
        _print(known.groups, known.flows, lines)


def _events(
    seen: "Differences[_Item]", look: pb2.ListGroupsResponse | TwinlogError
) -> Iterator[dict[str, Any]]:
    if isinstance(look, TwinlogError):
        yield {"event": "LOST", "reason": look.reason, "message": str(look)}
        return
    is_first = seen.rows is None
    changed, removed = seen.take([*look.groups, *look.flows]) or ([], [])
    if is_first:
        yield {"event": "SNAPSHOT"}
    for event, items in (("CHANGED", changed), ("REMOVED", removed)):
        for item in items:
            if isinstance(item, pb2.GroupPartition):
                yield {"event": event, "kind": "group", **as_json(GROUP, item)}
            else:
                yield {"event": event, "kind": "flow", **as_json(FLOW, item)}
    if is_first:
        yield {"event": "SNAPSHOT_END"}


def _key(item: _Item) -> tuple[str, str, str, int]:
    if isinstance(item, pb2.GroupPartition):
        return flow_name(item.flow), item.group, item.source.topic, item.source.partition
    return flow_name(item.flow), "", "", -1


def _shape(item: _Item) -> _Item:
    """A verdict that was only reached again is no difference."""
    if isinstance(item, pb2.FlowProgress):
        return item
    shape = pb2.GroupPartition()
    shape.CopyFrom(item)
    shape.ClearField("as_of")
    return shape


def _print(
    rows: Iterable[pb2.GroupPartition], flows: Iterable[pb2.FlowProgress], lines: Iterable[str]
) -> None:
    now_ms, known = CLOCK.get().now_ms(), list(flows)

    def age_ms(row: pb2.GroupPartition) -> int:
        return max(0, now_ms - max(row.as_of.ToMilliseconds(), confirmed_ms(known, row.flow)))

    print_rows(group_fields(age_ms), rows, empty="no groups known")
    for line in (*lines, *listings(known, now_ms=now_ms)):
        say(f"note: {line}")
