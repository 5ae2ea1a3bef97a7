"""The report about each setting of an imported file."""

from dataclasses import dataclass
from enum import StrEnum


class Fate(StrEnum):
    MAPPED = "mapped"
    """It is in the properties file, with the same meaning."""
    IGNORED = "ignored"
    """It is left out, without any loss."""
    TO_DO = "to do"
    """The file needs an action before it is used: a secret to mount, a topic to name."""
    IMPOSSIBLE = "impossible"
    """Twinlog does not have it. If records would differ, the flow is switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value of an imported file, with its place."""

    value: str
    place: str
    """A path such as `spec.mirrors[0].sourceConnector.config.tasks.max`."""
    line: int = 0
    """1-based; 0 = no particular line."""

    def at(self, value: str) -> "Setting":
        return Setting(value=value, place=self.place, line=self.line)

    def __repr__(self) -> str:
        # The value may be a secret.
        return f"Setting({self.place}:{self.line})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the report. It never contains a value."""

    fate: Fate
    place: str
    line: int
    becomes: str
    """The key in the properties file; empty = none."""
    text: str


class Report:
    """Collects lines in order, each only once."""

    def __init__(self) -> None:
        self._lines: dict[Line, None] = {}

    @property
    def lines(self) -> tuple[Line, ...]:
        return tuple(self._lines)

    def mapped(self, setting: Setting, becomes: str, text: str = "") -> None:
        self._add(Fate.MAPPED, setting, becomes, text)

    def ignored(self, setting: Setting, text: str) -> None:
        self._add(Fate.IGNORED, setting, "", text)

    def to_do(self, setting: Setting, text: str, *, becomes: str = "") -> None:
        self._add(Fate.TO_DO, setting, becomes, text)

    def impossible(self, setting: Setting, text: str) -> None:
        self._add(Fate.IMPOSSIBLE, setting, "", text)

    def _add(self, fate: Fate, setting: Setting, becomes: str, text: str) -> None:
        found = Line(
            fate=fate, place=setting.place or "the file", line=setting.line, becomes=becomes, text=text
        )
        self._lines[found] = None
