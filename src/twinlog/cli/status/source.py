"""What the source service adds to `twinlog status`: the copy, its lag, pauses, limits and gaps."""

import shlex
from collections.abc import Iterable, Sequence

import grpc

from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.common.fields import Fields, as_json, table
from twinlog.cli.common.names import flow_name, partition_name, shown_bytes
from twinlog.cli.common.times import CLOCK, counted
from twinlog.cli.source.client import scope_name, scope_words
from twinlog.cli.source.partition_rows import left_out_words
from twinlog.cli.status import rows as kinds
from twinlog.cli.status.rows import FlowRow, Status, age_seconds, asked, shown_stamp
from twinlog.service.feeds.pages import every

_TROUBLE = "twinlog partitions {flow} --trouble"
NOT_COPIED_HERE = "FLOW_NOT_READY"
"""Of a ledger that is not known. Why the flow is not copied is told once, by the flow itself."""


async def ask_source(channel: grpc.aio.Channel, status: Status, timeout_seconds: float) -> None:
    stub = SourceServiceStub(channel)
    answer = await stub.ListFlows(source.ListFlowsRequest(), timeout=timeout_seconds)
    now_ms = CLOCK.get().now_ms()
    for flow in await _as_owners_tell(stub, answer.flows, status, timeout_seconds):
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
    gaps = await asked(
        every(stub.ListGaps, source.ListGapsRequest(), "gaps", timeout=timeout_seconds),
        rows,
        "source",
        "gaps are not known",
    )
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


async def _as_owners_tell(
    stub: SourceServiceStub, flows: Iterable[source.FlowStatus], status: Status, timeout_seconds: float
) -> list[source.FlowStatus]:
    """The flows; those that another process owns as that one tells them, if it answers."""
    told: dict[str, source.FlowStatus] = {}
    for flow in flows:
        if flow.reason == kinds.STANDS_BY and flow_name(flow.flow) not in told:
            request = source.ListFlowsRequest(from_owner_of=flow.flow)
            owners = await asked(stub.ListFlows(request, timeout=timeout_seconds), [], "source", "")
            told |= {flow_name(each.flow): each for each in (owners.flows if owners is not None else ())}
    return [told.get(flow_name(flow.flow), flow) for flow in flows]


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
    if words := left_out_words(flow):
        row.hold(
            kinds.TRANSFORM, f"records that twinlog.transform left out: {words}", "twinlog partitions {flow}"
        )
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
