"""Whether the groups of a flow may be moved now, check by check. Pure."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.cli.source.partition_rows import shown_seconds
from twinlog.cli.status.rows import DIFFERS, FENCE, FOREIGN, GAPS, MOVE, OPEN_TRANSACTION, FlowRow
from twinlog.cli.verdict.drain import DRAINING, LOSING, Drain
from twinlog.cli.verdict.flows import partitions
from twinlog.cli.verdict.issues import Issue, Verdict
from twinlog.cli.verdict.verdict import of_services

GO, WAIT, NO_GO = "GO", "WAIT", "NO_GO"

TRANSLATED = frozenset({"EXACT", "PRESERVED", "BEFORE_START", "UP_TO_DATE", "FLOOR"})
"""Verdicts with which a group has a place on the target. FLOOR repeats records, and loses none."""
_PROBLEMS_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that has to hold before a move."""

    title: str
    verdict: str
    """GO, WAIT (it becomes so by itself), NO_GO (somebody has to act)."""
    message: str
    command: str = ""
    """What shows more of it, or mends it; empty with GO."""


def readiness(row: FlowRow, verdict: Verdict, drain: Drain) -> list[Check]:
    """In the order in which a person would look."""
    services = of_services(verdict.stopping)
    own = [each for each in verdict.stopping if each.concerns(row.flow)]
    told_by_source = row.records is not None
    moves_known = row.group_count is not None and row.moves_known
    running = partitions(sum(row.partitions.values()))
    return [
        _problems("Services and clusters answer", services, good="all of them"),
        _problems("Everything moves", own, good=f"{running} without a problem"),
        _lag(row, drain),
        _groups(row),
        _in_force(row, "No data is lost", GAPS, good="no open gap", known=told_by_source and row.gaps_known),
        _in_force(
            row,
            "Copies match the source",
            DIFFERS,
            FOREIGN,
            good="no difference is known",
            known=told_by_source,
        ),
        _in_force(
            row,
            "Nothing waits behind a transaction of the source",
            OPEN_TRANSACTION,
            good="none stays open",
            known=told_by_source,
        ),
        _in_force(row, "No earlier move is unfinished", MOVE, good="none", known=moves_known),
        _heartbeats(row),
    ]


def overall(checks: Sequence[Check]) -> str:
    """NO_GO if one says so, else WAIT if one does, else GO."""
    verdicts = {check.verdict for check in checks}
    return next((verdict for verdict in (NO_GO, WAIT) if verdict in verdicts), GO)


def fences(row: FlowRow) -> list[str]:
    """What keeps writers out, in words."""
    return [each.message for each in row.in_force if each.kind == FENCE]


def _problems(title: str, problems: Sequence[Issue], *, good: str) -> Check:
    if not problems:
        return Check(title=title, verdict=GO, message=good)
    told = "; ".join(
        each.message if "->" in each.about else f"{each.about}: {each.message}"
        for each in problems[:_PROBLEMS_NAMED]
    )
    more = len(problems) - _PROBLEMS_NAMED
    command = next((each.command for each in problems if each.command), "twinlog status")
    message = f"{told}; and {more} more" if more > 0 else told
    return Check(title=title, verdict=NO_GO, message=message, command=command)


def _lag(row: FlowRow, drain: Drain) -> Check:
    title = "The backlog is copied"
    command = f"twinlog partitions {shlex.quote(row.flow)}"
    if row.lag_records is None:
        return Check(title=title, verdict=NO_GO, message="the lag is not known", command=command)
    if row.lag_records == 0:
        return Check(title=title, verdict=GO, message="the lag is 0")
    told = "1 record" if row.lag_records == 1 else f"{row.lag_records:,} records"
    if drain.state == LOSING and drain.records_per_second is not None:
        told = f"{told} left, and {-drain.records_per_second:,.0f} more each second"
        return Check(title=title, verdict=NO_GO, message=told, command=command)
    if drain.state == DRAINING and drain.seconds_left is not None:
        told = f"{told} left, about {shown_seconds(drain.seconds_left)}"
        return Check(title=title, verdict=WAIT, message=told, command=command)
    return Check(title=title, verdict=WAIT, message=f"{told} left, no estimate yet", command=command)


def _groups(row: FlowRow) -> Check:
    title = f"Groups have offsets on {row.flow.partition('->')[2]}"
    command = f"twinlog groups {shlex.quote(row.flow)}"
    if row.group_count is None:
        return Check(title=title, verdict=NO_GO, message="the groups are not known", command=command)
    without = {verdict: count for verdict, count in row.groups.items() if verdict not in TRANSLATED and count}
    if not without:
        all_of = "1 group" if row.group_count == 1 else f"all {row.group_count:,} groups"
        return Check(title=title, verdict=GO, message=all_of if row.group_count else "there are no groups")
    told = ", ".join(f"{partitions(count)} {verdict}" for verdict, count in sorted(without.items()))
    if set(without) == {"ACTIVE_ON_TARGET"}:
        return Check(title=title, verdict=GO, message=told)
    return Check(title=title, verdict=NO_GO, message=told, command=command)


def _in_force(row: FlowRow, title: str, *kinds: str, good: str, known: bool) -> Check:
    if not known:
        return Check(title=title, verdict=NO_GO, message="not known", command="twinlog status")
    found = [each for each in row.in_force if each.kind in kinds]
    if not found:
        return Check(title=title, verdict=GO, message=good)
    told = "; ".join(each.message for each in found)
    return Check(title=title, verdict=NO_GO, message=told, command=found[0].command)


def _heartbeats(row: FlowRow) -> Check:
    title = "Heartbeats arrive"
    if row.path == "ALIVE":
        delay = "" if row.delay_seconds is None else f"after {row.delay_seconds:.2f} s"
        return Check(title=title, verdict=GO, message=delay)
    told = "the heartbeat service does not say" if row.path is None else f"the path is {row.path}"
    return Check(title=title, verdict=NO_GO, message=told, command="twinlog topology")
