"""Boards as Grafana's JSON, from a few words for each panel."""

import json
from dataclasses import dataclass
from typing import Any

DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
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
    limits: tuple[tuple[str, float], ...] = ()
    """(colour, from this value on)."""
    least: float | None = 0.0
    """Where the axis of a time series begins; None: where its values do."""
    words: tuple[tuple[float, str, str], ...] = ()
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
    return {
        "annotations": {"list": []},
        "description": board.meaning,
        "editable": False,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "links": [
            {
                "asDropdown": False,
                "icon": "dashboard",
                "includeVars": True,
                "keepTime": True,
                "tags": ["twinlog"],
                "targetBlank": False,
                "title": "Twinlog",
                "tooltip": "",
                "type": "dashboards",
                "url": "",
            }
        ],
        "panels": panels,
        "refresh": "10s",
        "schemaVersion": 39,
        "tags": ["twinlog"],
        "templating": {
            "list": [
                {
                    "label": "Data source",
                    "name": "datasource",
                    "query": "prometheus",
                    "type": "datasource",
                },
                _variable("source", "twinlog_source_cluster"),
                _variable("target", "twinlog_target_cluster"),
            ]
        },
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": board.title,
        "uid": board.uid,
        "version": 1,
    }


def _variable(name: str, label: str) -> dict[str, Any]:
    query = f"label_values(twinlog_flow_owner, {label})"
    return {
        "allValue": ".*",
        "current": {"selected": True, "text": "All", "value": "$__all"},
        "datasource": DATA_SOURCE,
        "includeAll": True,
        "label": name.capitalize(),
        "multi": True,
        "name": name,
        "query": {"qryType": 1, "query": query, "refId": "variable"},
        "refresh": 2,
        "sort": 1,
        "type": "query",
    }


def _panel_json(panel: Panel, number: int, *, x: int, y: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": panel.base, "value": None}]
    steps += [{"color": colour, "value": value} for colour, value in panel.limits]
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
        "options": _options(panel),
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


_NO_COLUMNS = (
    "Time",
    "__name__",
    "instance",
    "job",
    "otel_scope_name",
    "otel_scope_version",
    "otel_scope_schema_url",
)
_COLUMNS = {
    "twinlog_source_cluster": "source",
    "twinlog_target_cluster": "target",
    "messaging_destination_name": "topic",
    "messaging_destination_partition_id": "partition",
    "messaging_consumer_group_name": "group",
    "twinlog_end": "end",
    "twinlog_state": "state",
    "twinlog_verdict": "verdict",
    "error_type": "reason",
}
"""How a person reads a label."""


def _columns(panel: Panel) -> dict[str, Any]:
    return {
        "id": "organize",
        "options": {
            "excludeByName": dict.fromkeys(_NO_COLUMNS, True),
            "renameByName": {**_COLUMNS, "Value": "for" if panel.unit == "s" else "count"},
        },
    }


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case "stat":
            return {
                "colorMode": "background",
                "graphMode": "none",
                "justifyMode": "auto",
                "orientation": "auto",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "textMode": "auto",
            }
        case "table":
            return {"cellHeight": "sm", "showHeader": True}
        case _:
            return {
                "legend": {
                    "calcs": ["lastNotNull"],
                    "displayMode": "table",
                    "placement": "bottom",
                    "showLegend": True,
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
