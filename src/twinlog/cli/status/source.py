"""What the source service adds to `twinlog status`: the copy, its lag, pauses, limits and gaps."""

import shlex
from collections.abc import Iterable, Sequence

import grpc

from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.common.call import every
from twinlog.cli.common.names import flow_name, partition_name, shown_bytes
from twinlog.cli.common.times import CLOCK, counted
from twinlog.cli.source.client import scope_name, scope_words
from twinlog.cli.source.partition_rows import left_out_words
from twinlog.cli.status.rows import (
    BOTH_WAYS,
    DELAY,
    DIFFERS,
    FOREIGN,
    GAPS,
    LIMIT,
    OFFSETS,
    OPEN_TRANSACTION,
    PAUSE,
    SPARK_UI,
    STANDS_BY,
    TRANSFORM,
    FlowRow,
    InForce,
    Status,
    age_seconds,
    asked,
    shown_stamp,
)

_TROUBLE = "twinlog partitions {flow} --trouble"
NOT_COPIED_HERE = "FLOW_NOT_READY"
"""Of a ledger that is not known. Why the flow is not copied is told once, by the flow itself."""


async def ask_source(channel: grpc.aio.Channel, status: Status, timeout_seconds: float) -> None:
    stub = SourceServiceStub(channel)
    answer = await stub.ListFlows(source.ListFlowsRequest(), timeout=timeout_seconds)
    now_ms = CLOCK.get().now_ms()
    for flow in await _as_owners_tell(stub, answer.flows, status, timeout_seconds):
        row = status.flow(flow.flow)
        row.partitions = dict(flow.partitions_by_state)
        row.records, row.bytes = flow.records, flow.bytes
        row.records_per_second, row.bytes_per_second = flow.records_per_second, flow.bytes_per_second
        row.exactly_once = flow.exactly_once
        _add_lag(row, flow, now_ms)
        _add_proof(row, flow, now_ms)
        _add_ordered(row, flow)
        row.add_note("source", flow.reason, flow.message)
        status.add_clusters("source", flow.clusters)
        if count := flow.partitions_behind_transactions:
            more = f", and {count - 1:,} more partitions" if count > 1 else ""
            row.hold(OPEN_TRANSACTION, f"{flow.open_transaction}{more}", _TROUBLE)
        row.in_force += [
            InForce(
                kind=PAUSE,
                about=scope_name(each.scope),
                message="paused",
                by=each.by,
                since=shown_stamp(each.since),
                command=shlex.join(["twinlog", "resume", *scope_words(each.scope)]),
            )
            for each in flow.pauses
        ]
        row.in_force += [
            InForce(
                kind=LIMIT,
                about=scope_name(each.scope),
                message=f"limited to {shown_bytes(each.bytes_per_second)}/s",
                command=_no_limit(each.scope),
            )
            for each in flow.throttles
        ]
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
        status.flows[name].in_force.append(_gaps_in_force(name, found))


async def _as_owners_tell(
    stub: SourceServiceStub, flows: Iterable[source.FlowStatus], status: Status, timeout_seconds: float
) -> list[source.FlowStatus]:
    """The flows; those that another process owns as that one tells them, if it answers."""
    told: dict[str, source.FlowStatus] = {}
    for flow in flows:
        if flow.reason == STANDS_BY and flow_name(flow.flow) not in told:
            request = source.ListFlowsRequest(from_owner_of=flow.flow)
            owners = await asked(stub.ListFlows(request, timeout=timeout_seconds), [], "source", "")
            told |= {flow_name(each.flow): each for each in (owners.flows if owners is not None else ())}
    return [told.get(flow_name(flow.flow), flow) for flow in flows]


