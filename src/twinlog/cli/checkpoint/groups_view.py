"""How `twinlog groups` shows groups: rows, notes below them, and JSON."""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.fields import Field, Fields, as_json, table, value_of
from twinlog.cli.common.names import flow_name
from twinlog.kafka.reasons import no_answer

_SAY_ALL = frozenset({"PRESERVED", "EXACT", "UP_TO_DATE"})
"""Verdicts whose message is the same in every row; --help has it."""


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


def group_fields(age_ms: Callable[[pb2.GroupPartition], int]) -> Fields[pb2.GroupPartition]:
    """`age_ms`: since the row was found, or found to be the same."""
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
            text=lambda row: "" if value_of(row, "verdict") in _SAY_ALL else row.message,
        ),
        "as_of",
    )


GROUP: Final = group_fields(lambda _: 0)
"""For documents."""
FLOW: Fields[pb2.FlowProgress] = table(
    "flow ready obstacle? obstacle_reason? offsets_held? offsets_held_reason? deletions_held?",
    "deletions_held_reason? confirmed groups_listed next_listing",
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
    lines = [
        f"{no_answer(cluster.alias, cluster.reason)}: {cluster.message}"
        for cluster in clusters
        if not cluster.reachable and cluster.HasField("as_of")
    ]
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
                seconds = max(0, flow.next_listing.ToMilliseconds() - now_ms) // 1000
                again = f"new ones are found within {seconds} s (refresh.groups.interval.seconds)"
            lines.append(f"{flow_name(flow.flow)}: groups were listed {ago} ago; {again}")
    return lines


def answer_as_json(answer: pb2.ListGroupsResponse) -> dict[str, Any]:
    return {
        "groups": [as_json(GROUP, row) for row in answer.groups],
        "unsupported_groups": [as_json(_UNSUPPORTED, entry) for entry in answer.unsupported_groups],
        "ready_flows": [flow_name(flow) for flow in answer.ready_flows],
        "flows": [as_json(FLOW, flow) for flow in answer.flows],
        "clusters": [as_json(_CLUSTER, cluster) for cluster in answer.clusters],
    }
