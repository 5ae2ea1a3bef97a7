"""How a flow is doing, and everything together: one word, how bad it is, and what needs somebody. Pure."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from twinlog.cli.status.check import Problem
from twinlog.cli.status.producers import State, producers_of
from twinlog.cli.status.rows import DIFFERS, FOREIGN, GAPS, MOVE, FlowRow, InForce
from twinlog.cli.ui.drain import LOSING, Drain

BEHIND_SECONDS = 30.0
"""A lag that grows is trouble when its oldest record is older than this: the lag of a busy flow goes up and
down all the time."""


class Level(StrEnum):
    GOOD = "good"
    WARN = "warn"
    """Somebody ordered it, or it may end by itself."""
    BAD = "bad"


_SEVERITY = (Level.GOOD, Level.WARN, Level.BAD)
_MAY_END = frozenset({"PAUSED", "WAITING", "BACKOFF", "TOPICS_WAITING", "NOT_READY", "THROTTLED", "QUOTA"})
"""Reasons that are warnings; all others are problems."""
_LEFT = {GAPS: Level.BAD, DIFFERS: Level.BAD, FOREIGN: Level.BAD, MOVE: Level.WARN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    level: Level
    about: str
    """A flow, a cluster or a service."""
    reason: str
    message: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    level: Level
    word: str
    """`Copying`, `Falling behind`: for people."""
    issues: Sequence[Issue] = field(default_factory=tuple)
    """The worst first."""


def flow_health(row: FlowRow, problems: Iterable[Problem], drain: Drain) -> Health:
    """`problems`: all of `twinlog status --check`."""
    issues = [_issue(each) for each in problems if each.about == row.flow]
    issues += [_left(each) for each in row.in_force if each.kind in _LEFT]
    falls_behind = drain.state == LOSING and (row.lag_seconds or 0.0) > BEHIND_SECONDS
    if falls_behind and drain.records_per_second is not None:
        issues.append(
            Issue(
                level=Level.WARN,
                about=row.flow,
                reason="FALLING_BEHIND",
                message=f"the lag grows by {-drain.records_per_second:,.0f} records each second",
                command=f"twinlog partitions {shlex.quote(row.flow)}",
            )
        )
    issues.sort(key=lambda each: _SEVERITY.index(each.level), reverse=True)
    level = issues[0].level if issues else Level.GOOD
    return Health(level=level, word=_word(row, level, falls_behind=falls_behind), issues=issues)


def overall(flows: Mapping[str, Health], problems: Iterable[Problem]) -> dict[str, Any]:
    """One verdict for the head of the page: level, title, and all issues, the worst first."""
    issues = [_issue(each) for each in problems if each.about not in flows]
    issues += [issue for name in sorted(flows) for issue in flows[name].issues]
    issues.sort(key=lambda each: _SEVERITY.index(each.level), reverse=True)
    bad = sum(each.level == Level.BAD for each in issues)
    if bad:
        title = _counted(bad, "problem")
    elif issues:
        title = _counted(len(issues), "warning")
    else:
        title = f"All {len(flows)} flows are healthy" if len(flows) > 1 else "Healthy"
    level = issues[0].level if issues else Level.GOOD
    return {"level": level, "title": title, "issues": [asdict(each) for each in issues]}


def _word(row: FlowRow, level: Level, *, falls_behind: bool) -> str:
    if row.is_paused:
        return "Paused"
    if level == Level.BAD:
        return "In trouble"
    if falls_behind:
        return "Falling behind"
    if level == Level.WARN:
        return "Needs attention"
    if row.stands_by("source"):
        return "On standby"
    if row.lag_records and (row.lag_seconds or 0.0) > BEHIND_SECONDS:
        return "Catching up"
    return "Idle" if producers_of(row).state == State.SILENT else "Copying"


def _issue(problem: Problem) -> Issue:
    level = Level.WARN if problem.reason in _MAY_END else Level.BAD
    return Issue(
        level=level,
        about=problem.about,
        reason=problem.reason,
        message=problem.message,
        command=problem.command,
    )


def _left(each: InForce) -> Issue:
    return Issue(
        level=_LEFT[each.kind],
        about=each.about,
        reason=each.kind,
        message=each.message,
        command=each.command,
    )


def _counted(count: int, word: str) -> str:
    return f"1 {word}" if count == 1 else f"{count} {word}s"
