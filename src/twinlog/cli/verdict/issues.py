"""One thing that somebody should know, and the verdict that all of them make. Pure."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from twinlog.cli.common.names import counted
from twinlog.cli.common.pasteable import next_command

# The command that helps with an issue. Pure.

_PLACE = re.compile(r"<[A-Z_>-]+>")
_SHOWS_THE_SAME = "twinlog status"
_RUN = "NO_SERVICE"


def remedy(reason: str, *, flow: str = "", file: str = "") -> str:
    """Empty where a name in it is not known, and where it would only show the status again.

    >>> remedy("KAFKA_UNAVAILABLE", file="mm2.properties")
    'twinlog preflight mm2.properties'
    >>> remedy("KAFKA_UNAVAILABLE")
    ''
    """
    if reason == _RUN:
        return f"twinlog run {shlex.quote(file)}" if file else ""
    told = next_command(reason, {"flow": flow} if flow else {})
    if file:
        told = told.replace("<FILE>", shlex.quote(file))
    return "" if _PLACE.search(told) or told == _SHOWS_THE_SAME else told


_REASONS_NAMED = 5


class Level(StrEnum):
    """From the best to the worst."""

    GOOD = "good"
    NOTE = "note"
    """As somebody ordered it, or as it is configured."""
    WARN = "warn"
    """It may end by itself, or somebody ordered it and should not forget it."""
    BAD = "bad"
    """Somebody has to act."""


SEVERITY = tuple(Level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    level: Level
    about: str
    """A service, a flow, a cluster, or `twinlog`."""
    reason: str
    """Stable."""
    message: str
    command: str = ""
    """What mends it or shows more of it, complete; empty where none is known."""
    stops: bool = True
    """Something makes no progress, or may make none. What is lost, limited or left does not stop anything."""
    waits: bool = False
    """It stops something that begins by itself: nobody has to act."""
    in_force: bool = False
    """It is one of the lines about what is in force."""
    flows: tuple[str, ...] = ()
    """Flows that it holds up, besides the one that it is about."""
    symptoms: int = 0
    """How many other issues it explains. They are not issues of their own."""
    details: tuple[str, ...] = ()
    """What the services said themselves, of it and of its symptoms."""

    def concerns(self, flow: str) -> bool:
        return self.about == flow or flow in self.flows


def bad(about: str, reason: str, message: str, command: str = "", **more: Any) -> Issue:
    """That somebody has to act on, if `more` does not say otherwise."""
    level: dict[str, Any] = {"level": Level.BAD}
    return Issue(about=about, reason=reason, message=message, command=command, **{**level, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    issues: Sequence[Issue]
    """The worst first, then by what they are about."""

    @property
    def level(self) -> Level:
        return worst(self.issues)

    @property
    def stopping(self) -> list[Issue]:
        """What keeps records from moving, or may do so."""
        return [each for each in self.issues if each.stops]

    @property
    def failing(self) -> list[Issue]:
        """What `twinlog status --check` fails for, and what makes a plan NO-GO: problems, and what stands
        still until somebody acts."""
        return [each for each in self.issues if each.level == Level.BAD or (each.stops and not each.waits)]

    @property
    def waiting(self) -> list[Issue]:
        """What only needs time."""
        return [each for each in self.issues if each.waits]

    @property
    def pressing(self) -> list[Issue]:
        """Problems and warnings, without notes: what `--check --strict` fails for."""
        return [each for each in self.issues if each.level in (Level.BAD, Level.WARN)]

    @property
    def counts(self) -> str:
        """`2 problems, 1 warning`; empty without either."""
        told = [(Level.BAD, "problem"), (Level.WARN, "warning")]
        return ", ".join(counted(count, word) for level, word in told if (count := len(self._of(level))))

    @property
    def line(self) -> str:
        """In one line: `2 problems, 1 warning: FOREIGN, GAPS; PAUSED`."""
        if not self.counts:
            held = _named(each for each in self.issues if each.in_force)
            return f"everything moves; in force: {held}" if held else "everything moves"
        named = [told for level in (Level.BAD, Level.WARN) if (told := _named(self._of(level)))]
        return f"{self.counts}: {'; '.join(named)}"

    def _of(self, level: Level) -> list[Issue]:
        return [each for each in self.issues if each.level == level]


def worst(issues: Iterable[Issue]) -> Level:
    return max((each.level for each in issues), key=SEVERITY.index, default=Level.GOOD)


def worst_first(issues: Iterable[Issue]) -> list[Issue]:
    """In one order, whichever service answered first."""
    return sorted(issues, key=lambda each: (-SEVERITY.index(each.level), each.about, each.reason))


def _named(issues: Iterable[Issue]) -> str:
    reasons = list(dict.fromkeys(each.reason for each in issues))
    return ", ".join(reasons[:_REASONS_NAMED]) + (", …" if len(reasons) > _REASONS_NAMED else "")
