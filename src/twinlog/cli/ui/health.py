"""How a flow is doing, in one word, and the head of the page: both from the one verdict. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from twinlog.cli.status.producers import State, producers_of
from twinlog.cli.status.rows import FlowRow
from twinlog.cli.verdict.issues import Issue, Level, Verdict, worst

CATCHING_UP_SECONDS = 30.0
"""The lag of a busy flow goes up and down all the time: a younger one is no backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    level: Level
    word: str
    """`Copying`, `Falling behind`: for people."""
    issues: Sequence[Issue] = field(default_factory=tuple)
    """Of the flow itself, the worst first."""
    notes: Sequence[Issue] = field(default_factory=tuple)
    """What services say of it and nobody has to act on, besides what is in force."""


def flow_health(row: FlowRow, verdict: Verdict) -> Health:
    pressing = [each for each in verdict.pressing if each.concerns(row.flow)]
    return Health(
        level=worst(pressing),
        word=_word(row, pressing),
        issues=[each for each in pressing if "->" in each.about],
        notes=[
            each
            for each in verdict.issues
            if each.concerns(row.flow) and each.level == Level.NOTE and not each.in_force
        ],
    )


def head(verdict: Verdict, flows: int) -> dict[str, Any]:
    """For the head of the page and the tab: level, title, and what is pressing, the worst first."""
    title = verdict.counts or (f"All {flows} flows are healthy" if flows > 1 else "Healthy")
    pressing = verdict.pressing
    return {"level": worst(pressing), "title": title, "issues": [asdict(each) for each in pressing]}


def _word(row: FlowRow, pressing: Sequence[Issue]) -> str:
    level = worst(pressing)
    if row.is_paused:
        return "Paused"
    if level == Level.BAD:
        return "In trouble"
    if any(each.reason == "FALLING_BEHIND" for each in pressing):
        return "Falling behind"
    if level == Level.WARN:
        return "Needs attention"
    if row.stands_by("source"):
        return "On standby"
    if row.lag_records and (row.lag_seconds or 0.0) > CATCHING_UP_SECONDS:
        return "Catching up"
    return "Idle" if producers_of(row).state == State.SILENT else "Copying"
