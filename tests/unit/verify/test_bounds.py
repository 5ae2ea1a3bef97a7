"""What cannot be compared is said with its reason, and never called a difference; the reverse neither."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import DecodedRecord
from twinlog.comparison.model import DifferenceKind, KnownGap, NotComparedReason, PartitionProof, Range
from twinlog.comparison.sides import Extended
from twinlog.testing.mirror_logs import MemoryLog, prove

NOW_MS = 1_700_000_000_000


def record(offset: int, number: int, key: bytes | None = None, value: bytes | None = b"v") -> DecodedRecord:
    """The `number`th record of the source, at an offset of either side."""
    content = None if value is None else b"%b-%d" % (value, number)
    return DecodedRecord(offset, NOW_MS + number, key or b"key-%d" % number, content, ())


def numbers(*ranges: range, first: int = 0) -> list[DecodedRecord]:
    """Records of these numbers at offsets from `first` on."""
    return [
        record(first + at, number) for at, number in enumerate([each for some in ranges for each in some])
    ]


def left_out(proof: PartitionProof) -> list[tuple[str, str, int, int]]:
    return [(each.side, each.reason, each.from_offset, each.to_offset) for each in proof.not_compared]


def found(proof: PartitionProof) -> list[tuple[str, int | None, int | None, int]]:
    return [(each.kind, each.source_offset, each.target_offset, each.count) for each in proof.differences]


def test_what_is_behind_the_stored_position_is_lag() -> None:
    source, target = MemoryLog.of(numbers(range(50))), MemoryLog.of(numbers(range(30)))
    proof = prove(source, target, position=30)
    assert found(proof) == []
    assert left_out(proof) == [("source", NotComparedReason.NOT_COPIED_YET, 30, 50)]
    assert not proof.is_complete


def test_without_a_stored_position_the_end_is_lag() -> None:
    source, target = MemoryLog.of(numbers(range(50))), MemoryLog.of(numbers(range(30)))
    assert left_out(prove(source, target, position=None)) == [
        ("source", NotComparedReason.NOT_COPIED_YET, 30, 50)
    ]


def test_what_is_before_the_stored_position_and_not_there_is_missing() -> None:
    source, target = MemoryLog.of(numbers(range(50))), MemoryLog.of(numbers(range(30)))
    proof = prove(source, target, position=41)
    assert found(proof) == [(DifferenceKind.MISSING, 30, None, 11)]
    assert left_out(proof) == [("source", NotComparedReason.NOT_COPIED_YET, 41, 50)]


def test_a_hole_before_the_end_of_the_copy_is_missing_whatever_the_position_says() -> None:
    source = MemoryLog.of(numbers(range(50)))
    target = MemoryLog.of(numbers(range(10), range(12, 30)))
    proof = prove(source, target, position=None)
    assert found(proof) == [(DifferenceKind.MISSING, 10, 10, 2)]
    assert left_out(proof) == [("source", NotComparedReason.NOT_COPIED_YET, 30, 50)]


def test_markers_at_the_end_of_the_source_are_no_lag() -> None:
    source, target = MemoryLog.of(numbers(range(50)), end=53), MemoryLog.of(numbers(range(50)))
    proof = prove(source, target, position=50)
    assert proof.not_compared == []
    assert proof.records == 50


def test_a_copy_that_arrives_while_somebody_waits_is_complete() -> None:
    source, target = MemoryLog.of(numbers(range(50))), MemoryLog.of(numbers(range(50)))
    answers = [Extended(target_limit=42, position=42), Extended(target_limit=50, position=50)]
    proof = prove(source, target, position=30, target_goal=30, target_limit=30, answers=answers)
    assert proof.is_complete
    assert not proof.differences
    assert proof.records == 50


@pytest.mark.parametrize("seen", [20, 62, 70])
@pytest.mark.parametrize("chunk", [1, 3, 30])
def test_what_a_fetch_brought_from_behind_the_end_that_was_known_is_compared_later(
    seen: int, chunk: int
) -> None:
    """The copy grew between the question for its end and the fetch."""
    records = [record(number, number) for number in (*range(10), *range(60, 100))]
    source, target = MemoryLog.of(records), MemoryLog.of(records)
    target.batches_per_chunk = chunk
    answers = [Extended(target_limit=seen, position=seen), Extended(target_limit=100, position=100)]
    proof = prove(source, target, position=10, target_goal=10, target_limit=10, answers=answers)
    assert found(proof) == []
    assert proof.is_complete
    assert proof.records == len(records)


def test_records_that_came_after_the_ends_were_taken_are_not_foreign() -> None:
    """The source's ends were taken first: the copy may be ahead of them."""
    source, target = MemoryLog.of(numbers(range(50))), MemoryLog.of(numbers(range(40)))
    proof = prove(source, target, source_goal=30, source_limit=50, target_goal=40, position=40)
    assert proof.is_complete
    assert not proof.differences


