"""`twinlog groups`: the offsets of every consumer group on both clusters; `twinlog explain group`."""

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.call import Call, Differences, Services, command, looks
from twinlog.cli.common.fields import (
    Field,
    Fields,
    as_json,
    clear_screen,
    print_json_line,
    print_rows,
    table,
    value_of,
)
from twinlog.cli.common.names import CLOCK, MOST_OFFSET, MOST_SECONDS, flow_name, parse_flow
from twinlog.cli.common.options import argument, flag, flow_and_names, named_of_flow, option
from twinlog.cli.common.pasteable import say
from twinlog.cli.status.rows import STANDS_BY, outages
from twinlog.errors import ConfigError, TwinlogError
from twinlog.printable import listed
from twinlog.reasons import known_reasons

# How `twinlog groups` shows groups: rows, notes below them, and JSON.

_SAY_ALL = frozenset({"PRESERVED", "EXACT", "UP_TO_DATE"})
"""Verdicts whose message is the same in every row; --help has it."""
_FIGURE = "read again"
"""In a message that says more all the same: of a topic that is copied both ways."""
_UNREADABLE = frozenset({"SOURCE_UNREADABLE", "TARGET_UNREADABLE"})


class Order(StrEnum):
    """How rows are sorted."""

    NAME = "name"
    LAG = "lag"
    """On the source, the largest first; unknown lags come before all."""


def chosen_rows(
    rows: Iterable[pb2.GroupPartition], *, least_lag: int, order: Order
) -> list[pb2.GroupPartition]:
    """Rows with at least this lag on the source; an unknown lag is never left out."""
    chosen = [row for row in rows if not row.HasField("source_lag") or row.source_lag >= least_lag]
    if order is Order.NAME:
        return chosen
    return sorted(chosen, key=lambda row: (row.HasField("source_lag"), -row.source_lag))


def group_fields(
    age_ms: Callable[[pb2.GroupPartition], int], told: Collection[str] = _SAY_ALL
) -> Fields[pb2.GroupPartition]:
    """`age_ms`: since the row was found, or found to be the same; `told`: verdicts that need no message."""
    return table(
        "flow|flow4 group|group source_topic=source.topic",
        Field("target_topic", lambda row: row.target.topic),
        "partition=source.partition =source|partition",
        "upstream_offset|offset>3 source_lag|source_lag> downstream_offset|on_target>2",
        "target_lag|target_lag>1 offset_on_target|committed>6 committed_on_target verdict|verdict",
        Field("", column="age", text=lambda row: age(age_ms(row)), right=True, spare=5),
        Field(
            "message",
            column="message",
            text=lambda row: (
                "" if value_of(row, "verdict") in told and _FIGURE not in row.message else row.message
            ),
        ),
        "as_of",
    )


GROUP: Final = group_fields(lambda _: 0)
"""For documents."""
FLOW: Fields[pb2.FlowProgress] = table(
    "flow ready obstacle? obstacle_reason? offsets_held? offsets_held_reason? deletions_held?",
    "deletions_held_reason? confirmed groups_listed next_listing",
    "listing_failed? listing_failed_reason?",
)
_UNSUPPORTED: Fields[pb2.UnsupportedGroup] = table("flow group type=group_type")
_CLUSTER: Fields[types_pb2.ClusterStatus] = table("cluster=alias reachable reason? message?")


def confirmed_ms(flows: Iterable[pb2.FlowProgress], flow: types_pb2.Flow) -> int:
    """When all groups of the flow were last checked; 0 = never."""
    return max(
        (
            each.confirmed.ToMilliseconds()
            for each in flows
            if each.flow == flow and each.HasField("confirmed")
        ),
        default=0,
    )


