"""Boards and alerts ask for nothing that the services do not export, and Grafana can read the boards."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from deploy.observability.grafana import BOARDS, WIDTH, Board, render
from jsonschema import Draft202012Validator

from twinlog.telemetry.metrics import METRICS
from twinlog.telemetry.metrics.spec import Kind
from twinlog.telemetry.metrics_page import prometheus_name
from unit.deploy.alerts import ALERTS
from unit.deploy.wheels import PROJECT

GRAFANA = Draft202012Validator(json.loads(Path(__file__).with_name("grafana_schema.json").read_text()))
SELECTED = 'twinlog_source_cluster=~"$source", twinlog_target_cluster=~"$target"'
SCRAPED = {"instance", "job", "le"}
"""Labels that Prometheus gives, and those of buckets."""


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


def catalogue() -> dict[str, set[str]]:
    """Every series that services export -> its labels."""
    found: dict[str, set[str]] = {}
    for spec in METRICS:
        names = [prometheus_name(spec)]
        if spec.kind is Kind.HISTOGRAM:
            base = names[0].partition("_bucket")[0]
            names = [f"{base}_{suffix}" for suffix in ("bucket", "sum", "count")]
        for name in names:
            found[name] = {attribute.replace(".", "_") for attribute in spec.attributes} | SCRAPED
    return found


def queries() -> Iterator[tuple[str, str]]:
    for alert in ALERTS:
        yield alert.name, alert.expression
    for board in BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                yield f"{board.uid}: {panel.title}", query.expression


each_board = pytest.mark.parametrize("board", BOARDS, ids=[board.uid for board in BOARDS])


def test_a_query_asks_for_metrics_of_the_catalogue_by_labels_that_they_have() -> None:
    known = catalogue()
    for where, expression in queries():
        asked = series(expression)
        assert asked, where
        assert set(asked) <= set(known), where
        for name, labels in asked.items():
            assert labels <= known[name], (where, name)
        assert grouped(expression) <= set().union(*(known[name] for name in asked)), where


def test_a_query_is_not_of_a_name_that_other_exporters_use_for_something_else() -> None:
    """Connect's names end in _metrics_: boards made for it show nothing here."""
    for where, expression in queries():
        assert not re.search(r"kafka_connect_|_metrics_", expression), where


def test_a_legend_names_labels_that_its_query_keeps() -> None:
    for board in BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                wanted = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
                kept = grouped(query.expression) - {"le"}
                if not re.search(r"\b(sum|max|min|count|group|avg)\b", query.expression):
                    continue
                assert wanted <= kept, (board.uid, panel.title)


@each_board
def test_a_board_keeps_to_grafanas_own_schema(board: Board) -> None:
    assert [*GRAFANA.iter_errors(json.loads(render(board)))] == []


def test_what_grafana_does_not_know_is_found() -> None:
    board = json.loads(render(BOARDS[0]))
    board["panels"][0]["options"]["colorMod"] = "background"
    board["panels"][1]["type"] = "singlestat"
    board["templating"]["list"][1]["refresh"] = 7
    assert len([*GRAFANA.iter_errors(board)]) == 3


@each_board
def test_a_board_is_what_grafana_reads(board: Board) -> None:
    found = json.loads(render(board))
    assert found["uid"] == board.uid
    assert len(board.uid) <= 40
    assert found["schemaVersion"] >= 36
    assert [variable["name"] for variable in found["templating"]["list"]] == [
        "datasource",
        "source",
        "target",
    ]
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids)) == len(board.panels)
    for panel in found["panels"]:
        assert panel["type"] in {"timeseries", "stat", "table"}
        assert panel["description"].endswith(".")
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references)) > 0
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= WIDTH


