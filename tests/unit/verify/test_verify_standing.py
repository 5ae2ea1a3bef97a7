"""The standing proof: PROVEN up to X at T, for each partition, from one verification to the next."""

from twinlog.testing.mirror_logs import SOURCE, TARGET
from twinlog.verify.model import Difference, Kind, NotCompared, PartitionProof, Reason, Side
from twinlog.verify.report import Verdict
from twinlog.verify.standing import standings


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
    for some in ((), (left_out(Reason.NOT_COPIED_YET),), (left_out("X", is_harmless=True),)):
        found = standings({}, [proof(*some)], now_ms=7)[SOURCE]
        assert (found.verdict, found.proven_until, found.proven_at_ms) == (Verdict.EQUAL, 100, 7)


def test_a_difference_ends_the_proof_and_is_counted_by_kind() -> None:
    missing = Difference(kind=Kind.MISSING, source_offset=40, target_offset=40, count=3)
    twice = Difference(kind=Kind.DUPLICATE, source_offset=60, target_offset=57)
    foreign = Difference(kind=Kind.FOREIGN, source_offset=None, target_offset=89)
    found = standings({}, [proof(missing, twice, foreign)], now_ms=7)[SOURCE]
    assert (found.verdict, found.proven_until) == (Verdict.DIFFERENT, 40)
    assert found.differences == {"DUPLICATE": 1, "FOREIGN": 1, "MISSING": 3}


def test_a_cluster_that_was_away_takes_no_proof_back() -> None:
    before = standings({}, [proof()], now_ms=7)
    found = standings(before, [proof(left_out("KAFKA_TIMEOUT"), source_to=20)], now_ms=9)[SOURCE]
    assert (found.verdict, found.reason) == (Verdict.INCOMPLETE, "KAFKA_TIMEOUT")
    assert (found.proven_until, found.proven_at_ms, found.checked_at_ms) == (100, 7, 9)


def test_a_partition_that_was_not_verified_keeps_what_is_known() -> None:
    before = standings({}, [proof()], now_ms=7)
    assert standings(before, [], now_ms=9) == before
