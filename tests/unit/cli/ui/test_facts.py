"""The three facts that begin the view of a migration: what is not known is said, never guessed."""

import pytest

from twinlog.cli.status.rows import FlowRow
from twinlog.cli.status.view import KNOWN_SECONDS, SILENT_SECONDS
from twinlog.cli.ui.upstream import BAD, GOOD, NEUTRAL, UNKNOWN, Fact, facts


def told(**what: object) -> list[tuple[str, str]]:
    return [(fact.answer, fact.detail) for fact in found(**what)]


def found(**what: object) -> list[Fact]:
    row = FlowRow(
        flow="A->B", records=9, source_ends_age_seconds=1.0, group_count=2, partitions={"RUNNING": 4}
    )
    for name, value in what.items():
        setattr(row, name, value)
    return facts(row)


def test_the_questions_name_the_clusters() -> None:
    assert [fact.question for fact in found()] == [
        "Do producers still write to A?",
        "Are both ends equal?",
        "Have groups resumed on B?",
    ]


@pytest.mark.parametrize(
    ("what", "answer", "detail"),
    [
        ({"source_written_age_seconds": 0.4}, "Yes", "last record just now"),
        ({"source_written_age_seconds": 12.0}, "Yes", "last record 12 s ago"),
        ({"source_written_age_seconds": SILENT_SECONDS + 1}, "No", "last record 61 s ago"),
        ({}, "No", "no record since the source service started"),
        ({"source_watched_age_seconds": 61.0}, "No", "no record since the source service started"),
        ({"source_watched_age_seconds": 0.0}, "Unknown", "A has not been watched for a minute yet"),
        (
            {"source_watched_age_seconds": 13.0, "source_written_age_seconds": 12.0},
            "Yes",
            "last record 12 s ago",
        ),
        (
            {"source_ends_age_seconds": KNOWN_SECONDS + 1, "source_written_age_seconds": 90.0},
            "Unknown",
            "A was last read 31 s ago",
        ),
        ({"source_ends_age_seconds": None}, "Unknown", "the source service does not say"),
    ],
)
def test_producers_write_are_silent_or_it_is_not_known(
    what: dict[str, object], answer: str, detail: str
) -> None:
    assert told(**what)[0] == (answer, detail)


@pytest.mark.parametrize(
    ("what", "answer", "detail"),
    [
        (
            {"proofs": {"EQUAL": 4}, "proven_age_seconds": 12},
            "Yes",
            "4 partitions compared, the oldest 12 s ago",
        ),
        (
            {"proofs": {"EQUAL": 3, "INCOMPLETE": 1}},
            "Not all compared",
            "3 of 4 partitions compared, all equal",
        ),
        ({"proofs": {"EQUAL": 3, "DIFFERENT": 1}}, "No", "1 partition differs from the source"),
        ({"proofs": {"INCOMPLETE": 4}}, "Not all compared", "being compared"),
        ({}, "Not checked", "turn it on:"),
        ({"records": None}, "Unknown", "the source service does not say"),
    ],
)
def test_both_ends_are_equal_only_where_they_were_compared(
    what: dict[str, object], answer: str, detail: str
) -> None:
    assert told(**what)[1] == (answer, detail)


def test_only_a_difference_is_bad_and_only_a_whole_proof_is_good() -> None:
    assert [fact.tone for fact in found(proofs={"DIFFERENT": 1})] == [NEUTRAL, BAD, NEUTRAL]
    assert [fact.tone for fact in found(proofs={"EQUAL": 4})] == [NEUTRAL, GOOD, NEUTRAL]
    assert {fact.tone for fact in facts(FlowRow(flow="A->B"))} == {UNKNOWN}


def test_groups_resumed_where_they_have_members_on_the_target() -> None:
    assert told(groups={"EXACT": 3})[2] == ("No", "no group has members on B")
    assert told(groups={"EXACT": 3, "ACTIVE_ON_TARGET": 1})[2] == (
        "Some",
        "groups with members on B read 1 of 4 partitions",
    )
    assert told(groups={"ACTIVE_ON_TARGET": 4})[2][0] == "Yes"
    assert told(groups={"EXACT": 3, "TARGET_UNREADABLE": 2})[2] == ("Unknown", "B cannot be read")
    assert told(group_count=None)[2] == ("Unknown", "the checkpoint service does not say")