def colour(board: str, title: str, value: float) -> str:
    """Of a figure, as Grafana finds it: by its words, else by the last limit that it reaches."""
    (found,) = [
        panel
        for each in BOARDS
        if each.uid == board
        for panel in json.loads(render(each))["panels"]
        if panel["title"] == title
    ]
    defaults = found["fieldConfig"]["defaults"]
    for mapping in defaults["mappings"]:
        if f"{value:g}" in mapping["options"]:
            return str(mapping["options"][f"{value:g}"]["color"])
    reached = [
        step for step in defaults["thresholds"]["steps"] if step["value"] is None or value >= step["value"]
    ]
    return str(reached[-1]["color"])


@pytest.mark.parametrize(
    ("board", "title", "colours"),
    [
        ("twinlog-1-glance", "Up", {0: "red", 3: "red", 4: "green"}),
        ("twinlog-1-glance", "Ready", {0: "red", 1: "green"}),
        ("twinlog-1-glance", "Late", {0: "green", 60: "orange", 300: "red"}),
        ("twinlog-1-glance", "Lost", {0: "green", 1: "red"}),
        ("twinlog-1-glance", "Path", {0: "orange", 1: "green", 2: "red"}),
        ("twinlog-6-migration", "Drained in", {-5: "red", 0: "green", 300: "green"}),
        ("twinlog-6-migration", "Nothing lost", {0: "red", 1: "green"}),
    ],
)
def test_the_colour_of_a_figure_says_whether_it_is_well(
    board: str, title: str, colours: dict[int, str]
) -> None:
    assert {value: colour(board, title, value) for value in colours} == colours


def test_columns_of_tables_have_names_for_people() -> None:
    for board in BOARDS:
        for panel in (each for each in board.panels if each.kind == "table"):
            (found,) = [each for each in json.loads(render(board))["panels"] if each["title"] == panel.title]
            (columns,) = found["transformations"]
            names = columns["options"]["renameByName"]
            hidden = columns["options"]["excludeByName"]
            labels = {label for query in panel.queries for label in kept_labels(query.expression)}
            assert labels | {"Value"} <= names.keys() | hidden.keys(), (board.uid, panel.title)


def kept_labels(expression: str) -> set[str]:
    """Of an answer: those that it is grouped by, else all of its metrics."""
    if grouped(expression):
        return grouped(expression)
    return set().union(*(catalogue()[name] for name in series(expression))) - {"le"}


@each_board
def test_panels_of_a_board_do_not_cover_each_other(board: Board) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(render(board))["panels"]:
        at = panel["gridPos"]
        cells = set(_cells(at["x"], at["y"], at["w"], at["h"]))
        assert not cells & taken, panel["title"]
        taken |= cells


def _cells(x: int, y: int, width: int, height: int) -> Iterable[tuple[int, int]]:
    return ((column, row) for column in range(x, x + width) for row in range(y, y + height))


def test_every_query_of_a_flow_follows_the_flow_that_was_chosen() -> None:
    flow_labels = {"twinlog_source_cluster", "twinlog_target_cluster"}
    known = catalogue()
    for board in BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                for name in series(query.expression):
                    if flow_labels <= known[name]:
                        assert SELECTED in query.expression, (board.uid, panel.title)


def test_boards_come_in_the_order_of_a_look_at_night() -> None:
    assert [board.uid.split("-")[1] for board in BOARDS] == [str(number) for number in range(1, 8)]


def test_what_compose_mounts_is_there_and_its_ports_are_on_loopback() -> None:
    compose = PROJECT / "deploy/compose"
    text = (compose / "compose.observability.yaml").read_text()
    mounted = re.findall(r'"(\.\./[a-z/]+):', text)
    assert mounted
    for path in mounted:
        assert (compose / path).resolve().is_dir(), path
    ports = re.findall(r'ports: \["([^"]+)"\]', text)
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    home = re.search(r"HOME_DASHBOARD_PATH: /var/lib/grafana/boards/(\S+)", text)
    assert home is not None
    assert (PROJECT / "deploy/grafana/boards" / home[1]).is_file()
