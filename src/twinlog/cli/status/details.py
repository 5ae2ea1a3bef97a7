"""What services add to `twinlog status`. The source service: the copy, its lag, pauses, limits and gaps."""

import shlex
from collections.abc import Sequence

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.common.call import Services
from twinlog.cli.common.fields import Fields, as_json, table
from twinlog.cli.common.names import CLOCK, counted, partition_name, shown_bytes
from twinlog.cli.source.client import scope_name, scope_words
from twinlog.cli.source.partitions import left_out_words
from twinlog.cli.status import rows as kinds
from twinlog.cli.status.rows import FlowRow, Status, age_seconds, asked, shown_stamp

_TROUBLE = "twinlog partitions {flow} --trouble"
NOT_COPIED_HERE = "FLOW_NOT_READY"
"""Of a ledger that is not known. Why the flow is not copied is told once, by the flow itself."""


async def ask_source(at: Services, status: Status) -> None:
    answer = await at.source.ListFlows(source.ListFlowsRequest())
    now_ms = CLOCK.get().now_ms()
    for flow in answer.flows:
        row = status.flow(flow.flow)
        for name, value in as_json(_COPIED, flow).items():
            if value is not None or name == "lag_records":
                setattr(row, name, value)
        _add_ages(row, flow, now_ms)
        _add_proof(row, flow)
        _add_ordered(row, flow)
        row.add_note("source", flow.reason, flow.message)
        status.add_clusters("source", flow.clusters)
        if count := flow.partitions_behind_transactions:
            more = f", and {count - 1:,} more partitions" if count > 1 else ""
            row.hold(kinds.OPEN_TRANSACTION, f"{flow.open_transaction}{more}", _TROUBLE)
        _hold_orders(row, flow)
    rows = [status.flow(flow.flow) for flow in answer.flows]
    ask_gaps = at.source.ListGaps(source.ListGapsRequest())
    gaps = await asked(ask_gaps, rows, "source", "gaps are not known")
    if gaps is None:
        for row in rows:
            row.gaps_known = False
        return
    by_flow: dict[str, list[source.LedgerGap]] = {}
    for unknown in gaps.unknown:
        row = status.flow(unknown.flow)
        row.gaps_known = False
        if unknown.reason != NOT_COPIED_HERE or not row.notes:
            row.add_note("source", unknown.reason, f"gaps are not known: {unknown.message}")
    for gap in gaps.gaps:
        row = status.flow(gap.flow)
        if gap.acknowledged_by:
            row.lost_acknowledged += gap.lost_offsets
            row.lost_acknowledged_by = sorted({*row.lost_acknowledged_by, gap.acknowledged_by})
            continue
        by_flow.setdefault(row.flow, []).append(gap)
    for name, found in by_flow.items():
        _hold_gaps(status.flows[name], found)


_COPIED: Fields[source.FlowStatus] = table(
    "partitions=partitions_by_state proofs=partitions_by_proof records bytes records_per_second",
    "bytes_per_second exactly_once lag_records last_known_lag_records partitions_of_unknown_lag",
    "caught_up_in_seconds=caught_up_in source_ends_as_of source_written_at=source_grew_at last_copied_at",
    "proven_at foreign_records falls_behind_per_second",
)
"""What a row has from the service as it is."""
_AGES = (
    *(("lag_seconds", "oldest_record_at"), ("source_ends_age_seconds", "source_ends_as_of")),
    *(("source_written_age_seconds", "source_grew_at"), ("last_copied_age_seconds", "last_copied_at")),
    ("source_watched_age_seconds", "source_watched_since"),
    *(
        ("last_copied_record_age_seconds", "last_copied_record_time"),
        ("proven_age_seconds", "proven_at"),
    ),
)


def _add_ages(row: FlowRow, flow: source.FlowStatus, now_ms: int) -> None:
    for name, at in _AGES:
        if flow.HasField(at):  # type: ignore[arg-type]
            setattr(row, name, age_seconds(getattr(flow, at), now_ms))
    if row.lag_seconds is None and row.lag_records == 0:
        row.lag_seconds = 0.0


def _add_proof(row: FlowRow, flow: source.FlowStatus) -> None:
    if different := row.proofs.get("DIFFERENT"):
        told = "1 copy differs" if different == 1 else f"{different:,} copies differ"
        row.hold(kinds.DIFFERS, f"{told} from the source", _TROUBLE)
    if flow.foreign_records:
        count = counted(flow.foreign_records, "record")
        named = ", ".join(map(partition_name, flow.foreign_partitions))
        told = f"other producers wrote {count} into the copies{f' of {named}' if named else ''}"
        row.hold(kinds.FOREIGN, told, "twinlog foreign {flow}")


