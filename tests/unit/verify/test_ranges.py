"""A partition may be compared in parts: parts that are all equal prove it, others show that it differs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import DecodedRecord
from twinlog.testing.mirror_logs import MemoryLog, bounds_of, drive
from twinlog.verify.comparing.compare import Comparison
from twinlog.verify.comparing.sides import Extended
from twinlog.verify.judging.judge import judge
from twinlog.verify.model import Kind, KnownGap, PartitionProof, Range
from twinlog.verify.ranges import joined, parts, split_offsets

NOW_MS = 1_700_000_000_000


def records(numbers: Sequence[int]) -> list[DecodedRecord]:
    return [
        DecodedRecord(offset, NOW_MS + number, b"k", b"%d" % number, ())
        for offset, number in enumerate(numbers)
    ]


def in_parts(
    numbers: Sequence[int], copied: Sequence[int], size: int, **changes: Any
) -> list[PartitionProof]:
    """Cut at records that both sides have and whose neighbours are the same."""
    source, target = MemoryLog.of(records(numbers)), MemoryLog.of(records(copied))
    bounds = bounds_of(source, target, **changes)
    cuts: list[tuple[int, int]] = []
    for offset in split_offsets(bounds, size):
        number = numbers[offset]
        place = copied.index(number) if copied.count(number) == 1 else -1
        if place > (cuts[-1][1] if cuts else 0):
            cuts.append((offset, place))
    proofs = []
    for part in parts(bounds, cuts):
        comparison = Comparison(bounds=part)
        drive(comparison.compare(), source, target, [Extended(target_limit=target.end, position=source.end)])
        proofs.append(drive(judge(comparison), source, target))
    return proofs


@given(st.integers(1, 120), st.integers(2, 40))
def test_an_equal_copy_in_parts_is_equal(count: int, size: int) -> None:
    numbers = [*range(count)]
    proof = joined([*reversed(in_parts(numbers, numbers, size))])
    assert proof.differences == []
    assert proof.is_complete
    assert (proof.records, proof.source_from, proof.source_to) == (count, 0, count)


@given(st.integers(3, 100), st.integers(5, 40), st.data())
def test_a_difference_is_one_of_some_part(count: int, size: int, data: st.DataObject) -> None:
    """Whatever the cuts: parts that are all equal prove that the partition is."""
    numbers = [*range(count)]
    place = data.draw(st.integers(0, count - 1))
    copied = [*numbers]
    match data.draw(st.sampled_from([Kind.MISSING, Kind.FOREIGN, Kind.DUPLICATE])):
        case Kind.MISSING:
            del copied[place]
        case Kind.FOREIGN:
            copied.insert(place, 10_000)
        case _:
            copied.append(place)
    differences = [each for proof in in_parts(numbers, copied, size) for each in proof.differences]
    assert len(differences) == 1


def test_compacted_partitions_are_not_cut() -> None:
    source = MemoryLog.of(records(range(100)))
    assert split_offsets(bounds_of(source, source, source_compacted=True), 10) == []
    assert split_offsets(bounds_of(source, source), 30) == [30, 60]


def test_no_partition_is_cut_within_a_joined_gap() -> None:
    """Each part would excuse as many records as the whole gap lost."""
    log = MemoryLog(start=0, end=100)
    gap = KnownGap(from_offset=15, to_offset=40, reason="RETENTION", lost_of_joined=3)
    assert split_offsets(bounds_of(log, log, gaps=(gap,)), 10) == [10, 40, 50, 60, 70, 80, 90]
    gap = replace(gap, lost_of_joined=None)
    assert split_offsets(bounds_of(log, log, gaps=(gap,)), 10) == [10, 20, 30, 40, 50, 60, 70, 80, 90]


@given(st.integers(20, 100), st.integers(5, 40), st.data())
def test_a_difference_before_the_end_of_a_range_is_one_of_some_part(
    count: int, size: int, data: st.DataObject
) -> None:
    """As with --to: only the last part continues behind the range."""
    to = data.draw(st.integers(10, count - 1))
    numbers = [*range(count)]
    copied = [*numbers]
    copied.insert(data.draw(st.integers(0, to)), 5_000)
    proofs = in_parts(numbers, copied, size, source_goal=to, target_goal=0, tail_is_free=True)
    assert any(proof.differences for proof in proofs)
    equal = in_parts(numbers, numbers, size, source_goal=to, target_goal=0, tail_is_free=True)
    assert joined(equal).records == to
    assert not any(proof.differences for proof in equal)


@pytest.mark.parametrize("cut_off", [20, 40, 50, 60, 80])
def test_where_the_source_was_cut_off_explains_nothing_of_another_part(cut_off: int) -> None:
    """A foreign record right before the place where a partition is cut."""
    numbers = [*range(100)]
    copied = [*range(50), 10_000, *range(50, 100)]
    lost = (Range(cut_off, cut_off),)
    proofs = in_parts(numbers, copied, 50, source_lost=lost)
    assert len(proofs) == 2
    kinds = [each.kind for proof in proofs for each in proof.differences]
    assert kinds == ([] if cut_off == 50 else [Kind.FOREIGN])


def test_a_part_knows_where_the_source_was_cut_off_in_it() -> None:
    """Proven parts are kept: after another loss their offsets mean other records."""
    source = MemoryLog.of(records(range(100)))
    bounds = bounds_of(source, source, source_lost=(Range(0, 10), Range(30, 30), Range(70, 70)))
    found = [part.source_lost for part in parts(bounds, [(30, 30), (60, 60)])]
    assert found == [(Range(0, 10), Range(30, 30)), (), (Range(70, 70),)]
