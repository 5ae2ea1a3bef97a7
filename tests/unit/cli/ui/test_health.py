"""The word on a flow, and the head of the page."""

import pytest

from twinlog.cli.status.rows import STANDS_BY, FlowRow, InForce, Owner, ServiceRow, Status
from twinlog.cli.ui.feed import roles, shared_owners
from twinlog.cli.ui.upstream import Health, RecentChanges, flow_health, head
from twinlog.cli.verdict.issues import Issue, Level, Verdict
from twinlog.cli.verdict.verdict import standing_by

NOTHING = Verdict(issues=[])


def flow(**what: object) -> FlowRow:
    row = FlowRow(flow="A->B", records=9, lag_records=0, lag_seconds=0.0, source_ends_age_seconds=1.0)
    for name, value in what.items():
        setattr(row, name, value)
    return row


def issue(reason: str, about: str = "A->B", level: Level = Level.BAD, **more: object) -> Issue:
    return Issue(level=level, about=about, reason=reason, message=f"it is {reason}", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "word"),
    [
        (flow(source_written_age_seconds=1.0), "Copying"),
        (flow(), "Idle"),
        (flow(source_written_age_seconds=1.0, lag_records=9, lag_seconds=60.0), "Catching up"),
        (flow(source_written_age_seconds=1.0, lag_records=9, lag_seconds=1.0), "Copying"),
        (flow(records=None, lag_records=None), "Not known"),
    ],
)
def test_a_flow_without_problems_is_good_and_has_a_word(row: FlowRow, word: str) -> None:
    limit = issue("NO_TOPICS", level=Level.NOTE)
    other = Verdict(issues=[issue("FAULTED", about="B->A"), limit])
    level = Level.WARN if word == "Not known" else Level.GOOD
    assert flow_health(row, other) == Health(level=level, word=word, issues=[], notes=[limit])


def test_a_flow_of_another_process_is_on_standby() -> None:
    row = flow()
    row.add_note("source", STANDS_BY, "another process copies it")
    assert flow_health(row, NOTHING).word == "On standby"
    service = ServiceRow(name="source", endpoint="h:1", health="SERVING")
    assert roles(service, {"A->B": row, "C->D": flow()}) == {"A->B": "standby", "C->D": "owner"}
    assert roles(ServiceRow(name="source", endpoint="h:1"), {"A->B": row}) == {}


def test_a_flow_that_its_owner_tells_of_is_still_of_another_process() -> None:
    row = flow()
    row.owners = [
        Owner(
            flow="A->B",
            service="source",
            process="box:17401, process 7",
            why="EVEN_LOAD",
            moves_to="",
            processes=2,
        )
    ]
    for pid, role in ((7, "owner"), (8, "standby")):
        service = ServiceRow(name="source", endpoint="h:1", health="SERVING", host="box", pid=pid)
        assert roles(service, {"A->B": row}) == {"A->B": role}
        assert standing_by(Status(services=[service], flows={"A->B": row})) == ["A->B"] * (pid == 8)
    assert shared_owners(service, {"A->B": row}) == {"A->B": "box:17401, process 7 (EVEN_LOAD)"}


@pytest.mark.parametrize(
    ("row", "issues", "level", "word"),
    [
        (flow(), [issue("FALLING_BEHIND", level=Level.WARN)], Level.WARN, "Falling behind"),
        (flow(), [issue("FAULTED")], Level.BAD, "In trouble"),
        (flow(), [issue("BACKOFF", level=Level.WARN)], Level.WARN, "Needs attention"),
        (
            flow(in_force=[InForce(kind="PAUSE", about="A->B", message="paused")]),
            [issue("PAUSED", level=Level.WARN)],
            Level.WARN,
            "Paused",
        ),
    ],
)
def test_the_word_of_a_flow_is_that_of_its_worst_issue(
    row: FlowRow, issues: list[Issue], level: Level, word: str
) -> None:
    health = flow_health(row, Verdict(issues=issues))
    assert (health.level, health.word, health.issues) == (level, word, issues)


def test_a_flow_whose_cluster_is_away_is_in_trouble_and_does_not_repeat_why() -> None:
    away = issue("KAFKA_UNAVAILABLE", about="B", flows=("A->B",))
    assert flow_health(flow(), Verdict(issues=[away])) == Health(
        level=Level.BAD, word="In trouble", issues=[], notes=[]
    )


def test_the_head_counts_what_the_verdict_counts() -> None:
    assert head(NOTHING, 1)["title"] == "Healthy"
    assert head(NOTHING, 2)["title"] == "All 2 flows are healthy"
    noted = Verdict(issues=[issue("LIMIT", level=Level.NOTE)])
    assert (head(noted, 1)["level"], head(noted, 1)["issues"]) == (Level.GOOD, [])
    told = head(Verdict(issues=[issue("FAULTED"), issue("PAUSED", level=Level.WARN)]), 1)
    assert (told["level"], told["title"]) == (Level.BAD, "1 problem, 1 warning")
    assert [each["reason"] for each in told["issues"]] == ["FAULTED", "PAUSED"]


def test_what_began_who_ordered_it_and_what_is_over_is_kept_in_order() -> None:
    journal, paused, status = RecentChanges(), flow(), Status(services=[])
    paused.in_force = [InForce(kind="PAUSE", about="A->B clicks", message="paused", by="ann")]
    status.services = [ServiceRow(name="source", endpoint="h:1", pid=7)]
    journal.note(status, Verdict(issues=[issue("FAULTED")]), 1, answered=True)
    status.services = [ServiceRow(name="source", endpoint="h:1")]
    journal.note(status, NOTHING, 2, answered=False)
    status.services = [ServiceRow(name="source", endpoint="h:1", pid=8)]
    status.flows = {"A->B": paused}
    journal.note(status, NOTHING, 3, answered=True)
    status.flows = {"A->B": flow()}
    journal.note(status, NOTHING, 4, answered=True)

    assert [(each["at_ms"], each["about"], each["begins"], each["message"]) for each in journal.changes] == [
        (1, "A->B", True, "it is FAULTED"),
        (3, "A->B", False, "it is FAULTED"),
        (3, "A->B clicks", True, "paused by ann"),
        (3, "source", True, "started again: process 8 after 7"),
        (4, "A->B clicks", False, "paused by ann"),
    ]
