"""How `twinlog groups` shows groups: rows, notes below them, and JSON."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.checkpoint.client import shown, topic_partition, verdict_name
from twinlog.cli.common.output import Column
from twinlog.cli.configsync.client import flow_name

COLUMNS = (
    Column(title="flow", spare=4),
    Column(title="group"),
    Column(title="partition"),
    Column(title="offset", right=True, spare=3),
    Column(title="source lag", right=True),
    Column(title="on target", right=True, spare=2),
    Column(title="target lag", right=True, spare=1),
    Column(title="committed", right=True, spare=6),
    Column(title="verdict"),
    Column(title="age", right=True, spare=5),
    Column(title="message"),
)


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


def group_cells(row: pb2.GroupPartition, confirmed_ms: int, now_ms: int) -> list[str]:
    """`confirmed_ms` is when all groups of the flow were last checked."""
    age_ms = max(0, now_ms - max(row.as_of.ToMilliseconds(), confirmed_ms))
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
        age(age_ms),
        "" if verdict_name(row.verdict) in _SAY_ALL else row.message,
    ]


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
        f"{cluster.alias} does not answer: {cluster.message}"
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


def group_as_json(row: pb2.GroupPartition) -> dict[str, Any]:
    """One row as JSON."""
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


def flow_as_json(flow: pb2.FlowProgress) -> dict[str, Any]:
    return {
        "flow": flow_name(flow.flow),
        "ready": flow.ready,
        "obstacle": flow.obstacle or None,
        "obstacle_reason": flow.obstacle_reason or None,
        "offsets_held": flow.offsets_held or None,
        "offsets_held_reason": flow.offsets_held_reason or None,
        "deletions_held": flow.deletions_held or None,
        "deletions_held_reason": flow.deletions_held_reason or None,
        "confirmed": flow.confirmed.ToJsonString() if flow.HasField("confirmed") else None,
        "groups_listed": flow.groups_listed.ToJsonString() if flow.HasField("groups_listed") else None,
        "next_listing": flow.next_listing.ToJsonString() if flow.HasField("next_listing") else None,
    }


def answer_as_json(answer: pb2.ListGroupsResponse) -> dict[str, Any]:
    return {
        "groups": [group_as_json(row) for row in answer.groups],
        "unsupported_groups": [
            {"flow": flow_name(entry.flow), "group": entry.group, "type": entry.group_type}
            for entry in answer.unsupported_groups
        ],
        "ready_flows": [flow_name(flow) for flow in answer.ready_flows],
        "flows": [flow_as_json(flow) for flow in answer.flows],
        "clusters": [
            {
                "cluster": cluster.alias,
                "reachable": cluster.reachable,
                "reason": cluster.reason or None,
                "message": cluster.message or None,
            }
            for cluster in answer.clusters
        ],
    }