def age(milliseconds: int) -> str:
    """`4 s`, `12 min`, `3 h`, `9 d`."""
    seconds = milliseconds // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def notes(
    flows: Iterable[pb2.FlowProgress],
    clusters: Sequence[types_pb2.ClusterStatus] = (),
    unsupported: Iterable[pb2.UnsupportedGroup] = (),
) -> list[str]:
    """What an operator has to know besides the rows."""
    lines = [row.outage_words for row in outages("checkpoint", clusters)]
    for flow in flows:
        name = flow_name(flow.flow)
        why = flow.obstacle.removeprefix(f"{name}: ")
        if not flow.ready:
            lines.append(f"{name} translates no groups yet: {why or 'its offset syncs are still being read'}")
        elif why:
            lines.append(f"{name}: {why}")
        if flow.offsets_held:
            lines.append(
                f"{name}: no offsets are committed for {flow.offsets_held} ({flow.offsets_held_reason})"
            )
        if flow.deletions_held:
            lines.append(f"{name}: no group is deleted: {flow.deletions_held} ({flow.deletions_held_reason})")
    lines += [
        f"{flow_name(entry.flow)} {entry.group}: {entry.group_type} groups have no offsets that could be"
        " translated"
        for entry in unsupported
    ]
    return lines


def listings(flows: Iterable[pb2.FlowProgress], *, now_ms: int) -> list[str]:
    """When the groups of each flow were listed: a newer one is not among the rows."""
    lines = []
    for flow in flows:
        if flow.HasField("groups_listed"):
            ago = age(max(0, now_ms - flow.groups_listed.ToMilliseconds()))
            again = "they are not listed again (refresh.groups.enabled=false)"
            if flow.HasField("next_listing"):
                left_ms = flow.next_listing.ToMilliseconds() - now_ms
                again = f"new ones are found within {-(-left_ms // 1000)} s"
                if left_ms <= 0:
                    again = f"the next time is {age(-left_ms)} late"
                again += " (refresh.groups.interval.seconds)"
            if flow.listing_failed:
                again += f"; the last list failed: {flow.listing_failed} ({flow.listing_failed_reason})"
            lines.append(f"{flow_name(flow.flow)}: groups were listed {ago} ago; {again}")
    return lines


def without_groups(flows: Iterable[pb2.FlowProgress]) -> str:
    """What is said where no group is known: of flows that work, only once all groups were looked at."""
    asked = [
        flow_name(flow.flow)
        for flow in flows
        if not flow.HasField("confirmed") and flow.obstacle_reason != STANDS_BY
    ]
    if not asked:
        return "no groups known"
    return f"no groups known yet: {listed(asked)} has not read them since it started"


