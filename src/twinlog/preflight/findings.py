"""Findings of preflight."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works, but not as expected."""
    ERROR = "error"
    """It does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    level: Level
    about: str
    """A cluster's alias, a flow, or a flow and a topic."""
    check: str
    """The subject of the check, in a word or two."""
    message: str
    remedy: str = ""


def fine(about: str, check: str, message: str) -> Finding:
    return Finding(level=Level.OK, about=about, check=check, message=message)


def warning(about: str, check: str, message: str, remedy: str = "") -> Finding:
    return Finding(level=Level.WARNING, about=about, check=check, message=message, remedy=remedy)


def error(about: str, check: str, message: str, remedy: str = "") -> Finding:
    return Finding(level=Level.ERROR, about=about, check=check, message=message, remedy=remedy)
