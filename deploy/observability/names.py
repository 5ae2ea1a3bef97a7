"""Which series and labels a PromQL expression asks for: enough to hold queries against the catalogue."""

import re
from collections.abc import Iterable

_SERIES = re.compile(r"\b((?:twinlog|process|rpc)_[a-z0-9_]+)\b(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\b(?:by|on|without)\s*\(([^)]*)\)")
_LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)")


def series(expression: str) -> dict[str, set[str]]:
    """Series -> labels that are matched on it. Labels in `by (...)` are in `grouped`."""
    found: dict[str, set[str]] = {}
    for name, matchers in _SERIES.findall(_GROUPING.sub("", expression)):
        found.setdefault(name, set()).update(_LABEL.findall(matchers))
    return found


def grouped(expression: str) -> set[str]:
    """Labels that the expression groups or joins by."""
    return set(_names(_GROUPING.findall(expression)))


def _names(lists: Iterable[str]) -> Iterable[str]:
    for each in lists:
        yield from (name.strip() for name in each.split(",") if name.strip())
