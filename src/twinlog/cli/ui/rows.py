"""What the services told, as the rows that the page shows. Pure.

Partitions and groups are lists, there are thousands: their fields stand in `PARTITION_FIELDS` and
`GROUP_FIELDS`, which the page gets with the rows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.checkpoint.client import verdict_name
from twinlog.cli.common.names import flow_name
from twinlog.cli.source.partition_rows import state_name
from twinlog.cli.status.rows import SERVING, FlowRow, ServiceRow
from twinlog.cli.verdict.moving import TRANSLATED
from twinlog.kafka.errors import CLIENT_REASONS, KAFKA_REASONS
from twinlog.reasons import REASON_GROUPS

PARTITION_FIELDS: Final = (
    "flow",
    "topic",
    "partition",
    "state",
    "position",
    "end",
    "lag",
    "rate",
    "bytes",
    "reason",
    "message",
    "offsets",
    "oldest_ms",
    "proof",
    "heartbeats",
    "foreign",
)
GROUP_FIELDS: Final = ("flow", "group", "verdict", "partitions", "lag", "target_lag", "verdicts", "message")

_WORST_FIRST: Final = (
    "SOURCE_UNREADABLE",
    "TARGET_UNREADABLE",
    "NOT_READY",
    "SHARED_COPY",
    "NO_SYNC",
    "NOT_REPLICATED",
    "TOO_OLD",
    "PAST_END",
    "ACTIVE_ON_TARGET",
    "BEFORE_START",
    "FLOOR",
    "EXACT",
    "UP_TO_DATE",
    "PRESERVED",
)


def partition_key(status: source.PartitionStatus) -> str:
    return f"{flow_name(status.flow)} {status.source.topic}-{status.source.partition}"


def partition_row(status: source.PartitionStatus) -> list[Any]:
    """In the order of PARTITION_FIELDS; None where nothing is known."""
    return [
        flow_name(status.flow),
        status.source.topic,
        status.source.partition,
        state_name(status),
        None if status.position < 0 else status.position,
        None if status.source_end_offset < 0 else status.source_end_offset,
        status.lag_records if status.HasField("lag_records") else None,
        round(status.records_per_second, 1),
        round(status.bytes_per_second),
        status.reason,
        status.message,
        f"{status.offsets} {status.offsets_reason}".strip(),
        status.oldest_record_at.ToMilliseconds() if status.HasField("oldest_record_at") else None,
        status.proof.verdict,
        status.is_heartbeats,
        status.foreign_records,
    ]


def group_rows(partitions: Iterable[checkpoint.GroupPartition]) -> dict[str, list[Any]]:
    """A row for each group of a flow, in the order of GROUP_FIELDS: its worst verdict, and its lag."""
    by_group: dict[str, list[checkpoint.GroupPartition]] = {}
    for each in partitions:
        by_group.setdefault(f"{flow_name(each.flow)} {each.group}", []).append(each)
    return {key: _group_row(parts) for key, parts in by_group.items()}


def _group_row(parts: list[checkpoint.GroupPartition]) -> list[Any]:
    verdicts = Counter(verdict_name(each) for each in parts)
    worst = min(parts, key=lambda each: _rank(verdict_name(each)))
    name = verdict_name(worst)
    return [
        flow_name(worst.flow),
        worst.group,
        name,
        len(parts),
        _sum(each.source_lag if each.HasField("source_lag") else None for each in parts),
        _sum(each.target_lag if each.HasField("target_lag") else None for each in parts),
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
    return {
        name: "standby" if row.stands_by(service.name) else "owner" for name, row in sorted(flows.items())
    }


def gap_rows(answer: source.ListGapsResponse) -> dict[str, Mapping[str, Any]]:
    rows: dict[str, Mapping[str, Any]] = {}
    for gap in answer.gaps:
        place = f"{flow_name(gap.flow)} {gap.partition.topic}-{gap.partition.partition}"
        rows[f"{place} {gap.from_offset}"] = {
            "flow": flow_name(gap.flow),
            "topic": gap.partition.topic,
            "partition": gap.partition.partition,
            "from": gap.from_offset,
            "to": gap.to_offset,
            "lost": gap.lost_offsets,
            "reason": gap.reason,
            "found": gap.found_at.ToJsonString(),
            "acknowledged_by": gap.acknowledged_by,
        }
    for unknown in answer.unknown:
        name = flow_name(unknown.flow)
        rows[f"{name} unknown"] = {"flow": name, "reason": unknown.reason, "message": unknown.message}
    return rows


def path_rows(answer: heartbeat.GetTopologyResponse) -> dict[str, Mapping[str, Any]]:
    return {
        f"{path.observed_on} {path.topic}": {
            "observed_on": path.observed_on,
            "topic": path.topic,
            "upstream": list(path.upstream_clusters),
            "last_seen": path.last_seen.ToJsonString() if path.HasField("last_seen") else None,
        }
        for path in answer.paths
    }


def move_rows(answer: checkpoint.ListMovesResponse) -> dict[str, Mapping[str, Any]]:
    return {flow_name(each.flow): _move_row(each) for each in answer.moves}


def _move_row(move: checkpoint.FlowMove) -> dict[str, Any]:
    steps = [
        {
            "name": step.name,
            "state": checkpoint.StepState.Name(step.state).removeprefix("STEP_STATE_"),
            "message": step.message,
            "records_left": step.records_left if step.HasField("records_left") else None,
        }
        for step in move.run.steps
    ]
    return {
        "running": move.run.running,
        "steps": steps,
        "failed": f"{move.run.message} ({move.run.reason})" if move.run.reason else "",
        "last": move.last.kind if move.HasField("last") else "",
        "finished": move.last.finished,
        "left_behind": list(move.last.left_behind),
        "fenced_topics": list(move.last.fenced_topics),
        "problem": move.problem,
    }


def known_reasons() -> dict[str, dict[str, str]]:
    """Meaning and remedy of every reason, as docs/reasons.md has them."""
    found = {
        reason.name: {"meaning": reason.meaning, "remedy": reason.remedy}
        for group in REASON_GROUPS
        for reason in group.reasons
    }
    for reason in (*CLIENT_REASONS, *KAFKA_REASONS.values()):
        remedy = "Twinlog tries again by itself" if reason.retriable else "an operator must act"
        found.setdefault(reason.name, {"meaning": reason.meaning, "remedy": remedy})
    return found
