"""What keeps `twinlog status --check` from saying that everything moves. Pure."""

from dataclasses import dataclass

from twinlog.cli.status.rows import HEARTBEAT_MISSING, SERVING, WAITING, FlowRow, Status

RUNNING = "RUNNING"
_AS_CONFIGURED = frozenset({"NO_TOPICS", "NO_TOPICS_SELECTED", "HEARTBEATS_DISABLED", "NOT_REPLICATED"})
"""Reasons that say that there is nothing to move, or nothing to prove it by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    about: str
    """A service, a flow or a cluster."""
    reason: str
    """Stable."""
    message: str


def problems_of(status: Status) -> list[Problem]:
    """Everything that does not move, or of which it is not known whether it does; empty = all is well.

    Lag, gaps, limits and changed rules are no problems: partitions with lag that do not move are STALLED.
    """
    found = [
        Problem(
            about=row.name,
            reason=row.reason or row.health,
            message=row.message or f"the service at {row.endpoint} does not serve",
        )
        for row in status.services
        if row.health != SERVING or row.reason
    ]
    for name in sorted(status.flows):
        found += _of_flow(status.flows[name])
    for alias in sorted(status.clusters):
        found += [
            Problem(about=alias, reason=note.reason, message=f"{note.service}: {note.message}")
            for note in status.clusters[alias].notes
        ]
    if not status.flows and not found:
        found.append(Problem(about="twinlog", reason="NO_FLOWS", message="no service has a flow"))
    return found


def _of_flow(row: FlowRow) -> list[Problem]:
    found = [
        Problem(about=row.flow, reason=note.reason, message=f"{note.service}: {note.message}")
        for note in row.notes
        if note.reason not in _AS_CONFIGURED
        and (note.service != "heartbeat" or row.path == "SILENT")
        and not (note.reason == HEARTBEAT_MISSING and row.is_paused)
    ]
    still = {state: count for state, count in row.partitions.items() if count and state != RUNNING}
    found += [
        Problem(about=row.flow, reason=state, message=_partitions(count, state))
        for state, count in sorted(still.items())
    ]
    if row.partitions_of_unknown_lag or (row.records is not None and row.lag_records is None):
        count = row.partitions_of_unknown_lag or 0
        told = f"the lag of {count} partitions is not known" if count else "its positions are not known"
        found.append(Problem(about=row.flow, reason="LAG_UNKNOWN", message=told))
    found += [
        Problem(about=row.flow, reason="TOPICS_WAITING", message=each.message)
        for each in row.in_force
        if each.kind == WAITING
    ]
    if row.records is None and not found:
        told = "no source service has this flow, or it does not answer"
        found.append(Problem(about=row.flow, reason="NOT_COPIED", message=told))
    return found


def _partitions(count: int, state: str) -> str:
    words = "1 partition is" if count == 1 else f"{count} partitions are"
    return f"{words} {state} (`twinlog partitions --trouble`)"
