"""Boards as Grafana's JSON, from a few words for each panel in `dashboards.yaml`."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_ALL: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
"""What all boards have, the options of each kind of panel, and the columns of tables."""
_WORD = re.compile(r"<([a-z ]+)>")
WIDTH = 24
"""Columns of Grafana's grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    meaning: str
    """What a look at it tells."""
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    """`timeseries`, `stat` or `table`."""
    unit: str = "short"
    width: int = 8
    height: int = 7
    base: str = "green"
    """The colour below all limits."""
    limits: Sequence[tuple[str, float]] = ()
    """(colour, from this value on)."""
    least: float | None = 0.0
    """Where the axis of a time series begins; None: where its values do."""
    words: Sequence[tuple[float, str, str]] = ()
    """(value, text, colour): what a number means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    uid: str
    title: str
    meaning: str
    panels: tuple[Panel, ...]


def render(board: Board) -> str:
    """The JSON that Grafana reads."""
    return json.dumps(_dashboard(board), indent=2, sort_keys=True) + "\n"


def _dashboard(board: Board) -> dict[str, Any]:
    panels, x, y, row = [], 0, 0, 0
    for number, panel in enumerate(board.panels, start=1):
        if x + panel.width > WIDTH:
            x, y, row = 0, y + row, 0
        panels.append(_panel_json(panel, number, x=x, y=y))
        x, row = x + panel.width, max(row, panel.height)
    own = {"description": board.meaning, "panels": panels, "title": board.title, "uid": board.uid}
    return {**_ALL["dashboard"], **own}


def _panel_json(panel: Panel, number: int, *, x: int, y: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": panel.base, "value": None}]
    steps += [{"color": colour, "value": float(value)} for colour, value in panel.limits]
    defaults: dict[str, Any] = {
        "thresholds": {"mode": "absolute", "steps": steps},
        "unit": panel.unit,
        "mappings": [
            {
                "type": "value",
                "options": {
                    f"{value:g}": {"color": colour, "index": index, "text": text}
                    for index, (value, text, colour) in enumerate(panel.words)
                },
            }
        ]
        if panel.words
        else [],
    }
    if panel.kind == "timeseries" and panel.least is not None:
        defaults["min"] = panel.least
    return {
        "datasource": DATA_SOURCE,
        "description": panel.meaning,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y},
        "id": number,
        "options": _ALL["options"][panel.kind],
        "targets": [
            {
                "datasource": DATA_SOURCE,
                "expr": query.expression,
                "format": "table" if panel.kind == "table" else "time_series",
                "instant": panel.kind != "timeseries",
                "legendFormat": query.legend or "__auto",
                "range": panel.kind == "timeseries",
                "refId": chr(ord("A") + index),
            }
            for index, query in enumerate(panel.queries)
        ],
        "title": panel.title,
        "transformations": [_columns(panel)] if panel.kind == "table" else [],
        "type": panel.kind,
    }


def _columns(panel: Panel) -> dict[str, Any]:
    """How a person reads the labels."""
    columns, value = _ALL["columns"], "for" if panel.unit == "s" else "count"
    return {
        "id": "organize",
        "options": {**columns, "renameByName": {**columns["renameByName"], "Value": value}},
    }


def _boards() -> Iterator[Board]:
    document = yaml.safe_load(Path(__file__).with_name("dashboards.yaml").read_text())
    for board in document["boards"]:
        panels = tuple(_panel(panel, document["words"]) for panel in board["panels"])
        yield Board(**{**board, "panels": panels})


def _panel(panel: Mapping[str, Any], words: Mapping[str, str]) -> Panel:
    queries = tuple(
        Query(**{name: _told(text, words) for name, text in query.items()}) for query in panel["queries"]
    )
    return Panel(**{**panel, "queries": queries})


def _told(text: str, words: Mapping[str, str]) -> str:
    return _WORD.sub(lambda found: _told(words[found[1]], words), text)


BOARDS = tuple(_boards())
