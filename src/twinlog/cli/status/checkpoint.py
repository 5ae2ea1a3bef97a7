"""What checkpoint adds to `twinlog status`: groups, and fences and interrupted moves."""

from collections.abc import Sequence

import grpc

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.times import counted
from twinlog.cli.status import rows as kinds
from twinlog.cli.status.rows import FlowRow, Status, asked, shown_stamp


async def ask_checkpoint(channel: grpc.aio.Channel, status: Status, timeout_seconds: float) -> None:
    stub = CheckpointServiceStub(channel)
    answer = await stub.ListGroups(checkpoint.ListGroupsRequest(summary_only=True), timeout=timeout_seconds)
    add_groups(answer, status)
    for progress in answer.flows:
        if progress.obstacle_reason == kinds.STANDS_BY:
            await _ask_owner(stub, progress.flow, status, timeout_seconds)
    rows = [status.flow(progress.flow) for progress in answer.flows]
    moves = await asked(
        stub.ListMoves(checkpoint.ListMovesRequest(), timeout=timeout_seconds),
        rows,
        "checkpoint",
        "fences and interrupted moves are not known",
    )
    if moves is None:
        for row in rows:
            row.moves_known = False
        return
    for move in moves.moves:
        add_move(move, status.flow(move.flow))


async def _ask_owner(
    stub: CheckpointServiceStub, flow: types_pb2.Flow, status: Status, timeout_seconds: float
) -> None:
    """Ask the owner for the groups of a flow for which the called process stands by."""
    request = checkpoint.ListGroupsRequest(flow=flow, summary_only=True, from_owner=True)
    row = status.flow(flow)
    owner = await asked(
        stub.ListGroups(request, timeout=timeout_seconds), [row], "checkpoint", "groups are not known"
    )
    if owner is None:
        return
    for summary in owner.summaries:
        if summary.group_count or flow in owner.ready_flows:
            _add_summary(summary, row)


def add_groups(answer: checkpoint.ListGroupsResponse, status: Status) -> None:
    """Add the counts of groups. A process on standby has none."""
    status.add_clusters("checkpoint", answer.clusters)
    ready = {status.flow(flow).flow for flow in answer.ready_flows}
    standby: set[str] = set()
    for progress in answer.flows:
        row = status.flow(progress.flow)
        if progress.obstacle:
            if progress.obstacle_reason == kinds.STANDS_BY:
                standby.add(row.flow)
            is_own = progress.obstacle_reason in (kinds.STANDS_BY, kinds.STARTING)
            row.add_note(
                "checkpoint",
                reason=progress.obstacle_reason if is_own else "GROUPS_NOT_TRANSLATED",
                message=progress.obstacle,
            )
        if progress.deletions_held:
            told = f"no group is deleted: {progress.deletions_held} ({progress.deletions_held_reason})"
            row.hold(kinds.HELD, told)
    for name in ready - standby:
        status.flows[name].group_count = 0
    for summary in answer.summaries:
        row = status.flow(summary.flow)
        if row.flow not in standby and (summary.group_count or row.flow in ready):
            _add_summary(summary, row)


def _add_summary(summary: checkpoint.GroupSummary, row: FlowRow) -> None:
    row.groups = dict(sorted(summary.partitions_by_verdict.items()))
    row.group_count = summary.group_count
    if count := row.groups.get(kinds.SHARED_COPY):
        told = f"{count} offsets of groups are on copies that another flow writes, too: none is committed"
        row.hold(kinds.SHARED_COPY, told, "twinlog groups {flow}")


def add_move(move: checkpoint.FlowMove, row: FlowRow) -> None:
    """Add the fences of the flow's last failover or failback, and the move itself if it is not finished."""
    if move.problem:
        row.moves_known = False
        told = f"fences and interrupted moves are not known: {move.problem}"
        row.add_note("checkpoint", reason="MOVES_UNKNOWN", message=told)
    if move.HasField("last"):
        _hold_move(row, move.last, running=move.run.running)
    source = row.flow.partition("->")[0]
    for fence in move.other_fences:
        told = f"{_no_writes(fence.topics, source)}: moves of {', '.join(fence.holders)} hold the fence"
        row.hold(kinds.FENCE, told, fence.remedy)


def _hold_move(row: FlowRow, last: checkpoint.LastMove, *, running: bool) -> None:
    """The lines about a move; none if it is finished, all groups are back, and it has no fences."""
    since, source, target = shown_stamp(last.started), *row.flow.split("->")
    if not last.finished:
        done = f"done: {', '.join(last.steps)}" if last.steps else "no step is done"
        told = f"{last.kind} {last.run_id} {'is running' if running else 'was interrupted'} ({done})"
        command = f"twinlog {last.kind} {'watch' if running else 'run'} {{flow}}"
        row.hold(kinds.MOVE, told, command, by=last.by, since=since)
    moved = last.groups_on_target if last.HasField("groups_on_target") else None
    if last.finished and last.on_target and moved != 0:
        count = "1 group was" if moved == 1 else f"{moved:,} groups were" if moved else "groups may have been"
        told = f"{count} moved to {target}, and not back"
        row.hold(
            kinds.MOVED, told, "twinlog failover status {flow}", by=last.by, since=shown_stamp(last.ended)
        )
    left_alias, entered_alias = (source, target) if last.kind == "failover" else (target, source)
    for cluster, topics in ((left_alias, last.fenced_where_left), (entered_alias, last.fenced_where_entered)):
        if topics:
            told, command = _no_writes(topics, cluster), "twinlog failover status {flow}"
            row.hold(kinds.FENCE, told, command, by=last.by, since=since)


def _no_writes(topics: Sequence[str], cluster: str) -> str:
    named = ", ".join(topics[: kinds.NAMED_TOPICS]) + (", …" if len(topics) > kinds.NAMED_TOPICS else "")
    return f"nobody may write to {counted(len(topics), 'topic')} on {cluster}: {named}"