def test_a_foreign_record_at_the_end_of_a_copy_with_lag_is_found() -> None:
    source = MemoryLog.of(numbers(range(50)))
    target = MemoryLog.of([*numbers(range(30)), record(30, 999)])
    proof = prove(source, target, position=30)
    assert found(proof) == [(DifferenceKind.FOREIGN, None, 30, 1)]
    assert left_out(proof) == [("source", NotComparedReason.NOT_COPIED_YET, 30, 50)]


@pytest.mark.parametrize("lost", [1, 30, 300])
def test_what_the_sources_retention_took_is_not_foreign(lost: int) -> None:
    source = MemoryLog.of(numbers(range(lost, 400), first=lost))
    target = MemoryLog.of(numbers(range(400)))
    proof = prove(source, target)
    assert proof.differences == []
    assert left_out(proof) == [("target", NotComparedReason.SOURCE_RETENTION, 0, lost)]
    assert proof.is_complete


@pytest.mark.parametrize("lost", [1, 30, 300])
def test_what_the_targets_retention_took_is_not_missing(lost: int) -> None:
    source = MemoryLog.of(numbers(range(400)))
    target = MemoryLog.of(numbers(range(lost, 400), first=lost))
    proof = prove(source, target)
    assert proof.differences == []
    assert left_out(proof) == [("source", NotComparedReason.TARGET_RETENTION, 0, lost)]


def test_a_source_that_lost_everything_is_compared_with_nothing() -> None:
    source = MemoryLog.of([], start=40, end=40)
    proof = prove(source, MemoryLog.of(numbers(range(40))))
    assert proof.differences == []
    assert left_out(proof) == [("target", NotComparedReason.SOURCE_RETENTION, 0, 40)]


def test_retention_that_is_faster_than_the_comparison_is_no_difference() -> None:
    """The log's start moves while it is read."""
    source, target = MemoryLog.of(numbers(range(100)), sizes=[10]), MemoryLog.of(numbers(range(100)))
    begun = source.start
    source.start = 40
    source.batches = [batch for batch in source.batches if batch.header.base_offset >= 40]
    proof = prove(source, target, source_start=begun, source_lost=())
    assert proof.differences == []
    assert left_out(proof) == [("target", NotComparedReason.SOURCE_RETENTION, 0, 40)]


def test_a_record_that_changed_beside_what_retention_took_is_found() -> None:
    source = MemoryLog.of(numbers(range(20, 100), first=20))
    changed = record(20, 20)._replace(headers=((b"h", b"1"),))
    target = MemoryLog.of([*numbers(range(20)), changed, *numbers(range(21, 100), first=21)])
    proof = prove(source, target)
    assert found(proof) == [(DifferenceKind.CHANGED, 20, 20, 1)]
    assert left_out(proof) == [("target", NotComparedReason.SOURCE_RETENTION, 0, 20)]


def test_known_gaps_are_not_compared_and_unknown_ones_are_missing() -> None:
    source = MemoryLog.of(numbers(range(60)))
    target = MemoryLog.of(numbers(range(10), range(20, 40), range(45, 60)))
    gap = KnownGap(from_offset=10, to_offset=20, reason="SKIPPED_BY_OPERATOR")
    proof = prove(source, target, gaps=(gap,))
    assert found(proof) == [(DifferenceKind.MISSING, 40, 30, 5)]
    assert left_out(proof) == [("source", NotComparedReason.KNOWN_GAP, 10, 20)]
    assert proof.not_compared[0].detail == "SKIPPED_BY_OPERATOR"
    assert not proof.is_complete


def test_a_gap_that_somebody_acknowledged_does_not_make_a_proof_incomplete() -> None:
    source, target = MemoryLog.of(numbers(range(60))), MemoryLog.of(numbers(range(10), range(20, 60)))
    gap = KnownGap(from_offset=10, to_offset=20, reason="SKIPPED_BY_OPERATOR", acknowledged=True)
    assert prove(source, target, gaps=(gap,)).is_complete


def test_records_of_an_earlier_topic_of_the_name_have_a_reason_of_their_own() -> None:
    source, target = MemoryLog.of(numbers(range(100, 130))), MemoryLog.of(numbers(range(60), range(100, 130)))
    proof = prove(source, target, source_lost=(Range(0, 0),), only_on_target=NotComparedReason.EARLIER_TOPIC)
    assert (proof.differences, proof.is_complete) == ([], True)
    assert left_out(proof) == [("target", NotComparedReason.EARLIER_TOPIC, 0, 60)]


