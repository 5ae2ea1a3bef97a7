"""A copy that is to have the source's offsets is DIFFERENT where it has others; other copies may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import Codec, DecodedRecord
from twinlog.comparison.model import DifferenceKind, PartitionProof
from twinlog.testing.mirror_logs import MemoryLog, prove

NOW_MS = 1_700_000_000_000


def record(offset: int, number: int) -> DecodedRecord:
    return DecodedRecord(offset, NOW_MS + number, b"key", b"value-%d" % number, ())


def alike(offset: int) -> DecodedRecord:
    """Nothing but its offset tells it from others."""
    return DecodedRecord(offset, NOW_MS, b"key", b"value", ())


def found(proof: PartitionProof) -> list[tuple[str, int | None, int | None, int]]:
    return [(each.kind, each.source_offset, each.target_offset, each.count) for each in proof.differences]


codecs = st.sampled_from(list(Codec))
sizes = st.lists(st.integers(1, 30), min_size=1, max_size=3)


@given(st.integers(1, 120), sizes, sizes, codecs, codecs, st.sets(st.integers(0, 119), max_size=6))
def test_a_copy_with_the_sources_offsets_is_equal_whatever_its_batches_are(
    count: int, one: list[int], other: list[int], codec: Codec, copied: Codec, holes: set[int]
) -> None:
    records = [record(offset, offset) for offset in range(count) if offset not in holes]
    source = MemoryLog.of(records, sizes=one, codec=codec, start=0, end=count)
    target = MemoryLog.of(records, sizes=other, codec=copied, start=0, end=count)
    proof = prove(source, target, offsets_kept_from=0)
    assert proof.differences == []
    assert proof.offsets_promised
    assert proof.same_offsets


@given(st.integers(1, 100), st.integers(0, 99), sizes, sizes, codecs, codecs)
def test_records_at_other_offsets_are_one_difference(
    count: int, at: int, one: list[int], other: list[int], codec: Codec, copied: Codec
) -> None:
    """From one record on, all of them stand one offset too far."""
    at = min(at, count - 1)
    source = MemoryLog.of([record(n, n) for n in range(count)], sizes=one, codec=codec, start=0)
    shifted = [record(n + (n >= at), n) for n in range(count)]
    target = MemoryLog.of(shifted, sizes=other, codec=copied, start=0)
    proof = prove(source, target, offsets_kept_from=0)
    assert found(proof) == [(DifferenceKind.CHANGED, at, at + 1, count - at)]
    assert proof.differences[0].changed == ("offset",)
    assert prove(source, target).differences == [], "nobody promised the offsets"


@pytest.mark.parametrize("since", [1, 5, 9])
@pytest.mark.parametrize("size", [1, 2, 10])
def test_an_offset_that_is_promised_within_a_batch_is_compared(since: int, size: int) -> None:
    source = MemoryLog.of([record(n, n) for n in range(10)], sizes=(size,))
    target = MemoryLog.of([record(n + 3, n) for n in range(10)], sizes=(size,), start=0)
    proof = prove(source, target, offsets_kept_from=since)
    assert found(proof) == [(DifferenceKind.CHANGED, since, since + 3, 10 - since)]
    proof = prove(source, target, offsets_kept_from=0, offsets_kept_until=since)
    assert [(kind, at, place) for kind, at, place, _ in found(proof)] == [(DifferenceKind.CHANGED, 0, 3)]


@given(st.integers(1, 100), st.integers(0, 99), sizes, sizes)
def test_a_lost_record_explains_that_those_behind_it_moved_up(
    count: int, lost: int, one: list[int], other: list[int]
) -> None:
    lost = min(lost, count - 1)
    source = MemoryLog.of([record(n, n) for n in range(count)], sizes=one, start=0)
    kept = [record(n - (n > lost), n) for n in range(count) if n != lost]
    target = MemoryLog.of(kept, sizes=other, start=0)
    proof = prove(source, target, offsets_kept_from=0)
    assert found(proof) == [(DifferenceKind.MISSING, lost, lost if lost < count - 1 else None, 1)]
    assert proof.same_offsets is (lost == count - 1)


@given(st.integers(2, 200), st.integers(0, 199), sizes, sizes)
def test_of_records_that_are_alike_the_one_is_named_whose_offset_is_empty(
    count: int, lost: int, one: list[int], other: list[int]
) -> None:
    lost = min(lost, count - 1)
    source = MemoryLog.of([alike(n) for n in range(count)], sizes=one, start=0)
    target = MemoryLog.of([alike(n) for n in range(count) if n != lost], sizes=other, start=0, end=count)
    proof = prove(source, target, offsets_kept_from=0)
    assert found(proof) == [(DifferenceKind.MISSING, lost, lost + 1 if lost < count - 1 else None, 1)]


@pytest.mark.parametrize("since", [0, 30])
def test_the_offsets_are_promised_from_one_offset_on(since: int) -> None:
    source = MemoryLog.of([record(n, n) for n in range(60)], start=0)
    target = MemoryLog.of([record(n + (10 <= n < 20), n) for n in range(60) if n != 19], start=0)
    proof = prove(source, target, offsets_kept_from=since)
    assert found(proof) == (
        [(DifferenceKind.CHANGED, 10, 11, 9), (DifferenceKind.MISSING, 19, 20, 1)]
        if since == 0
        else [(DifferenceKind.MISSING, 19, 20, 1)]
    )
