"""What checkpoint adds to `twinlog status`: groups, and what a failover left in force: fences, cut moves."""

import asyncio

import grpc

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.status.rows import FENCE, MOVE, NAMED_TOPICS, InForce, Status, asked, shown_stamp


async def ask_checkpoint(channel: grpc.aio.Channel, status: Status, timeout_seconds: float) -> None:
    stub = CheckpointServiceStub(channel)
    answer = await stub.ListGroups(checkpoint.ListGroupsRequest(summary_only=True), timeout=timeout_seconds)
    add_groups(answer, status)
    async with asyncio.TaskGroup() as group:
        for progress in answer.flows:
            group.create_task(_move(stub, progress.flow, status, timeout_seconds), name="last move")


def add_groups(answer: checkpoint.ListGroupsResponse, status: Status) -> None:
    """What is known of groups, counted."""
    status.add_clusters("checkpoint", answer.clusters)
    for flow in answer.ready_flows:
        status.flow(flow).group_count = 0
    for progress in answer.flows:
        if progress.obstacle:
            row = status.flow(progress.flow)
            row.add_note("checkpoint", reason="GROUPS_NOT_TRANSLATED", message=progress.obstacle)
    for summary in answer.summaries:
        row = status.flow(summary.flow)
        row.groups = dict(sorted(summary.partitions_by_verdict.items()))
        if summary.group_count or row.group_count is not None:
            row.group_count = summary.group_count


async def _move(
    stub: CheckpointServiceStub, flow: types_pb2.Flow, status: Status, timeout_seconds: float
) -> None:
    """What the flow's last failover or failback left in force."""
    row = status.flow(flow)
    answer = await asked(
        stub.GetMove(checkpoint.GetMoveRequest(flow=flow), timeout=timeout_seconds),
        [row],
        "checkpoint",
        "fences and cut moves are not known",
    )
    if answer is None:
        return
    if answer.problem:
        told = f"fences and cut moves are not known: {answer.problem}"
        row.add_note("checkpoint", reason="MOVES_UNKNOWN", message=told)
    if answer.HasField("last"):
        row.in_force += left_of_move(row.flow, answer.last, running=answer.run.running)


def left_of_move(flow: str, last: checkpoint.LastMove, *, running: bool) -> list[InForce]:
    """Nothing of a move that is finished and fences nobody. Pure."""
    since = shown_stamp(last.started)
    left: list[InForce] = []
    if not last.finished:
        done = ", ".join(last.steps) or "nothing"
        told = (
            f"{last.kind} {last.run_id} is under way, done: {done}"
            if running
            else f"{last.kind} {last.run_id} was cut, done: {done} (`twinlog {last.kind} run` continues it)"
        )
        left.append(InForce(kind=MOVE, about=flow, message=told, by=last.by, since=since))
    source, target = flow.split("->")
    left_alias, entered_alias = (source, target) if last.kind == "failover" else (target, source)
    for cluster, topics in ((left_alias, last.fenced_where_left), (entered_alias, last.fenced_where_entered)):
        if topics:
            named = ", ".join(topics[:NAMED_TOPICS]) + (", …" if len(topics) > NAMED_TOPICS else "")
            told = f"nobody may write to {len(topics)} topics on {cluster}: {named}"
            left.append(InForce(kind=FENCE, about=flow, message=told, by=last.by, since=since))
    return left
