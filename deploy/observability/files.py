"""What is generated: file below deploy/ -> its text."""

import re
from html import escape
from pathlib import Path

from deploy.observability.grafana import BOARDS, render

_ALERTS = Path(__file__).parents[1] / "prometheus" / "alerts.yaml"
_RUNBOOK = Path(__file__).parents[2] / "docs" / "alerts.md"
RUNBOOK = "http://127.0.0.1:8890/alerts.html"
"""Where docs/alerts.md is read, by default: on the live page. `#` and an alert's small name follow."""


def rules(*, runbook: str = RUNBOOK) -> str:
    """The file of rules that Prometheus reads; `runbook` is the address of docs/alerts.md."""
    return _ALERTS.read_text().replace(f" {RUNBOOK}#", f" {runbook}#")


def files() -> dict[str, str]:
    return {
        "../src/twinlog/cli/ui/page/alerts.html": page(_RUNBOOK.read_text()),
        **{f"grafana/boards/{board.uid}.json": render(board) for board in BOARDS},
    }


def page(runbook: str) -> str:
    """Of the live page, with an anchor for each alert. A link to another page, which is not served, names it.

    >>> page("# A\\n\\n## TwinlogDown\\n\\n- **Do.** Ask\\n  `a > b`.\\n").splitlines()[-5]
    '<h2 id="twinlogdown">TwinlogDown</h2>'
    >>> _inline("**Do.** Ask `a`, *b*, [c](#d), [e](f.md#g).")
    '<b>Do.</b> Ask <code>a</code>, <i>b</i>, <a href="#d">c</a>, e (docs/f.md#g).'
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
    text = re.sub(r"\[([^]]+)\]\(([^)]+)\)", r"\1 (docs/\2)", text)
    text = re.sub(r"(?<!\*)\*([\w ]+)\*(?!\*)", r"<i>\1</i>", re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text))
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Twinlog: alerts</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="style.css">
<main class="runbook">"""
