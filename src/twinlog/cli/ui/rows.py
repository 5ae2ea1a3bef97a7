"""What the services told, as the rows that the page shows. Pure.

Partitions and groups are lists, there are thousands: their fields stand in `PARTITION_FIELDS` and
`GROUP_FIELDS`, which the page gets with the rows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.common.fields import Field, Fields, as_json, table, value_of
from twinlog.cli.common.names import flow_name, partition_name
from twinlog.cli.source.partition_rows import POSITION, SOURCE_END, left_out_words
from twinlog.cli.status.rows import SERVING, FlowRow, ServiceRow, works_here
from twinlog.cli.verdict.moving import TRANSLATED

_PARTITION: Fields[source.PartitionStatus] = table(
    "flow topic=source.topic partition=source.partition state",
    POSITION,
    replace(SOURCE_END, name="end"),
    "lag=lag_records",
    Field("rate", lambda row: round(row.records_per_second, 1)),
    Field("bytes", lambda row: round(row.bytes_per_second)),
    "reason message",
    Field("offsets", lambda row: f"{row.offsets} {row.offsets_reason}".strip()),
    Field(
        "oldest_ms",
        lambda row: row.oldest_record_at.ToMilliseconds() if row.HasField("oldest_record_at") else None,
    ),
    Field("proof", lambda row: row.proof.verdict),
    "heartbeats=is_heartbeats foreign=foreign_records",
    Field("left_out", lambda row: left_out_words(row)),
)
PARTITION_FIELDS: Final = tuple(each.name for each in _PARTITION)
GROUP_FIELDS: Final = ("flow", "group", "verdict", "partitions", "lag", "target_lag", "verdicts", "message")

_WORST_FIRST: Final = (
    *("SOURCE_UNREADABLE", "TARGET_UNREADABLE", "NOT_READY", "SHARED_COPY", "NO_SYNC", "NOT_REPLICATED"),
    *("TOO_OLD", "PAST_END", "ACTIVE_ON_TARGET", "BEFORE_START", "FLOOR", "MAPPED", "EXACT", "UP_TO_DATE"),
    "PRESERVED",
)


def partition_key(status: source.PartitionStatus) -> str:
    return f"{flow_name(status.flow)} {partition_name(status.source)}"


def partition_row(status: source.PartitionStatus) -> list[Any]:
    """In the order of PARTITION_FIELDS; None where nothing is known."""
    return [each.value(status) for each in _PARTITION]


def group_rows(partitions: Iterable[checkpoint.GroupPartition]) -> dict[str, list[Any]]:
    """A row for each group of a flow, in the order of GROUP_FIELDS: its worst verdict, and its lag."""
    by_group: dict[str, list[checkpoint.GroupPartition]] = {}
    for each in partitions:
        by_group.setdefault(f"{flow_name(each.flow)} {each.group}", []).append(each)
    return {key: _group_row(parts) for key, parts in by_group.items()}


def _group_row(parts: list[checkpoint.GroupPartition]) -> list[Any]:
    verdicts = Counter(value_of(each, "verdict") for each in parts)
    worst = min(parts, key=lambda each: _rank(value_of(each, "verdict")))
    name = value_of(worst, "verdict")
    return [
        flow_name(worst.flow),
        worst.group,
        name,
        len(parts),
        _sum(value_of(each, "source_lag") for each in parts),
        _sum(value_of(each, "target_lag") for each in parts),
        dict(sorted(verdicts.items())),
        "" if name in TRANSLATED else worst.message,
    ]


def _rank(verdict: str) -> int:
    return _WORST_FIRST.index(verdict) if verdict in _WORST_FIRST else 0


def _sum(lags: Iterable[int | None]) -> int | None:
    """None when one of them is not known."""
    known = list(lags)
    return None if None in known else sum(lag for lag in known if lag is not None)


def roles(service: ServiceRow, flows: Mapping[str, FlowRow]) -> dict[str, str]:
    """By flow: whether the process works at it, or stands by for another one. Empty where it does not
    answer."""
    if service.health != SERVING:
        return {}
    return {name: "owner" if works_here(service, row) else "standby" for name, row in sorted(flows.items())}


def shared_owners(service: ServiceRow, flows: Mapping[str, FlowRow]) -> dict[str, str]:
    """By flow that several processes of the service can own: which one does, and why."""
    return {
        name: f"{each.process} ({each.why}{f', moves to {each.moves_to}' if each.moves_to else ''})"
        for name, row in sorted(flows.items())
        for each in row.owners
        if each.service == service.name and each.processes > 1
    }


_GAP: Fields[source.LedgerGap] = table(
    "flow topic=partition.topic partition=partition.partition from=from_offset to=to_offset",
    "lost=lost_offsets reason found=found_at acknowledged_by",
)
_UNKNOWN: Fields[source.UnknownLedger] = table("flow reason message")
_PATH: Fields[heartbeat.Path] = table("observed_on topic upstream=upstream_clusters last_seen")
_STEP: Fields[checkpoint.MoveStep] = table("name state message records_left")
_MOVE: Fields[checkpoint.FlowMove] = table(
    Field("running", lambda move: move.run.running),
    Field("steps", lambda move: [as_json(_STEP, step) for step in move.run.steps]),
    Field("failed", lambda move: f"{move.run.message} ({move.run.reason})" if move.run.reason else ""),
    Field("last", lambda move: move.last.kind),
    Field("finished", lambda move: move.last.finished),
    Field("left_behind", lambda move: [*move.last.left_behind]),
    Field("fenced_topics", lambda move: [*move.last.fenced_topics]),
    "problem",
)


def gap_rows(answer: source.ListGapsResponse) -> dict[str, Mapping[str, Any]]:
    rows: dict[str, Mapping[str, Any]] = {
        f"{flow_name(gap.flow)} {partition_name(gap.partition)} {gap.from_offset}": as_json(_GAP, gap)
        for gap in answer.gaps
    }
    return rows | {f"{flow_name(each.flow)} unknown": as_json(_UNKNOWN, each) for each in answer.unknown}


def path_rows(answer: heartbeat.GetTopologyResponse) -> dict[str, Mapping[str, Any]]:
    return {f"{path.observed_on} {path.topic}": as_json(_PATH, path) for path in answer.paths}


def move_rows(answer: checkpoint.ListMovesResponse) -> dict[str, Mapping[str, Any]]:
    return {flow_name(each.flow): as_json(_MOVE, each) for each in answer.moves}