def _no_limit(scope: source.Scope) -> str:
    flow, *rest = scope_words(scope)
    return shlex.join(["twinlog", "throttle", flow, "none", *rest])


def _hold_orders(row: FlowRow, flow: source.FlowStatus) -> None:
    """What somebody ordered while it ran."""
    for pause in flow.pauses:
        command = shlex.join(["twinlog", "resume", *scope_words(pause.scope)])
        since, name = shown_stamp(pause.since), scope_name(pause.scope)
        row.hold(kinds.PAUSE, "paused", command, about=name, by=pause.by, since=since)
    for limit in flow.throttles:
        told = f"limited to {shown_bytes(limit.bytes_per_second)}/s"
        row.hold(kinds.LIMIT, told, _no_limit(limit.scope), about=scope_name(limit.scope))


def _add_ordered(row: FlowRow, flow: source.FlowStatus) -> None:
    """What the file orders, and what the copies could not keep."""
    if flow.HasField("delay"):
        seconds = flow.delay.ToMilliseconds() / 1000
        told = f"records are copied {seconds:g} s after they were written (twinlog.delay.seconds)"
        row.hold(kinds.DELAY, told)
    if flow.partitions_both_ways:
        told = f"{flow.partitions_both_ways:,} partitions are copied both ways under the same name"
        if flow.echo_records:
            told = f"{told}; {flow.echo_records:,} records that came from there were left out"
        row.hold(kinds.BOTH_WAYS, told)
    if words := left_out_words(flow.left_out_records):
        told = f"records that transforms kept out of their copy: {words}"
        routed = "ROUTED" in flow.left_out_records
        row.hold(kinds.TRANSFORM, told, f"twinlog {'topics' if routed else 'partitions'} {{flow}}")
    for lender, workers in sorted(flow.lent_workers.items()):
        told = f"{counted(workers, 'worker')} on cores of {lender}, which owns no flow"
        row.hold(kinds.LENT_CORES, told)
    if flow.spark_ui:
        row.hold(kinds.SPARK_UI, f"Spark shows its jobs to anybody at {flow.spark_ui}")
    if lost := dict(sorted(flow.offsets_lost_by_reason.items())):
        count = sum(lost.values())
        copies = "1 copy no longer has" if count == 1 else f"{count:,} copies no longer have"
        row.hold(
            kinds.OFFSETS, f"{copies} the source's offsets: {', '.join(lost)}", "twinlog partitions {flow}"
        )


def _hold_gaps(row: FlowRow, gaps: Sequence[source.LedgerGap]) -> None:
    """Losses on record: what was copied again since stays in the ledger until somebody acknowledges it."""
    newest = max(gaps, key=lambda gap: gap.found_at.ToMilliseconds())
    offsets = sum(gap.lost_offsets for gap in gaps)
    told = (
        f"{counted(len(gaps), 'gap')} not acknowledged: {counted(offsets, 'source offset')} recorded as lost;"
        f" newest: {newest.reason} in {partition_name(newest.partition)}"
    )
    row.hold(kinds.GAPS, told, "twinlog gaps {flow}", since=shown_stamp(newest.found_at))


# What checkpoint adds to `twinlog status`: groups, and fences and interrupted moves.


async def ask_checkpoint(at: Services, status: Status) -> None:
    answer = await at.checkpoint.ListGroups(checkpoint.ListGroupsRequest(summary_only=True))
    add_groups(answer, status)
    rows = [status.flow(progress.flow) for progress in answer.flows]
    ask_moves = at.checkpoint.ListMoves(checkpoint.ListMovesRequest())
    moves = await asked(ask_moves, rows, "checkpoint", "fences and interrupted moves are not known")
    if moves is None:
        for row in rows:
            row.moves_known = False
        return
    for move in moves.moves:
        add_move(move, status.flow(move.flow))


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
        by = {"by": last.by, "since": shown_stamp(last.ended)} if last.kind == "failover" else {}
        row.hold(kinds.MOVED, told, "twinlog failover status {flow}", **by)
    left_alias, entered_alias = (source, target) if last.kind == "failover" else (target, source)
    for cluster, topics in ((left_alias, last.fenced_where_left), (entered_alias, last.fenced_where_entered)):
        if topics:
            told, command = _no_writes(topics, cluster), "twinlog failover status {flow}"
            row.hold(kinds.FENCE, told, command, by=last.by, since=since)


def _no_writes(topics: Sequence[str], cluster: str) -> str:
    named = ", ".join(topics[: kinds.NAMED_TOPICS]) + (", …" if len(topics) > kinds.NAMED_TOPICS else "")
    return f"nobody may write to {counted(len(topics), 'topic')} on {cluster}: {named}"
