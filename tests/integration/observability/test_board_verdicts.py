"""The board of a migration says GO only for what is known: promtool asks it on series made up here."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deploy.observability.grafana import BOARDS, Panel

from integration.observability.prometheus_tools import tool

MIGRATION = next(board for board in BOARDS if board.uid == "twinlog-6-migration")
GO = MIGRATION.panels[0].words
FLOW = 'twinlog_source_cluster="A", twinlog_target_cluster="B"'
ORDERS = f'{FLOW}, messaging_destination_name="A.orders"'
BEATS = f'{FLOW}, messaging_destination_name="A.heartbeats"'
END = f"twinlog_replication_source_end{{{ORDERS}}}"
BEHIND = f'twinlog_replication_behind{{{FLOW}, twinlog_state="RUNNING", error_type=""}}'
LAG, LAG_OF_BEATS = (
    f'twinlog_replication_lag{{{of}, messaging_destination_partition_id="0"}}' for of in (ORDERS, BEATS)
)
LOST = f'twinlog_replication_lost_total{{{ORDERS}, error_type="RETENTION"}}'
DIFFERENT = f'twinlog_verified_differences{{{ORDERS}, twinlog_kind="MISSING"}}'
PARTITIONS = f'twinlog_replication_partitions{{{FLOW}, twinlog_state="RUNNING"}}'
GROUPS = f"twinlog_checkpoint_groups{{{FLOW}}}"
FLOOR, ACTIVE = (
    f'twinlog_checkpoint_partitions{{{FLOW}, twinlog_verdict="{verdict}"}}'
    for verdict in ("FLOOR", "ACTIVE_ON_TARGET")
)
SOURCE = 'twinlog_cluster_reachable{twinlog_cluster="A"}'

QUIET: Mapping[str, str] = {
    PARTITIONS: "2x60",
    END: "100x60",
    LAG: "0x60",
    LAG_OF_BEATS: "1x60",
    DIFFERENT: "0x60",
    GROUPS: "3x60",
    FLOOR: "0x60",
    ACTIVE: "0x60",
    SOURCE: "1x60",
    'twinlog_cluster_reachable{twinlog_cluster="B"}': "1x60",
}
"""Nobody writes, everything is copied; heartbeats are on their way, as always."""
OF_SOURCE = (PARTITIONS, END, LAG, LAG_OF_BEATS, DIFFERENT)
ALL_GO: Mapping[str, float | None] = {
    "Producers silent": 1,
    "Nothing left to copy": 1,
    "Both ends equal": 1,
    "Nothing lost": 1,
    "Groups translated": 1,
    "Resumed on the target": 0,
    "Drained in": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is otherwise than in QUIET (None removes a series), and what the board says otherwise (None:
    nothing)."""

    series: Mapping[str, str | None] = field(default_factory=dict)
    says: Mapping[str, float | None] = field(default_factory=dict)


SCENARIOS: Mapping[str, Scenario] = {
    "nobody writes and everything is copied": Scenario(),
    "producers write, and the copy keeps up": Scenario(
        series={END: "100+60x60"}, says={"Producers silent": 0}
    ),
    "a backlog of 600 drains by 10 a second": Scenario(
        series={END: "9000x60", LAG: "9000-150x60", BEHIND: "1x60"},
        says={"Nothing left to copy": 0, "Drained in": 300},
    ),
    "the copy falls behind by 10 a second": Scenario(
        series={END: "0+150x60", LAG: "0+150x60", BEHIND: "1x60"},
        says={"Producers silent": 0, "Nothing left to copy": 0, "Drained in": -600},
    ),
    "the source service is away": Scenario(
        series={**dict.fromkeys(OF_SOURCE), SOURCE: None},
        says={
            "Producers silent": None,
            "Nothing left to copy": None,
            "Both ends equal": None,
            "Nothing lost": None,
            "Drained in": None,
        },
    ),
    "the source does not answer, so that its last known ends stand": Scenario(
        series={SOURCE: "0x60", LAG: None, LAG_OF_BEATS: None},
        says={"Producers silent": 0, "Nothing left to copy": 0, "Drained in": None},
    ),
    "the checkpoint service is away": Scenario(
        series=dict.fromkeys((GROUPS, FLOOR, ACTIVE)),
        says={"Groups translated": None, "Resumed on the target": None},
    ),
    "no proof stands": Scenario(series={DIFFERENT: None}, says={"Both ends equal": None}),
    "the proof finds a difference": Scenario(series={DIFFERENT: "2x60"}, says={"Both ends equal": 0}),
    "records were lost": Scenario(series={LOST: "7x60"}, says={"Nothing lost": 0}),
    "a group would repeat records": Scenario(series={FLOOR: "1x60"}, says={"Groups translated": 0}),
    "groups have members on the target": Scenario(series={ACTIVE: "4x60"}, says={"Resumed on the target": 4}),
}


def stat(title: str) -> str:
    """The query of a panel of the board, with every flow chosen."""
    (panel,) = [each for each in MIGRATION.panels if each.title == title]
    return panel.queries[0].expression.replace("$source", ".*").replace("$target", ".*")


def case(name: str, scenario: Scenario) -> dict[str, object]:
    series = {**QUIET, **scenario.series}
    return {
        "name": name,
        "interval": "15s",
        "input_series": [
            {"series": series_name, "values": values}
            for series_name, values in series.items()
            if values is not None
        ],
        "promql_expr_test": [
            {
                "expr": stat(title),
                "eval_time": "10m",
                "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
            }
            for title, value in {**ALL_GO, **scenario.says}.items()
        ],
    }


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_the_board_says_go_only_for_what_is_known(name: str, tmp_path: Path) -> None:
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps({"evaluation_interval": "15s", "tests": [case(name, SCENARIOS[name])]}))
    outcome = subprocess.run(
        [tool("promtool"), "test", "rules", cases], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_every_panel_that_says_go_or_no_go_is_asked_in_a_scenario_where_it_does_not_say_go() -> None:
    def verdict(panel: Panel) -> bool:
        return panel.words == GO

    said = {title for scenario in SCENARIOS.values() for title, value in scenario.says.items() if value == 0}
    assert {panel.title for panel in MIGRATION.panels if verdict(panel)} <= said
