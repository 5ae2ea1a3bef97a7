"""The gap ledger stays bounded, and forgets no loss."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from twinlog.model import Flow, TopicPartition
from twinlog_source.log.gaps import MOST_RANGES, Gap, SourceBounds, gap_record, parse_gap, passed_over, tidied

P = TopicPartition("t", 0)


def gap(begin: int, end: int, *, reason: str = "RETENTION", found_at_ms: int = 0) -> Gap:
    return Gap(partition=P, from_offset=begin, to_offset=end, reason=reason, found_at_ms=found_at_ms)


def test_what_retention_took_bit_by_bit_is_one_range() -> None:
    parts = [gap(at, at + 10, found_at_ms=at) for at in range(100, 200, 10)]
    assert tidied(parts) == [gap(100, 200, found_at_ms=190)]


def test_a_range_with_copied_records_before_it_stays_by_itself() -> None:
    parts = [gap(100, 110), gap(111, 120)]
    assert tidied(parts) == parts


def test_ranges_of_other_reasons_or_partitions_are_not_joined() -> None:
    parts = [gap(0, 10), gap(10, 20, reason="TARGET_TRUNCATED")]
    other = Gap(
        partition=TopicPartition("t", 1), from_offset=10, to_offset=20, reason="RETENTION", found_at_ms=0
    )
    assert tidied([*parts, other]) == [*parts, other]


def test_of_too_many_ranges_the_oldest_are_joined_and_their_sum_stays_exact() -> None:
    parts = [gap(at, at + 3) for at in range(0, 10 * (MOST_RANGES + 20), 10)]
    tidy = tidied(parts)
    assert len(tidy) == MOST_RANGES
    assert tidy[1:] == parts[21:]
    assert (tidy[0].from_offset, tidy[0].to_offset, tidy[0].lost_offsets) == (0, 203, 63)
    assert tidied(tidy) == tidy


def test_what_a_crash_left_beside_the_joined_range_is_not_counted_twice() -> None:
    parts = [gap(at, at + 3) for at in range(0, 10 * (MOST_RANGES + 1), 10)]
    tidy = tidied(parts)
    assert tidied([*tidy, *parts[1:2]]) == tidy


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)), max_size=30)


@given(RANGES)
def test_joined_ranges_hold_exactly_what_was_lost(ranges: list[tuple[int, int]]) -> None:
    parts = [gap(begin, begin + length) for begin, length in dict(ranges).items()]
    tidy = tidied(parts)
    lost = {offset for each in parts for offset in range(each.from_offset, each.to_offset)}
    assert {offset for each in tidy for offset in range(each.from_offset, each.to_offset)} == lost
    assert sum(each.lost_offsets for each in tidy) == len(lost)
    assert all(one.to_offset < other.from_offset for one, other in pairwise(tidy))


def over(
    from_offset: int, to_offset: int, *, start: int = 0, end: int | None = 100
) -> list[tuple[int, int, str]]:
    return [
        (gap.from_offset, gap.to_offset, gap.reason)
        for gap in passed_over(
            P,
            from_offset=from_offset,
            to_offset=to_offset,
            bounds=None if end is None else SourceBounds(start=start, end=end),
            found_at_ms=1,
        )
    ]


def test_a_move_forward_leaves_out_what_lies_between() -> None:
    assert over(10, 40) == [(10, 40, "SKIPPED_BY_OPERATOR")]
    assert over(10, 10) == over(40, 10) == []


def test_a_move_past_a_loss_tells_what_was_lost_and_what_was_left_out() -> None:
    assert over(20, 50, start=50, end=60) == [(20, 50, "RETENTION")]
    assert over(20, 55, start=50, end=60) == [(20, 50, "RETENTION"), (50, 55, "SKIPPED_BY_OPERATOR")]


def test_a_move_back_to_a_log_that_lost_its_tail_tells_the_truncation() -> None:
    assert over(80, 30, end=50) == [(50, 80, "TRUNCATION")]
    assert over(80, 60, end=None) == []


def test_what_is_acknowledged_is_never_joined_with_what_is_not() -> None:
    known, new = gap(0, 30), gap(30, 60)
    known = replace(known, acknowledged_by="root", acknowledged_at_ms=3)
    assert sorted(tidied([known, new]), key=lambda each: each.from_offset) == [known, new]
    key, value = gap_record(Flow("A", "B"), known)
    assert parse_gap("A", key, value) == known