def test_what_a_truncation_took_of_the_source_is_not_foreign() -> None:
    """The source lost 40 to 59 after they were copied, and continues with other records at those offsets."""
    source = MemoryLog.of(numbers(range(40), range(100, 130)))
    target = MemoryLog.of(numbers(range(60), range(100, 130)))
    proof = prove(source, target, source_lost=(Range(40, 40),))
    assert proof.differences == []
    assert left_out(proof) == [("target", NotComparedReason.SOURCE_RETENTION, 40, 60)]


def test_a_flow_that_begins_at_the_end_of_a_topic_has_no_earlier_records() -> None:
    source, target = MemoryLog.of(numbers(range(60))), MemoryLog.of(numbers(range(25, 60)))
    proof = prove(source, target, begins_anywhere=True)
    assert proof.differences == []
    assert left_out(proof) == [("source", NotComparedReason.BEFORE_FIRST_COPY, 0, 25)]
    assert found(prove(source, target)) == [(DifferenceKind.MISSING, 0, 0, 25)]


def test_an_empty_copy_of_a_flow_that_begins_at_the_end_of_a_topic_is_not_called_different() -> None:
    """Nor equal: it may have lost what it had."""
    source, empty = MemoryLog.of(numbers(range(60))), MemoryLog.of([])
    proof = prove(source, empty, position=50, begins_anywhere=True)
    assert proof.differences == []
    assert left_out(proof) == [
        ("source", NotComparedReason.BEFORE_FIRST_COPY, 0, 50),
        ("source", NotComparedReason.NOT_COPIED_YET, 50, 60),
    ]
    assert [each.is_harmless for each in proof.not_compared] == [False, False]
    assert found(prove(source, empty, position=50)) == [(DifferenceKind.MISSING, 0, None, 50)]


def test_timestamps_of_a_brokers_own_are_not_compared_and_the_rest_is() -> None:
    source = MemoryLog.of(numbers(range(60)))
    target = MemoryLog.of(numbers(range(60)), appended_at_ms=NOW_MS + 9_999)
    proof = prove(source, target)
    assert proof.differences == []
    assert not proof.timestamps_compared
    copied = numbers(range(20), range(21, 60))
    proof = prove(source, MemoryLog.of(copied, appended_at_ms=NOW_MS + 9_999))
    assert found(proof) == [(DifferenceKind.MISSING, 20, 20, 1)]


def test_a_source_with_its_brokers_timestamps_has_them_in_the_copy() -> None:
    source = MemoryLog.of(numbers(range(30)), sizes=[30], appended_at_ms=NOW_MS + 50)
    stamped = [each._replace(timestamp_ms=NOW_MS + 50) for each in numbers(range(30))]
    proof = prove(source, MemoryLog.of(stamped))
    assert proof.differences == []
    assert proof.timestamps_compared


def keyed(*records: tuple[int, int, bytes | None]) -> list[DecodedRecord]:
    """(offset, number, value) of records whose keys are their number modulo 10."""
    return [record(offset, number, b"k%d" % (number % 10), value) for offset, number, value in records]


def test_a_source_that_was_compacted_after_it_was_copied_is_equal() -> None:
    everything = keyed(*((number, number, b"v") for number in range(60)))
    compacted = [each for each in everything if each.offset >= 40 or each.offset % 10 > 6]
    source = MemoryLog.of(compacted, start=0, sizes=[7])
    proof = prove(source, MemoryLog.of(everything), source_compacted=True)
    assert found(proof) == []
    assert proof.superseded_records == 60 - len(compacted)
    assert proof.is_complete


def test_a_changed_last_value_in_a_compacted_topic_is_named() -> None:
    everything = keyed(*((number, number, b"v") for number in range(60)))
    changed = everything[52]._replace(value=b"v-52!")
    kept = [each for each in everything if each.offset not in (2, 3, 50 - 9)]
    copied = [changed if each.offset == 52 else each for each in kept]
    proof = prove(
        MemoryLog.of(everything), MemoryLog.of(copied, start=0), source_compacted=True, target_compacted=True
    )
    assert found(proof) == [(DifferenceKind.CHANGED, 52, 52, 1)]


def test_a_log_without_holes_was_not_compacted_so_nothing_in_it_is_explained() -> None:
    """Later records of the key are there, but no offset is missing on the source."""
    everything = keyed(*((number, number, b"v") for number in range(60)))
    behind = [each._replace(offset=each.offset + 1) for each in everything[20:]]
    copied = [*everything[:20], record(20, 999, b"k5"), *behind]
    proof = prove(MemoryLog.of(everything), MemoryLog.of(copied), source_compacted=True)
    assert found(proof) == [(DifferenceKind.FOREIGN, 20, 20, 1)]