def answer_as_json(answer: pb2.ListGroupsResponse) -> dict[str, Any]:
    return {
        "groups": [as_json(GROUP, row) for row in answer.groups],
        "unsupported_groups": [as_json(_UNSUPPORTED, entry) for entry in answer.unsupported_groups],
        "ready_flows": [flow_name(flow) for flow in answer.ready_flows],
        "flows": [as_json(FLOW, flow) for flow in answer.flows],
        "clusters": [as_json(_CLUSTER, cluster) for cluster in answer.clusters],
    }


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
    BEFORE_START       the first record of a copy that begins behind that offset
    FLOOR              never past the next record, but some are read again
    MAPPED             the same on a copy whose records Spark changes
    ACTIVE_ON_TARGET   the group has members on the target
    NO_SYNC, NOT_REPLICATED, TOO_OLD, PAST_END, SHARED_COPY, NOT_READY
                       there is no offset; the message says why
    SOURCE_UNREADABLE, TARGET_UNREADABLE
                       the last known offsets, with their age

    Exit code 1 if no flow translates the named group, or the owner of a flow does not answer.
    """
    named, group = _named(names or [], group)
    wanted = None if named is None else parse_flow(named)
    request = pb2.ListGroupsRequest(group=group, flow=wanted)
    if watch:
        if least_lag or sort is not Order.NAME:
            raise ConfigError("--min-lag and --sort are for a list, not for --watch", key="--watch")
        call.ask(lambda at: _watch(call, at, request, every))
        return
    answer = call.ask(lambda at: at.checkpoint.ListGroups(request))
    away = bool(answer.owned_elsewhere)
    is_missing = bool(group) and not answer.groups and not away
    rows = chosen_rows(answer.groups, least_lag=least_lag, order=sort)
    del answer.groups[:]
    answer.groups.extend(rows)

    def text() -> None:
        _print(answer, notes(answer.flows, answer.clusters, answer.unsupported_groups))
        if is_missing:
            say(f"{group} is not translated: `twinlog explain group {shlex.quote(group)}` says why")

    call.tell(answer_as_json(answer), text, fails=is_missing or away)


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
    async for look in looks(lambda: at.checkpoint.ListGroups(request), seconds=every_seconds):
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
        _print(known, lines)


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


def _print(answer: pb2.ListGroupsResponse, lines: Iterable[str]) -> None:
    now_ms = CLOCK.get().now_ms()

    def age_ms(row: pb2.GroupPartition) -> int:
        confirmed = 0 if value_of(row, "verdict") in _UNREADABLE else confirmed_ms(answer.flows, row.flow)
        return max(0, now_ms - max(row.as_of.ToMilliseconds(), confirmed))

    # The note about the brokers says why, for all of them.
    is_silent = bool(outages("checkpoint", answer.clusters))
    told = _SAY_ALL | _UNREADABLE if is_silent else _SAY_ALL
    print_rows(group_fields(age_ms, told), answer.groups, empty=without_groups(answer.flows))
    oldest_ms: dict[str, int] = {}
    for row in answer.groups:
        verdict = value_of(row, "verdict")
        oldest_ms[verdict] = max(oldest_ms.get(verdict, 0), age_ms(row))
    for verdict, oldest in oldest_ms.items():
        # The brokers may have died since.
        if is_silent or verdict in _UNREADABLE:
            say(f"note: {verdict}: the last known offsets, {age(oldest)} old or less")
    for line in (*lines, *listings(answer.flows, now_ms=now_ms)):
        say(f"note: {line}")


# `twinlog explain group`: why a consumer group is translated or not.

_CLUSTER_RULE = "CLUSTER"
"""Whether both clusters answer: otherwise no other rule is asked."""
_FINDING: Fields[pb2.Finding] = table(
    "rule|rule",
    Field("passed", column=" ", text=lambda finding: "yes" if finding.passed else "no"),
    "message|because",
)
_TRANSLATED_PARTITION: Fields[pb2.GroupPartition] = table(
    "=source|partition upstream_offset|offset> downstream_offset|on_target> verdict|verdict message|message",
)
_EXPLANATION: Fields[pb2.GroupExplanation] = table(
    "flow group translated state_on_source? state_on_target?",
    Field("findings", lambda group: [as_json(_FINDING, each) for each in group.findings]),
    Field("partitions", lambda group: [as_json(GROUP, row) for row in group.partitions]),
)


@command
def group_command(
    call: Call,
    names: list[str] = argument(
        "[A->B] GROUP", "Only this flow; a consumer group's id, which need not exist."
    ),
) -> None:
    """Explain why a consumer group is translated or not: every rule in turn, up to the one that decides."""
    named, group = named_of_flow(names, "group")
    wanted = None if named is None else parse_flow(named)
    request = pb2.ExplainGroupRequest(group=group, flow=wanted)
    found = call.ask(lambda at: at.checkpoint.ExplainGroup(request)).explanations
    call.tell([as_json(_EXPLANATION, each) for each in found], lambda: [*map(_print_explanation, found)])


def _print_explanation(explanation: pb2.GroupExplanation) -> None:
    verdict = "translated" if explanation.translated else "not translated"
    if any(finding.rule == _CLUSTER_RULE and not finding.passed for finding in explanation.findings):
        verdict = "cannot be told now"
    title = f"{flow_name(explanation.flow)} {explanation.group}: {verdict}"
    print_rows(_FINDING, explanation.findings, title=title)
    if explanation.partitions:
        print_rows(_TRANSLATED_PARTITION, explanation.partitions)
    for verdict in dict.fromkeys(value_of(row, "verdict") for row in explanation.partitions):
        if verdict in _UNREADABLE:
            say(f"{verdict}: {known_reasons()[verdict]['remedy']}")
