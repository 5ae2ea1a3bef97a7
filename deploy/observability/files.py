"""What is generated: file below deploy/ -> its text."""

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

from deploy.observability.dashboards import BOARDS
from deploy.observability.grafana import render

RUNBOOK = Path(__file__).parents[2] / "docs" / "alerts.md"


def files() -> dict[str, str]:
    return {
        "../src/twinlog/cli/ui/page/alerts.html": page(RUNBOOK.read_text()),
        **{f"grafana/boards/{board.uid}.json": render(board) for board in BOARDS},
    }


def page(runbook: str) -> str:
    """Of the live page, with an anchor for each alert. Of a link to another page, its words stay.

    >>> page("# A\\n\\n## TwinlogDown\\n\\n- **Do.** Ask\\n  `a > b`.\\n").splitlines()[-5]
    '<h2 id="twinlogdown">TwinlogDown</h2>'
    >>> _inline("**Do.** Ask `a`, [c](#d), [e](f.md).")
    '<b>Do.</b> Ask <code>a</code>, <a href="#d">c</a>, e.'
    """
    title, *sections = re.split(r"^#+ ", runbook, flags=re.MULTILINE)[1:]
    lines = [f"<h1>{title.splitlines()[0]}</h1>"]
    for section in sections:
        name, _, text = section.partition("\n")
        items = re.sub(r"\n +", " ", escape(text.strip(), quote=False)).splitlines()
        lines += [f'<h2 id="{name.lower()}">{name}</h2>', "<ul>"]
        lines += [f"<li>{_inline(item.removeprefix('- '))}</li>" for item in items] + ["</ul>"]
    return "\n".join([_HEAD, *lines, "</main>"]) + "\n"


def _inline(text: str) -> str:
    text = re.sub(r"\[([^]]+)\]\((#\w+)\)", r'<a href="\2">\1</a>', text)
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text))


_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Twinlog: alerts</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="style.css">
<main class="runbook">"""


# Which series and labels a PromQL expression asks for: enough to hold queries against the catalogue.

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
