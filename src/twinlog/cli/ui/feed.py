"""What all browsers are told: tables of rows, and what changed in each turn. Pure.

Invariant: the memory does not grow with the number of browsers, nor with how slowly they read. All share the
encoded frames; one that is further behind than `KEPT_FRAMES` gets a snapshot.
"""

import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.common.fields import Field, Fields, as_json, table, value_of
from twinlog.cli.common.names import flow_name, partition_name
from twinlog.cli.source.partitions import POSITION, SOURCE_END, left_out_words
from twinlog.cli.status.rows import SERVING, FlowRow, ServiceRow, works_here
from twinlog.cli.verdict.moving import TRANSLATED

KEPT_FRAMES = 30

Row = Mapping[str, Any] | Sequence[Any]


@dataclass(slots=True)
class FeedTable:
    """Rows by key, and which of them changed since they were taken last."""

    rows: dict[str, Row] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _removed: set[str] = field(default_factory=set)

    def put(self, key: str, row: Row) -> None:
        if self.rows.get(key) != row:
            self.rows[key] = row
            self._changed.add(key)
            self._removed.discard(key)

    def remove(self, key: str) -> None:
        if self.rows.pop(key, None) is not None:
            self._removed.add(key)
            self._changed.discard(key)

    def replace(self, rows: Mapping[str, Row]) -> None:
        """These, and no others."""
        for key in [key for key in self.rows if key not in rows]:
            self.remove(key)
        for key, row in rows.items():
            self.put(key, row)

    def take(self) -> dict[str, Any] | None:
        """What changed since the last call; None when nothing did."""
        if not self._changed and not self._removed:
            return None
        taken = {
            "changed": {key: self.rows[key] for key in sorted(self._changed)},
            "removed": sorted(self._removed),
        }
        self._changed.clear()
        self._removed.clear()
        return taken


class Feed:
    """Tables by name, and the frames of the last turns. A frame is an event of an SSE stream."""

    def __init__(self, names: Sequence[str], *, in_snapshots_only: Sequence[str] = ()) -> None:
        """`in_snapshots_only`: what browsers carry forward themselves from the rows of other tables."""
        self._in_snapshots_only = frozenset(in_snapshots_only)
        self.tables = {name: FeedTable() for name in names}
        self.turn = 0
        self._frames: deque[bytes] = deque(maxlen=KEPT_FRAMES)
        self._snapshot: tuple[int, bytes] = (-1, b"")

    def __getitem__(self, name: str) -> FeedTable:
        return self.tables[name]

    def next_turn(self) -> bool:
        """Encode what changed. False when nothing did."""
        changes = {name: taken for name, table in self.tables.items() if (taken := table.take()) is not None}
        for name in self._in_snapshots_only:
            changes.pop(name, None)
        if not changes:
            return False
        self.turn += 1
        self._frames.append(_frame("delta", self.turn, changes))
        return True

    def since(self, turn: int) -> list[bytes]:
        """The frames after `turn`; a snapshot when they are gone. Negative: a snapshot."""
        missed = self.turn - turn
        if turn < 0 or missed > len(self._frames) or missed < 0:
            return [self.snapshot()]
        return list(self._frames)[len(self._frames) - missed :]

    def snapshot(self) -> bytes:
        """Everything as of the last turn, encoded once for all who ask in a turn."""
        if self._snapshot[0] != self.turn:
            rows = {name: table.rows for name, table in self.tables.items()}
            self._snapshot = (self.turn, _frame("snapshot", self.turn, rows))
        return self._snapshot[1]


def _frame(event: str, turn: int, document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return f"event: {event}\nid: {turn}\ndata: {text}\n\n".encode()


# What the services told, as the rows that the page shows. Pure.
#
# Partitions and groups are lists, there are thousands: their fields stand in `PARTITION_FIELDS` and
# `GROUP_FIELDS`, which the page gets with the rows.

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
    Field("left_out", lambda row: left_out_words(row.left_out_records)),
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
