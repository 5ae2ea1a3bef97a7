"""The three facts that begin the view of a migration: what is not known is said, never guessed."""

import pytest

from twinlog.cli.status.producers import KNOWN_SECONDS, SILENT_SECONDS
from twinlog.cli.status.rows import FlowRow
from twinlog.cli.ui.facts import facts


def told(**what: object) -> list[str]:
    row = FlowRow(flow="A->B", source_ends_age_seconds=1.0, group_count=2, partitions={"RUNNING": 4})
    for name, value in what.items():
        setattr(row, name, value)
    return [fact.message for fact in facts(row)]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"source_written_age_seconds": 0.4}, "write: the last records came 0 s ago"),
        ({"source_written_age_seconds": SILENT_SECONDS + 1}, "silent for 61 s"),
        ({}, "silent since the source service started"),
        (
            {"source_ends_age_seconds": KNOWN_SECONDS + 1, "source_written_age_seconds": 90.0},
            "not known: the ends of the source's logs were read 31 s ago",
        ),
        ({"source_ends_age_seconds": None}, "not known: no service tells of the source's logs"),
    ],
)
def test_producers_write_are_silent_or_it_is_not_known(what: dict[str, object], words: str) -> None:
    assert told(**what)[0] == words


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            {"proofs": {"EQUAL": 4}, "proven_age_seconds": 12},
            "equal in 4 of 4 partitions, 12 s ago or later",
        ),
        ({"proofs": {"EQUAL": 3, "INCOMPLETE": 1}}, "equal in 3 of 4 partitions"),
        ({"proofs": {"EQUAL": 3, "DIFFERENT": 1}}, "differ in 1 partition: `twinlog verify`"),
        ({"proofs": {"INCOMPLETE": 4}}, "not compared as a whole yet"),
        ({}, "compared by nobody: `twinlog verify`, or set `twinlog.verify.interval.seconds`"),
    ],
)
def test_both_ends_are_equal_only_where_they_were_compared(what: dict[str, object], words: str) -> None:
    assert told(**what)[1] == words


def test_only_a_difference_is_bad() -> None:
    different = FlowRow(flow="A->B", proofs={"DIFFERENT": 1})
    assert [fact.verdict for fact in facts(different)] == ["", "NO_GO", ""]
    assert {fact.verdict for fact in facts(FlowRow(flow="A->B"))} == {""}


def test_groups_resumed_where_they_have_members_on_the_target() -> None:
    assert told(groups={"EXACT": 3})[2] == "none has members on B"
    assert told(groups={"EXACT": 3, "ACTIVE_ON_TARGET": 1})[2] == (
        "resumed: 1 of 4 partitions are of groups with members on B"
    )
    assert told(groups={"EXACT": 3, "TARGET_UNREADABLE": 2})[2] == (
        "not known of 2 partitions: B cannot be read"
    )
    assert told(group_count=None)[2] == "not known: no checkpoint service tells of this flow"
