"""The standing proof on the positions topic: what the next owner knows is what the one before knew."""

from dataclasses import replace

from twinlog.testing.mirror_logs import SOURCE
from twinlog.verify.report import FlowVerdict
from twinlog.verify.standing import ProofStanding
from twinlog_source.log.control import ControlState
from twinlog_source.log.fact_records import fact_record, parse_control
from twinlog_source.log.facts import ProofFact
from twinlog_source.verify.request import RESTATED_MS, to_fact, to_standing, to_store

STANDING = ProofStanding(
    verdict=FlowVerdict.DIFFERENT,
    proven_until=40,
    proven_at_ms=7,
    checked_at_ms=9,
    differences={"FOREIGN": 1, "MISSING": 3},
    reason="",
)
FACT = to_fact(SOURCE, STANDING, "{}")


def test_what_is_stored_is_what_is_known_afterwards() -> None:
    record = parse_control("A", *fact_record("A", FACT))
    assert record is not None
    state = ControlState()
    state.apply(record)
    assert state.proofs == {SOURCE: FACT}
    assert to_standing(state.proofs[SOURCE]) == STANDING


def test_a_verdict_of_a_later_version_is_not_taken_for_one_of_ours() -> None:
    assert to_standing(replace(FACT, verdict="BETTER")) is None


def test_only_what_says_something_new_is_stored() -> None:
    assert to_store([FACT], {}) == [FACT]
    assert to_store([FACT], {SOURCE: FACT}) == []
    later = replace(FACT, checked_at_ms=10)
    for new in (
        replace(later, proven_until=41),
        replace(later, verdict="EQUAL"),
        replace(later, differences={}),
        replace(later, ranges="more"),
    ):
        assert to_store([new], {SOURCE: FACT}) == [new]


def test_a_copy_at_rest_is_restated_once_an_hour() -> None:
    def at(checked_at_ms: int) -> ProofFact:
        return replace(FACT, proven_at_ms=checked_at_ms, checked_at_ms=checked_at_ms)

    assert to_store([at(9 + RESTATED_MS - 1)], {SOURCE: FACT}) == []
    assert to_store([at(9 + RESTATED_MS)], {SOURCE: FACT}) == [at(9 + RESTATED_MS)]