def test_tombstones_that_were_removed_with_their_key_are_explained() -> None:
    everything = keyed((0, 0, b"v"), (1, 1, b"v"), (2, 10, None), (3, 3, b"v"), (4, 11, b"v"))
    source = MemoryLog.of([everything[1], *everything[3:]], start=0)
    proof = prove(source, MemoryLog.of(everything), source_compacted=True)
    assert found(proof) == []
    assert proof.superseded_records == 2


def test_a_key_that_only_the_copy_still_has_is_foreign() -> None:
    """Its tombstone went on the source before it was copied."""
    everything = keyed((0, 0, b"v"), (1, 1, b"v"), (3, 3, b"v"), (4, 11, b"v"))
    source = MemoryLog.of(everything[1:], start=0)
    target = MemoryLog.of([each._replace(offset=at) for at, each in enumerate(everything)])
    proof = prove(source, target, source_compacted=True)
    assert found(proof) == [(DifferenceKind.FOREIGN, 1, 0, 1)]


def test_two_records_of_a_key_do_not_explain_each_other() -> None:
    """The source was compacted to the last value, which the copy has lost: it still has the one before."""
    source = MemoryLog.of([record(0, 0, b"k0"), record(2, 2, b"k2")], start=0)
    target = MemoryLog.of([record(0, 0, b"k0"), record(1, 1, b"k2")], start=0, end=3)
    proof = prove(source, target, source_compacted=True, target_compacted=True)
    assert found(proof) == [(DifferenceKind.MISSING, 2, None, 1)]


@given(st.lists(st.integers(0, 6), max_size=80), st.sets(st.integers(0, 79)), st.sets(st.integers(0, 79)))
def test_whatever_compaction_takes_of_either_side_is_explained(
    keys: list[int], gone_here: set[int], gone_there: set[int]
) -> None:
    """It takes records of which a later one of the key is there."""
    last = {key: number for number, key in enumerate(keys)}
    everything = [record(number, number, b"k%d" % key) for number, key in enumerate(keys)]
    lasting = set(last.values())
    here = [each for each in everything if each.offset in lasting or each.offset not in gone_here]
    there = [each for each in everything if each.offset in lasting or each.offset not in gone_there]
    proof = prove(
        MemoryLog.of(here, start=0),
        MemoryLog.of(there, start=0),
        source_compacted=True,
        target_compacted=True,
    )
    assert found(proof) == []
    assert proof.is_complete


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=80),
    st.sets(st.integers(0, 79)),
    st.sets(st.integers(0, 79)),
    st.data(),
)
def test_a_lost_last_value_of_a_key_is_found_in_whatever_was_compacted(
    keys: list[int], gone_here: set[int], gone_there: set[int], data: st.DataObject
) -> None:
    last = {key: number for number, key in enumerate(keys)}
    lost = data.draw(st.sampled_from(sorted(last.values())))
    everything = [record(number, number, b"k%d" % key) for number, key in enumerate(keys)]
    lasting = set(last.values())
    here = [each for each in everything if each.offset in lasting or each.offset not in gone_here]
    there = [
        each
        for each in everything
        if each.offset != lost and (each.offset in lasting or each.offset not in gone_there)
    ]
    proof = prove(
        MemoryLog.of(here, start=0),
        MemoryLog.of(there, start=0, end=len(keys)),
        source_compacted=True,
        target_compacted=True,
    )
    assert (DifferenceKind.MISSING, lost) in [
        (each.kind, each.source_offset) for each in proof.differences
    ] or any(
        each.kind is DifferenceKind.MISSING
        and each.source_offset is not None
        and each.source_offset <= lost < each.source_offset + each.count
        for each in proof.differences
    )


@pytest.mark.parametrize("position", [30, 50])
def test_what_a_copy_has_before_a_range_that_it_has_not_reached_is_not_foreign(position: int) -> None:
    """As with --from on a copy that lags."""
    source, target = MemoryLog.of(numbers(range(50))), MemoryLog.of(numbers(range(30)))
    proof = prove(source, target, source_start=40, source_lost=(), head_is_free=True, position=position)
    if position == 30:
        assert found(proof) == []
        assert left_out(proof) == [("source", NotComparedReason.NOT_COPIED_YET, 40, 50)]
    else:
        assert found(proof) == [(DifferenceKind.MISSING, 40, None, 10)]