def _add_proof(row: FlowRow, flow: source.FlowStatus, now_ms: int) -> None:
    row.proofs = dict(flow.partitions_by_proof)
    if flow.HasField("proven_at"):
        row.proven_at = shown_stamp(flow.proven_at)
        row.proven_age_seconds = age_seconds(flow.proven_at, now_ms)
    row.foreign_records = flow.foreign_records
    if different := row.proofs.get("DIFFERENT"):
        told = "1 copy differs" if different == 1 else f"{different:,} copies differ"
        row.hold(DIFFERS, f"{told} from the source", _TROUBLE)
    if flow.foreign_records:
        count = "1 record" if flow.foreign_records == 1 else f"{flow.foreign_records:,} records"
        named = ", ".join(map(partition_name, flow.foreign_partitions))
        told = f"other producers wrote {count} into the copies{f' of {named}' if named else ''}"
        row.hold(FOREIGN, told, "twinlog foreign {flow}")


def _no_limit(scope: source.Scope) -> str:
    flow, *rest = scope_words(scope)
    return shlex.join(["twinlog", "throttle", flow, "none", *rest])


def _add_ordered(row: FlowRow, flow: source.FlowStatus) -> None:
    """What the file orders, and what the copies could not keep."""
    row.falls_behind_per_second = flow.falls_behind_per_second
    if flow.HasField("delay"):
        seconds = flow.delay.ToMilliseconds() / 1000
        told = f"records are copied {seconds:g} s after they were written (twinlog.delay.seconds)"
        row.hold(DELAY, told)
    if flow.partitions_both_ways:
        told = f"{flow.partitions_both_ways:,} partitions are copied both ways under the same name"
        if flow.echo_records:
            told = f"{told}; {flow.echo_records:,} records that came from there were left out"
        row.hold(BOTH_WAYS, told)
    if words := left_out_words(flow):
        row.hold(TRANSFORM, f"records that twinlog.transform left out: {words}", "twinlog partitions {flow}")
    if flow.spark_ui:
        row.hold(SPARK_UI, f"Spark shows its jobs to anybody at {flow.spark_ui}")
    if lost := dict(sorted(flow.offsets_lost_by_reason.items())):
        count = sum(lost.values())
        copies = "1 copy no longer has" if count == 1 else f"{count:,} copies no longer have"
        row.hold(OFFSETS, f"{copies} the source's offsets: {', '.join(lost)}", "twinlog partitions {flow}")


def _add_lag(row: FlowRow, flow: source.FlowStatus, now_ms: int) -> None:
    row.lag_records = flow.lag_records if flow.HasField("lag_records") else None
    row.last_known_lag_records = flow.last_known_lag_records
    row.partitions_of_unknown_lag = flow.partitions_of_unknown_lag
    if flow.HasField("source_ends_as_of"):
        row.source_ends_as_of = shown_stamp(flow.source_ends_as_of)
        row.source_ends_age_seconds = age_seconds(flow.source_ends_as_of, now_ms)
    if flow.HasField("oldest_record_at"):
        row.lag_seconds = age_seconds(flow.oldest_record_at, now_ms)
    elif row.lag_records == 0:
        row.lag_seconds = 0.0
    if flow.HasField("caught_up_in"):
        row.caught_up_in_seconds = flow.caught_up_in.ToMilliseconds() / 1000
    if flow.HasField("source_grew_at"):
        row.source_written_at = shown_stamp(flow.source_grew_at)
        row.source_written_age_seconds = age_seconds(flow.source_grew_at, now_ms)
    if flow.HasField("last_copied_at"):
        row.last_copied_at = shown_stamp(flow.last_copied_at)
        row.last_copied_age_seconds = age_seconds(flow.last_copied_at, now_ms)
    if flow.HasField("last_copied_record_time"):
        row.last_copied_record_age_seconds = age_seconds(flow.last_copied_record_time, now_ms)


def _gaps_in_force(flow: str, gaps: Sequence[source.LedgerGap]) -> InForce:
    """Losses on record: what was copied again since stays in the ledger until somebody acknowledges it."""
    newest = max(gaps, key=lambda gap: gap.found_at.ToMilliseconds())
    offsets = sum(gap.lost_offsets for gap in gaps)
    return InForce(
        kind=GAPS,
        about=flow,
        message=f"{counted(len(gaps), 'gap')} not acknowledged: {counted(offsets, 'source offset')} recorded"
        f" as lost; newest: {newest.reason} in {partition_name(newest.partition)}",
        since=shown_stamp(newest.found_at),
        command=f"twinlog gaps {shlex.quote(flow)}",
    )
