"""Whether the groups of a flow may be moved now, check by check. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.cli.status.check import Problem
from twinlog.cli.status.rows import DIFFERS, FENCE, FOREIGN, GAPS, MOVE, FlowRow
from twinlog.cli.ui.drain import DRAINING, LOSING, Drain

GO, WAIT, NO_GO = "GO", "WAIT", "NO_GO"

TRANSLATED = frozenset({"EXACT", "PRESERVED", "UP_TO_DATE", "FLOOR"})
"""Verdicts with which a group has a place on the target. FLOOR repeats records, and loses none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that has to hold before a move."""

    name: str
    verdict: str
    """GO, WAIT (it becomes so by itself), NO_GO (somebody has to act)."""
    message: str


def readiness(row: FlowRow, problems: Sequence[Problem], drain: Drain) -> list[Check]:
    """In the order in which a person would look. `problems`: all of `twinlog status --check`."""
    services = [each for each in problems if "->" not in each.about]
    own = [each for each in problems if each.about == row.flow]
    told_by_source = row.records is not None
    moves_known = row.group_count is not None and row.moves_known
    return [
        _problems("services and clusters answer", services),
        _problems("every partition moves", own),
        _lag(row, drain),
        _groups(row),
        _in_force(row, "nothing is lost", GAPS, known=told_by_source and row.gaps_known),
        _in_force(row, "no difference is known", DIFFERS, FOREIGN, known=told_by_source),
        _in_force(row, "no earlier move is cut", MOVE, known=moves_known),
        _heartbeats(row),
    ]


def overall(checks: Sequence[Check]) -> str:
    """NO_GO if one says so, else WAIT if one does, else GO."""
    verdicts = {check.verdict for check in checks}
    return next((verdict for verdict in (NO_GO, WAIT) if verdict in verdicts), GO)


def fences(row: FlowRow) -> list[str]:
    """What keeps writers out, in words."""
    return [each.message for each in row.in_force if each.kind == FENCE]


def _problems(name: str, problems: Sequence[Problem]) -> Check:
    if not problems:
        return Check(name=name, verdict=GO, message="yes")
    told = "; ".join(f"{each.about}: {each.message} ({each.reason})" for each in problems[:3])
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    return Check(name=name, verdict=NO_GO, message=told + more)


def _lag(row: FlowRow, drain: Drain) -> Check:
    name = "the backlog is copied"
    if row.lag_records is None:
        return Check(name=name, verdict=NO_GO, message="the lag is not known")
    if row.lag_records == 0:
        return Check(name=name, verdict=GO, message="the lag is 0")
    told = f"{row.lag_records:,} records to copy"
    if drain.state == LOSING and drain.records_per_second is not None:
        speed = -drain.records_per_second
        return Check(name=name, verdict=NO_GO, message=f"{told}, losing: {speed:,.0f} more each second")
    if drain.state == DRAINING and drain.seconds_left is not None:
        return Check(name=name, verdict=WAIT, message=f"{told}, about {drain.seconds_left:,.0f} s left")
    return Check(name=name, verdict=WAIT, message=f"{told}, it is not known yet for how long")


def _groups(row: FlowRow) -> Check:
    name = "groups have a place on the target"
    if row.group_count is None:
        return Check(name=name, verdict=NO_GO, message="nothing is known of groups: ask `twinlog groups`")
    without = {verdict: count for verdict, count in row.groups.items() if verdict not in TRANSLATED and count}
    if not without:
        return Check(name=name, verdict=GO, message=f"all of {row.group_count}")
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(without.items()))
    active = set(without) == {"ACTIVE_ON_TARGET"}
    verdict = GO if active else NO_GO
    return Check(name=name, verdict=verdict, message=f"{told} (`twinlog explain group` says why)")


def _in_force(row: FlowRow, name: str, *kinds: str, known: bool) -> Check:
    if not known:
        return Check(name=name, verdict=NO_GO, message="not known")
    told = "; ".join(each.message for each in row.in_force if each.kind in kinds)
    return Check(name=name, verdict=NO_GO if told else GO, message=told or "yes")


def _heartbeats(row: FlowRow) -> Check:
    name = "heartbeats arrive"
    if row.path == "ALIVE":
        delay = "" if row.delay_seconds is None else f", {row.delay_seconds:.2f} s"
        return Check(name=name, verdict=GO, message=f"yes{delay}")
    if row.path is None:
        return Check(name=name, verdict=NO_GO, message="no heartbeat service tells of this flow")
    return Check(name=name, verdict=NO_GO, message=f"the path is {row.path}")
