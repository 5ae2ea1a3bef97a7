"""What keeps `twinlog status --check` from saying that everything moves. Pure."""

import shlex
from dataclasses import dataclass

from twinlog.cli.common.next_command import next_command
from twinlog.cli.status.rows import HEARTBEAT_MISSING, SERVING, STANDS_BY, WAITING, FlowRow, Status

RUNNING = "RUNNING"
_WAITS = "WAITING"
_AS_CONFIGURED = frozenset({"NO_TOPICS", "NO_TOPICS_SELECTED", "HEARTBEATS_DISABLED", "NOT_REPLICATED"})
"""Reasons that say that there is nothing to move, or nothing to prove it by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    about: str
    """A service, a flow or a cluster."""
    reason: str
    """Stable."""
    message: str
    command: str = ""
    """The command that helps."""


def problems_of(status: Status) -> list[Problem]:
    """Return everything that makes no progress, or may make none; empty = everything moves.

    Lag, gaps, limits and changed rules are not problems: a partition with lag that makes no progress is
    STALLED. Standing by for the owner of a flow is not a problem either; the process on standby still sees
    whether the copy moves.
    """
    found = [
        Problem(
            about=row.name,
            reason=row.reason or row.health,
            message=row.message or f"the service at {row.endpoint} does not serve",
            command=next_command(row.reason, {}) if row.health == SERVING else "",
        )
        for row in status.services
        if row.health != SERVING or row.reason
    ]
    for name in sorted(status.flows):
        found += _of_flow(status.flows[name])
    for alias in sorted(status.clusters):
        found += [
            Problem(
                about=alias,
                reason=note.reason,
                message=f"{note.service}: {note.message}",
                command=next_command(note.reason, {}),
            )
            for note in status.clusters[alias].notes
        ]
    if not status.flows and not found:
        found.append(Problem(about="twinlog", reason="NO_FLOWS", message="no service has a flow"))
    return found


def standing_by(status: Status) -> list[str]:
    """The flows that another process copies."""
    return [name for name in sorted(status.flows) if status.flows[name].stands_by("source")]


def _of_flow(row: FlowRow) -> list[Problem]:
    found = [
        Problem(
            about=row.flow,
            reason=note.reason,
            message=f"{note.service}: {note.message}",
            command=next_command(note.reason, {"flow": row.flow}),
        )
        for note in row.notes
        if note.reason not in _AS_CONFIGURED
        and note.reason != STANDS_BY
        and (note.service != "heartbeat" or row.path != "ALIVE")
        and not (note.reason == HEARTBEAT_MISSING and row.is_paused)
    ]
    as_it_should = {RUNNING, _WAITS} if row.stands_by("source") else {RUNNING}
    still = {state: count for state, count in row.partitions.items() if count and state not in as_it_should}
    found += [
        Problem(
            about=row.flow,
            reason=state,
            message=f"{partitions(count)} {'is' if count == 1 else 'are'} {state}",
            command=f"twinlog partitions {shlex.quote(row.flow)} --trouble",
        )
        for state, count in sorted(still.items())
    ]
    if row.path == "UNKNOWN" and not any(note.service == "heartbeat" for note in row.notes):
        told = "the heartbeat service does not know whether heartbeats arrive"
        command = next_command("PATH_UNKNOWN", {"flow": row.flow})
        found.append(Problem(about=row.flow, reason="PATH_UNKNOWN", message=told, command=command))
    if row.partitions_of_unknown_lag or (row.records is not None and row.lag_records is None):
        count = row.partitions_of_unknown_lag or 0
        told = f"the lag of {partitions(count)} is not known" if count else "its positions are not known"
        command = f"twinlog partitions {shlex.quote(row.flow)}"
        found.append(Problem(about=row.flow, reason="LAG_UNKNOWN", message=told, command=command))
    found += [
        Problem(about=row.flow, reason="TOPICS_WAITING", message=each.message, command=each.command)
        for each in row.in_force
        if each.kind == WAITING
    ]
    if row.records is None and not found:
        told = "no source service has this flow, or it does not answer"
        found.append(Problem(about=row.flow, reason="NOT_COPIED", message=told))
    return found


def partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count:,} partitions"
