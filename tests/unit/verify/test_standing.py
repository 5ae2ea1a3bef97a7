"""The standing proof: PROVEN up to X at T, for each partition, from one verification to the next."""

from dataclasses import replace

from twinlog.comparison.model import (
    Difference,
    DifferenceKind,
    NotCompared,
    NotComparedReason,
    PartitionProof,
    Side,
)
from twinlog.testing.mirror_logs import SOURCE, TARGET
from twinlog.verify.report import FlowVerdict
from twinlog.verify.standing import advanced, by_log, standings


def proof(*found: Difference | NotCompared, source_to: int = 100) -> PartitionProof:
    made = PartitionProof(
        source=SOURCE, target=TARGET, source_from=0, source_to=source_to, target_from=0, target_to=90
    )
    made.differences = [each for each in found if isinstance(each, Difference)]
    made.not_compared = [each for each in found if isinstance(each, NotCompared)]
    return made


def left_out(reason: str, *, is_harmless: bool = False) -> NotCompared:
    return NotCompared(
        side=Side.SOURCE, from_offset=100, to_offset=120, reason=reason, is_harmless=is_harmless
    )


def test_what_is_equal_is_proven_up_to_its_end_and_lag_is_no_fault() -> None:
    for some in ((), (left_out(NotComparedReason.NOT_COPIED_YET),), (left_out("X", is_harmless=True),)):
        found = standings({}, [proof(*some)], now_ms=7)[SOURCE]
        assert (found.verdict, found.proven_until, found.proven_at_ms) == (FlowVerdict.EQUAL, 100, 7)


def test_a_difference_ends_the_proof_and_is_counted_by_kind() -> None:
    missing = Difference(kind=DifferenceKind.MISSING, source_offset=40, target_offset=40, count=3)
    twice = Difference(kind=DifferenceKind.DUPLICATE, source_offset=60, target_offset=57)
    foreign = Difference(kind=DifferenceKind.FOREIGN, source_offset=None, target_offset=89)
    found = standings({}, [proof(missing, twice, foreign)], now_ms=7)[SOURCE]
    assert (found.verdict, found.proven_until) == (FlowVerdict.DIFFERENT, 40)
    assert found.differences == {"DUPLICATE": 1, "FOREIGN": 1, "MISSING": 3}


def test_a_cluster_that_was_away_takes_no_proof_back() -> None:
    before = standings({}, [proof()], now_ms=7)
    found = standings(before, [proof(left_out("KAFKA_TIMEOUT"), source_to=20)], now_ms=9)[SOURCE]
    assert (found.verdict, found.reason) == (FlowVerdict.INCOMPLETE, "KAFKA_TIMEOUT")
    assert (found.proven_until, found.proven_at_ms, found.checked_at_ms) == (100, 7, 9)


def test_a_cluster_that_was_away_makes_no_copy_equal_that_differed() -> None:
    """Its alert stays until somebody has seen it equal."""
    missing = Difference(kind=DifferenceKind.MISSING, source_offset=40, target_offset=40)
    before = standings({}, [proof(missing)], now_ms=7)
    away = standings(before, [proof(left_out("KAFKA_TIMEOUT"), source_to=20)], now_ms=9)
    found = away[SOURCE]
    assert (found.verdict, found.differences, found.reason) == (
        FlowVerdict.DIFFERENT, {"MISSING": 1}, "KAFKA_TIMEOUT",
    )  # fmt: skip
    assert (found.proven_until, found.proven_at_ms, found.checked_at_ms) == (40, 7, 9)
    gap = standings(away, [proof(left_out(NotComparedReason.KNOWN_GAP))], now_ms=11)[SOURCE]
    assert (gap.verdict, gap.differences) == (FlowVerdict.INCOMPLETE, {}), "all else was compared"
    healed = standings(away, [proof()], now_ms=11)[SOURCE]
    assert (healed.verdict, healed.differences, healed.reason) == (FlowVerdict.EQUAL, {}, "")


def test_a_partition_that_was_not_verified_keeps_what_is_known() -> None:
    before = standings({}, [proof()], now_ms=7)
    assert standings(before, [], now_ms=9) == before


def test_nothing_behind_the_first_record_that_is_not_copied_is_proven() -> None:
    """Also where more of the source was read."""
    found = standings({}, [proof(left_out(NotComparedReason.NOT_COPIED_YET), source_to=120)], now_ms=7)[
        SOURCE
    ]
    assert (found.verdict, found.proven_until) == (FlowVerdict.EQUAL, 100)


def test_what_a_verification_that_still_runs_has_proven_is_known() -> None:
    """Within its budget the first one of a large flow may take days."""
    first = advanced({}, {SOURCE: 50}, now_ms=7)
    assert (first[SOURCE].verdict, first[SOURCE].proven_until, first[SOURCE].proven_at_ms) == (
        FlowVerdict.EQUAL, 50, 7,
    )  # fmt: skip
    farther = advanced(first, {SOURCE: 80}, now_ms=9)
    assert (farther[SOURCE].proven_until, farther[SOURCE].proven_at_ms) == (80, 9)


def test_a_partition_that_is_verified_once_more_from_its_beginning_takes_no_proof_back() -> None:
    known = standings({}, [proof()], now_ms=7)
    assert advanced(known, {SOURCE: 60}, now_ms=9) == {}


def test_a_copy_that_differs_stays_so_until_its_verification_has_ended() -> None:
    missing = Difference(kind=DifferenceKind.MISSING, source_offset=40, target_offset=40)
    known = standings({}, [proof(missing)], now_ms=7)
    assert advanced(known, {SOURCE: 60}, now_ms=9) == {}


def test_a_topic_of_a_route_that_was_deleted_holds_no_proof_up_and_one_that_has_begun_does() -> None:
    for is_gone, until in ((True, 200), (False, 100)):
        seen = proof(left_out("ROUTED", is_harmless=is_gone), source_to=200)
        (found,) = standings({}, [seen], now_ms=9).values()
        assert (found.verdict, found.proven_until) == (FlowVerdict.EQUAL, until)


def test_what_is_known_of_a_partition_holds_for_all_topics_to_which_its_records_go() -> None:
    own, route = SOURCE, SOURCE._replace(topic="route")
    equal = standings({}, [proof()], now_ms=9)[own]
    worse = replace(equal, verdict=FlowVerdict.DIFFERENT, proven_until=7, differences={"MISSING": 2})
    incomplete = replace(equal, verdict=FlowVerdict.INCOMPLETE, proven_at_ms=3, proven_until=8, reason="LOST")
    for found, together in (
        ({own: equal, route: worse}, worse),
        ({own: worse, route: worse}, replace(worse, differences={"MISSING": 4})),
        ({own: incomplete, route: equal}, incomplete),
        ({own: incomplete, route: worse}, replace(worse, proven_at_ms=3)),
    ):
        assert by_log(found, lambda _: own.topic) == {own: together}
    assert by_log({own: equal, route: worse}, str) == {own: equal, route: worse}
