"""The verdict on a flow, and the one on everything."""

import pytest

from twinlog.cli.status.check import Problem
from twinlog.cli.status.rows import DIFFERS, FOREIGN, GAPS, MOVE, STANDS_BY, FlowRow, InForce, ServiceRow
from twinlog.cli.ui.drain import Drain
from twinlog.cli.ui.health import BEHIND_SECONDS, Health, Level, flow_health, overall
from twinlog.cli.ui.rows import roles

DRAINED = Drain(state="DRAINED")
LOSING = Drain(state="LOSING", records_per_second=-40.0)


def flow(**what: object) -> FlowRow:
    row = FlowRow(flow="A->B", records=9, lag_records=0, lag_seconds=0.0, source_ends_age_seconds=1.0)
    for name, value in what.items():
        setattr(row, name, value)
    return row


def problem(reason: str, about: str = "A->B") -> Problem:
    return Problem(about=about, reason=reason, message=f"it is {reason}", command="twinlog status")


@pytest.mark.parametrize(
    ("row", "drain", "word"),
    [
        (flow(source_written_age_seconds=1.0), DRAINED, "Copying"),
        (flow(), DRAINED, "Idle"),
        (flow(source_written_age_seconds=1.0, lag_records=9, lag_seconds=60.0), DRAINED, "Catching up"),
        (flow(source_written_age_seconds=1.0, lag_records=9, lag_seconds=1.0), LOSING, "Copying"),
    ],
)
def test_a_flow_without_problems_is_good_and_has_a_word(row: FlowRow, drain: Drain, word: str) -> None:
    assert flow_health(row, [problem("FAULTED", about="B->A")], drain) == Health(
        level=Level.GOOD, word=word, issues=[]
    )


def test_a_flow_of_another_process_is_on_standby() -> None:
    row = flow()
    row.add_note("source", STANDS_BY, "another process copies it")
    assert flow_health(row, [], DRAINED).word == "On standby"
    service = ServiceRow(name="source", endpoint="h:1", health="SERVING")
    assert roles(service, {"A->B": row, "C->D": flow()}) == {"A->B": "standby", "C->D": "owner"}
    assert roles(ServiceRow(name="source", endpoint="h:1"), {"A->B": row}) == {}


def test_a_lag_that_grows_is_trouble_only_once_it_is_old() -> None:
    row = flow(lag_records=9, lag_seconds=BEHIND_SECONDS + 1)
    health = flow_health(row, [], LOSING)
    assert (health.level, health.word) == (Level.WARN, "Falling behind")
    assert [each.reason for each in health.issues] == ["FALLING_BEHIND"]


def test_a_pause_is_a_warning_and_said_as_such() -> None:
    row = flow(in_force=[InForce(kind="PAUSE", about="A->B", message="paused")])
    health = flow_health(row, [problem("PAUSED")], DRAINED)
    assert (health.level, health.word) == (Level.WARN, "Paused")


@pytest.mark.parametrize(
    ("kind", "level"), [(GAPS, Level.BAD), (DIFFERS, Level.BAD), (FOREIGN, Level.BAD), (MOVE, Level.WARN)]
)
def test_what_is_left_in_force_and_needs_somebody_is_an_issue(kind: str, level: Level) -> None:
    row = flow(in_force=[InForce(kind=kind, about="A->B", message="so", command="twinlog gaps")])
    health = flow_health(row, [], DRAINED)
    assert [(each.level, each.reason, each.command) for each in health.issues] == [
        (level, kind, "twinlog gaps")
    ]


def test_the_whole_is_as_bad_as_its_worst_part_and_problems_come_first() -> None:
    good = flow_health(flow(), [], DRAINED)
    bad = flow_health(flow(), [problem("BACKOFF"), problem("FAULTED")], DRAINED)
    away = problem("PEER_UNAVAILABLE", about="checkpoint")
    assert overall({"A->B": good}, [])["title"] == "Healthy"
    assert overall({"A->B": good, "B->A": good}, [])["title"] == "All 2 flows are healthy"
    told = overall({"A->B": bad}, [away])
    assert (told["level"], told["title"]) == (Level.BAD, "2 problems")
    assert [each["reason"] for each in told["issues"]] == ["PEER_UNAVAILABLE", "FAULTED", "BACKOFF"]
    waits = flow_health(flow(), [problem("WAITING")], DRAINED)
    assert overall({"A->B": waits}, [])["title"] == "1 warning"
