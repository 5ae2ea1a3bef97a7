"""How `twinlog status` looks: tables for people, one document for programs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from twinlog.cli.output import Column
from twinlog.cli.status_query import ClusterRow, FlowRow, Note, ServiceRow, Status

UNKNOWN = "-"

SERVICE_COLUMNS = (
    Column(title="SERVICE"),
    Column(title="ENDPOINT"),
    Column(title="HEALTH"),
    Column(title="VERSION"),
)
FLOW_COLUMNS = (
    Column(title="FLOW"),
    Column(title="TOPICS", right=True),
    Column(title="PARTITIONS"),
    Column(title="RECORDS/S", right=True),
    Column(title="MB/S", right=True),
    Column(title="LAG", right=True),
    Column(title="DELAY", right=True),
    Column(title="GROUPS"),
)
CLUSTER_COLUMNS = (Column(title="CLUSTER"), Column(title="REACHABLE"))
NOTE_COLUMNS = (
    Column(title="ABOUT"),
    Column(title="SAID BY"),
    Column(title="REASON"),
    Column(title="MESSAGE"),
)


def as_json(status: Status) -> dict[str, Any]:
    """The stable document of `-o json`: times in seconds, sizes in bytes, null where nothing is known."""
    return {
        "services": [asdict(row) for row in status.services],
        "flows": [asdict(row) for row in _sorted_flows(status)],
        "clusters": [asdict(row) for row in _sorted_clusters(status)],
    }


def service_cells(row: ServiceRow) -> Sequence[str]:
    return row.name, row.endpoint, row.health, row.version or UNKNOWN


def flow_cells(row: FlowRow) -> Sequence[str]:
    return (
        row.flow,
        str(sum(row.topics.values())) if row.topics else UNKNOWN,
        _counts(row.partitions),
        _number(row.records_per_second),
        UNKNOWN if row.bytes_per_second is None else f"{row.bytes_per_second / 1e6:,.1f}",
        _number(row.lag_records),
        _delay(row),
        _groups(row),
    )


def cluster_cells(row: ClusterRow) -> Sequence[str]:
    answers = {service: seen for service, seen in row.seen_by.items() if seen is not None}
    if not answers:
        return row.alias, UNKNOWN
    if all(answers.values()):
        return row.alias, "yes"
    if not any(answers.values()):
        return row.alias, "no"
    return row.alias, "not by " + ", ".join(service for service, seen in answers.items() if not seen)


def note_cells(status: Status) -> list[Sequence[str]]:
    """Everything that is not as it should be, with its reason."""
    rows: list[Sequence[str]] = [
        (row.name, "twinlog status", row.reason, row.message) for row in status.services if row.reason
    ]
    rows += [_note(row.flow, note) for row in _sorted_flows(status) for note in row.notes]
    for row in _sorted_clusters(status):
        rows += _told_by_many(row.alias, row.notes)
    return rows


def _sorted_flows(status: Status) -> list[FlowRow]:
    return [status.flows[name] for name in sorted(status.flows)]


def _sorted_clusters(status: Status) -> list[ClusterRow]:
    return [status.clusters[alias] for alias in sorted(status.clusters)]


def _told_by_many(about: str, notes: Sequence[Note]) -> list[Sequence[str]]:
    """A row for each reason: a cluster that is away is away for every service."""
    by_reason: dict[str, list[Note]] = {}
    for note in notes:
        by_reason.setdefault(note.reason, []).append(note)
    return [
        (about, ", ".join(note.service for note in alike), reason, alike[0].message)
        for reason, alike in by_reason.items()
    ]


def _note(about: str, note: Note) -> Sequence[str]:
    return about, note.service, note.reason, note.message


def _counts(counts: Mapping[str, int]) -> str:
    shown = [f"{count} {state.lower()}" for state, count in sorted(counts.items()) if count]
    return ", ".join(shown) or UNKNOWN


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _delay(row: FlowRow) -> str:
    if row.path == "SILENT":
        age = "" if row.heartbeat_age_seconds is None else f" {row.heartbeat_age_seconds:.0f} s"
        return f"silent{age}"
    return UNKNOWN if row.delay_seconds is None else f"{row.delay_seconds:.2f} s"


def _groups(row: FlowRow) -> str:
    if row.group_count is None:
        return UNKNOWN
    return f"{row.group_count} ({_counts(row.groups)})" if row.groups else str(row.group_count)
