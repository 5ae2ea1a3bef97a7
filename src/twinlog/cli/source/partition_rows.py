"""One partition as a row of a table, and as JSON. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.numbers import producer_words
from twinlog.cli.common.output import Column
from twinlog.cli.configsync.client import flow_name
from twinlog.cli.source.client import partition_name, shown_bytes

UNKNOWN = "?"

COLUMNS = (
    Column(title="flow", spare=4),
    Column(title="partition"),
    Column(title="state"),
    Column(title="position", right=True, spare=1),
    Column(title="lag", right=True),
    Column(title="behind", right=True),
    Column(title="caught up", right=True, spare=3),
    Column(title="records/s", right=True, spare=2),
    Column(title="bytes/s", right=True, spare=3),
    Column(title="lane", spare=6),
    Column(title="offsets", spare=7),
    Column(title="proof", spare=4),
    Column(title="delay", right=True, spare=5),
    Column(title="next try", right=True, spare=1),
    Column(title="reason"),
)
_NO_TROUBLE = ("", "DELAYED", "UNTIL_REACHED")
_OLDEST_MS = 30 * 366 * 86_400_000
"""No record of Kafka is so old."""
_FEW = 5
_WORST_FIRST = ("FAULTED", "STALLED", "BACKOFF", "WAITING", "PAUSED", "RUNNING")


def is_troubled(status: pb2.PartitionStatus) -> bool:
    """Whether it is not RUNNING, or differs from its source. A delayed partition is RUNNING."""
    if status.proof.verdict == "DIFFERENT" or status.foreign_records:
        return True
    return status.state != pb2.PARTITION_STATE_RUNNING or status.reason not in _NO_TROUBLE


def worst_first(statuses: Iterable[pb2.PartitionStatus]) -> list[pb2.PartitionStatus]:
    """Faulted partitions first, then those without progress, …, then RUNNING ones; otherwise in the original
    order."""
    ranks = {state: rank for rank, state in enumerate(_WORST_FIRST)}
    return sorted(statuses, key=lambda each: (ranks.get(state_name(each), 0), not is_troubled(each)))


def first_of_each(
    statuses: Sequence[pb2.PartitionStatus],
) -> tuple[list[pb2.PartitionStatus], dict[tuple[str, str], int]]:
    """The first few partitions of each state and reason, and how many more there are of it."""
    seen: Counter[tuple[str, str]] = Counter()
    shown = []
    for each in statuses:
        kind = state_name(each), each.reason
        seen[kind] += 1
        if seen[kind] <= _FEW:
            shown.append(each)
    return shown, {kind: count - _FEW for kind, count in seen.items() if count > _FEW}


def cells(status: pb2.PartitionStatus, *, now_ms: int) -> list[str]:
    known_delay = status.HasField("replication_latency")
    return [
        flow_name(status.flow),
        partition_name(status.source),
        state_name(status),
        position_cell(status),
        lag_cell(status),
        shown_seconds(lag_seconds(status, now_ms=now_ms)),
        shown_catch_up(caught_up_in_seconds(status)),
        f"{status.records_per_second:.0f}",
        shown_bytes(status.bytes_per_second),
        _lane(status),
        f"{status.offsets} {status.offsets_reason}".strip(),
        proof_words(status),
        shown_delay(status.replication_latency.ToMilliseconds()) if known_delay else "",
        _until(status, now_ms),
        f"{status.reason} {status.message}".strip() or _foreign_words(status),
    ]


def _lane(status: pb2.PartitionStatus) -> str:
    """UNOPENED, as in metrics and `twinlog verify`, or RECODE."""
    if status.lane == pb2.LANE_RAW:
        return "UNOPENED"
    return "" if status.lane == pb2.LANE_UNSPECIFIED else pb2.Lane.Name(status.lane).removeprefix("LANE_")


def position_cell(status: pb2.PartitionStatus) -> str:
    return UNKNOWN if status.position < 0 else str(status.position)


def end_cell(status: pb2.PartitionStatus) -> str:
    return UNKNOWN if status.source_end_offset < 0 else str(status.source_end_offset)


def lag_cell(status: pb2.PartitionStatus) -> str:
    return str(status.lag_records) if status.HasField("lag_records") else UNKNOWN


def lag_seconds(status: pb2.PartitionStatus, *, now_ms: int) -> float | None:
    """The age of the oldest record that is not copied; None when unknown."""
    if not status.HasField("lag_records"):
        return None
    if not status.lag_records:
        return 0.0
    if not status.HasField("oldest_record_at"):
        return None
    return max(0.0, (now_ms - status.oldest_record_at.ToMilliseconds()) / 1000)


def caught_up_in_seconds(status: pb2.PartitionStatus) -> float | None:
    """Until everything is copied, at the present pace; None when unknown."""
    return status.caught_up_in.ToMilliseconds() / 1000 if status.HasField("caught_up_in") else None


def as_json(status: pb2.PartitionStatus, *, now_ms: int) -> dict[str, Any]:
    seconds = lag_seconds(status, now_ms=now_ms)
    return {
        "flow": flow_name(status.flow),
        "topic": status.source.topic,
        "partition": status.source.partition,
        "target_topic": status.target_topic,
        "state": state_name(status),
        "position": None if status.position < 0 else status.position,
        "source_end_offset": None if status.source_end_offset < 0 else status.source_end_offset,
        "lag_records": status.lag_records if status.HasField("lag_records") else None,
        "lag_seconds": None if seconds is None else round(seconds, 3),
        "caught_up_in_seconds": caught_up_in_seconds(status),
        "records_per_second": round(status.records_per_second, 3),
        "bytes_per_second": round(status.bytes_per_second, 3),
        "lane": (
            None if status.lane == pb2.LANE_UNSPECIFIED else pb2.Lane.Name(status.lane).removeprefix("LANE_")
        ),
        **offsets_json(status),
        "proof": _proof_json(status),
        "foreign_records": status.foreign_records,
        "foreign_write": _foreign_json(status),
        "slot": status.slot,
        "reason": status.reason,
        "message": status.message,
        "retry_at": _time(status, "retry_at"),
        "stalled_since": _time(status, "stalled_since"),
        "as_of": _time(status, "as_of"),
        "source_end_as_of": _time(status, "source_end_as_of"),
        "replication_latency_ms": (
            status.replication_latency.ToMilliseconds() if status.HasField("replication_latency") else None
        ),
    }


def _foreign_json(status: pb2.PartitionStatus) -> dict[str, Any] | None:
    """The last foreign records that the copier found in the copy."""
    if not status.HasField("foreign_write"):
        return None
    write = status.foreign_write
    return {
        "from_offset": write.from_offset,
        "to_offset": write.to_offset,
        "records": write.records,
        "producer_id": write.producer_id,
        "producer_epoch": write.producer_epoch,
        "written_at": write.written_at.ToJsonString(),
    }


def _foreign_words(status: pb2.PartitionStatus) -> str:
    if not status.foreign_records:
        return ""
    write = status.foreign_write
    return (
        f"FOREIGN_WRITE {status.foreign_records} of others' records in the copy, the last at"
        f" {write.from_offset} to {write.to_offset - 1} of {producer_words(write.producer_id)}"
    )


def _proof_json(status: pb2.PartitionStatus) -> dict[str, Any] | None:
    """The result of continuous verification; null if it is off, or has not reached this partition yet."""
    if not status.HasField("proof"):
        return None
    proof = status.proof
    return {
        "verdict": proof.verdict,
        "proven_until": proof.proven_until,
        "proven_at": proof.proven_at.ToJsonString() if proof.HasField("proven_at") else None,
        "checked_at": proof.checked_at.ToJsonString(),
        "differences": dict(proof.differences),
        "reason": proof.reason,
    }


def proof_words(status: pb2.PartitionStatus) -> str:
    proof = status.proof
    if not proof.verdict:
        return ""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(proof.differences.items()))
    if kinds:
        since = f", since then {proof.reason}" if proof.reason else ""
        return f"DIFFERENT: {kinds}{since}"
    if not proof.HasField("proven_at"):
        return f"{proof.verdict} {proof.reason}"
    since = f", since then {proof.verdict} {proof.reason}" if proof.reason else ""
    return f"PROVEN to {proof.proven_until} at {proof.proven_at.ToDatetime():%H:%M:%S}Z{since}"


def offsets_json(status: pb2.PartitionStatus) -> dict[str, Any]:
    """Which offsets the copy has; null while undecided."""
    return {
        "offsets": status.offsets or None,
        "offsets_reason": status.offsets_reason,
        "offsets_since": status.offsets_since if status.HasField("offsets_since") else None,
    }


def state_name(status: pb2.PartitionStatus) -> str:
    """`RUNNING`."""
    return pb2.PartitionState.Name(status.state).removeprefix("PARTITION_STATE_")


def shown_seconds(seconds: float | None) -> str:
    """`12 s`, `5 min`, `3.2 h`, `2.0 d`; `?` when unknown."""
    if seconds is None:
        return UNKNOWN
    for size, unit in ((86_400, "d"), (3_600, "h")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def shown_delay(milliseconds: int) -> str:
    """`120 ms`, `12 s`; `?` of a record that has no time of its own: its timestamp is near 0, or below."""
    if milliseconds > _OLDEST_MS:
        return UNKNOWN
    return f"{milliseconds} ms" if milliseconds < 10_000 else shown_seconds(milliseconds / 1000)


def shown_catch_up(seconds: float | None) -> str:
    """`yes`, `in 5 min`, or `?` when unknown."""
    if seconds is None:
        return UNKNOWN
    return f"in {shown_seconds(seconds)}" if seconds else "yes"


def _until(status: pb2.PartitionStatus, now_ms: int) -> str:
    if not status.HasField("retry_at"):
        return ""
    return f"in {max(0.0, (status.retry_at.ToMilliseconds() - now_ms) / 1000):.0f} s"


def _time(status: pb2.PartitionStatus, field: str) -> str | None:
    if not status.HasField(field):  # type: ignore[arg-type]  # names of fields
        return None
    value: Timestamp = getattr(status, field)
    return value.ToJsonString()
