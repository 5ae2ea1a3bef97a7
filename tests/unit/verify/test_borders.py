"""What is wrong at the first or the last record of what is compared is found there, and named."""

from collections.abc import Sequence
from typing import Any

import pytest

from twinlog.batches import Codec, DecodedRecord, iter_batches
from twinlog.comparison.model import DifferenceKind, KnownGap, NotComparedReason, PartitionProof, Range
from twinlog.testing.mirror_logs import MemoryLog, prove, records_at
from twinlog.testing.source_batches import old_message, old_wrapper
from unit.cases import about

NOW_MS = 1_700_000_000_000
STRANGER = DecodedRecord(0, NOW_MS - 5, b"who", b"was this", ())
Found = list[tuple[str, int | None, int | None, int]]


def record(offset: int, number: int | None = None) -> DecodedRecord:
    number = offset if number is None else number
    return DecodedRecord(offset, NOW_MS + number, b"key-%d" % (number % 7), b"value-%d" % number, ())


def numbers(begin: int, end: int) -> list[DecodedRecord]:
    return [record(number) for number in range(begin, end)]


def found(proof: PartitionProof) -> Found:
    return [(each.kind, each.source_offset, each.target_offset, each.count) for each in proof.differences]


def damaged(damage: str, at: int, count: int) -> list[DecodedRecord]:
    """A copy of so many records with one that is wrong."""
    records = numbers(0, count)
    match damage:
        case "dropped":
            del records[at]
        case "changed":
            records[at] = records[at]._replace(headers=((b"h", b"1"),))
        case "foreign":
            records.insert(at, STRANGER)
        case "doubled":
            records.insert(at, records[at])
    return records_at(records, range(len(records)))


EXPECTED: dict[str, DifferenceKind] = {
    "dropped": DifferenceKind.MISSING,
    "changed": DifferenceKind.CHANGED,
    "foreign": DifferenceKind.FOREIGN,
    "doubled": DifferenceKind.DUPLICATE,
}


def test_the_last_record_of_a_range_is_compared() -> None:
    """As with --to: the logs continue behind it."""
    for damage in EXPECTED:
        for codec in [Codec.NONE, Codec.ZSTD]:
            for size in [5, 37]:
                with about(damage, codec, size):
                    source = MemoryLog.of(numbers(0, 2_000), sizes=[size], codec=codec)
                    target = MemoryLog.of(damaged(damage, 599, 2_000), sizes=[11])
                    proof = prove(source, target, source_goal=600, target_goal=0, tail_is_free=True)
                    at = 599 if damage != "doubled" else 600
                    assert found(proof) == [(EXPECTED[damage], 599, at, 1)]
                    assert proof.records == (600 if damage in ("foreign", "doubled") else 599)
                    assert target.reads * 3 * 11 < 1_200, "what is far behind the range is not read"


@pytest.mark.parametrize("damage", ["dropped", "changed"])
@pytest.mark.parametrize("copied", [600, 605])
def test_the_last_record_of_a_range_is_compared_at_the_end_of_a_copy(damage: str, copied: int) -> None:
    source = MemoryLog.of(numbers(0, 2_000))
    target = MemoryLog.of(damaged(damage, 599, copied))
    proof = prove(source, target, source_goal=600, target_goal=0, tail_is_free=True, position=copied)
    at = None if damage == "dropped" and copied == 600 else 599
    assert found(proof) == [(EXPECTED[damage], 599, at, 1)]


@pytest.mark.parametrize("damage", ["dropped", "changed"])
@pytest.mark.parametrize("size", [5, 37])
def test_the_first_record_of_a_range_is_compared(damage: str, size: int) -> None:
    """As with --from: the copy has what comes before it."""
    source = MemoryLog.of(numbers(0, 900), sizes=[size])
    target = MemoryLog.of(damaged(damage, 500, 900))
    proof = prove(source, target, source_start=500, source_lost=(), head_is_free=True)
    assert found(proof) == [(EXPECTED[damage], 500, 500, 1)]
    assert proof.not_compared == []
    assert proof.records == 399


def test_what_stands_behind_the_end_of_a_copy_that_ends_is_foreign() -> None:
    """As with `twinlog copy`: the source has grown since, and the copy has nothing of that."""
    source = MemoryLog.of(numbers(0, 100))
    target = MemoryLog.of(damaged("foreign", 60, 60))
    proof = prove(source, target, source_goal=60, position=60)
    assert found(proof) == [(DifferenceKind.FOREIGN, None, 60, 1)]
    assert proof.not_compared == []


@pytest.mark.parametrize("damage", ["dropped", "changed"])
def test_the_first_record_that_both_sides_hold_is_compared_where_offsets_are_kept(damage: str) -> None:
    """Retention took the same of both: the offsets tell what it cannot have taken."""
    source = MemoryLog.of(numbers(100, 300), start=100)
    kept = numbers(100, 300)
    if damage == "dropped":
        del kept[0]
    else:
        kept[0] = kept[0]._replace(key=None)
    target = MemoryLog.of(kept, start=100)
    proof = prove(source, target, offsets_kept_from=0)
    assert found(proof) == [(EXPECTED[damage], 100, 100 if damage == "changed" else 101, 1)]


def test_a_foreign_record_in_a_hole_behind_what_retention_took_is_found_where_offsets_are_kept() -> None:
    source = MemoryLog.of(numbers(101, 300), start=100)
    target = MemoryLog.of([*numbers(90, 100), STRANGER._replace(offset=100), *numbers(101, 300)], start=90)
    proof = prove(source, target, offsets_kept_from=0)
    assert found(proof) == [(DifferenceKind.FOREIGN, 101, 100, 1)]
    assert [(each.reason, each.from_offset, each.to_offset) for each in proof.not_compared] == [
        (NotComparedReason.SOURCE_RETENTION, 90, 100)
    ]


@pytest.mark.parametrize("until", [None, 40])
def test_offsets_are_compared_until_a_copy_has_its_own(until: int | None) -> None:
    source = MemoryLog.of(numbers(0, 100))
    target = MemoryLog.of([record(number + (number >= 60), number) for number in range(100)], start=0)
    proof = prove(source, target, offsets_kept_from=0, offsets_kept_until=until)
    assert found(proof) == ([(DifferenceKind.CHANGED, 60, 61, 40)] if until is None else [])
    early = MemoryLog.of([record(number + (number >= 20), number) for number in range(100)], start=0)
    proof = prove(source, early, offsets_kept_from=0, offsets_kept_until=until)
    assert found(proof) == [(DifferenceKind.CHANGED, 20, 21, 80 if until is None else 20)]
    assert not proof.same_offsets


@pytest.mark.parametrize("value", [None, b""])
def test_another_timestamp_of_a_record_without_content_is_one_change(value: bytes | None) -> None:
    records = [DecodedRecord(offset, NOW_MS + offset, None, value, ()) for offset in range(50)]
    copied = [*records]
    copied[20] = copied[20]._replace(timestamp_ms=NOW_MS + 777)
    proof = prove(MemoryLog.of(records), MemoryLog.of(copied))
    assert found(proof) == [(DifferenceKind.CHANGED, 20, 20, 1)]
    assert proof.differences[0].changed == ("timestamp",)


def test_a_copy_of_which_every_record_is_changed_is_judged() -> None:
    count = 30_000
    records = [record(number) for number in range(count)]
    copied = [each._replace(headers=((b"h", b"1"),)) for each in records]
    proof = prove(MemoryLog.of(records, sizes=[500]), MemoryLog.of(copied, sizes=[500]))
    assert found(proof) == [(DifferenceKind.CHANGED, 0, 0, count)]


def old_log(contents: Sequence[Sequence[int]]) -> MemoryLog:
    """A log of compressed messages in the format v1, each with the records of these numbers."""
    log = MemoryLog()
    for offsets in contents:
        inner = b"".join(
            old_message(number - offsets[0], b"key", b"value-%d" % number, timestamp_ms=NOW_MS + number)
            for number in offsets
        )
        log.batches += iter_batches(old_wrapper(offsets[-1], inner))
    log.end = contents[-1][-1] + 1
    return log


def as_copied(begin: int, end: int) -> list[DecodedRecord]:
    return [DecodedRecord(at, NOW_MS + at, b"key", b"value-%d" % at, ()) for at in range(begin, end)]


@pytest.mark.parametrize("to", [3, 10, 15, 20])
def test_a_range_that_ends_within_a_message_of_an_old_format_is_compared_to_its_end(to: int) -> None:
    """Such a message tells only the offset of its last record."""
    source = old_log([range(10), range(10, 20), range(20, 30)])
    target = MemoryLog.of(as_copied(0, 30))
    options: dict[str, Any] = {"source_goal": to, "source_limit": to, "target_goal": 0, "tail_is_free": True}
    proof = prove(source, target, **options)
    assert (found(proof), proof.records) == ([], to)
    last = to - 1
    wrong = [each if each.offset != last else each._replace(value=b"x") for each in as_copied(0, 30)]
    assert found(prove(source, MemoryLog.of(wrong), **options)) == [(DifferenceKind.CHANGED, last, last, 1)]


def test_a_long_known_gap_is_passed_whatever_it_holds() -> None:
    source = MemoryLog.of(numbers(0, 3_000), sizes=[50])
    kept = [*numbers(0, 500), *numbers(2_500, 3_000)]
    target = MemoryLog.of(records_at(kept, range(len(kept))), sizes=[50])
    gap = KnownGap(from_offset=500, to_offset=2_500, reason="SKIPPED_BY_OPERATOR", acknowledged=True)
    proof = prove(source, target, gaps=(gap,))
    assert found(proof) == []
    assert [(each.reason, each.from_offset, each.to_offset) for each in proof.not_compared] == [
        (NotComparedReason.KNOWN_GAP, 500, 2_500)
    ]
    assert source.reads < 20, "what is known to be left out is not read"


@pytest.mark.parametrize("lost", [None, 1])
def test_a_gap_whose_records_were_copied_again_excuses_nothing_any_more(lost: int | None) -> None:
    """As after a new copy was made: the ledger still tells of the one that was deleted."""
    source = MemoryLog.of(numbers(0, 300))
    copied = [each for each in numbers(0, 300) if each.offset != 150]
    target = MemoryLog.of(records_at(copied, range(len(copied))))
    gap = KnownGap(
        from_offset=0, to_offset=300, reason="TARGET_RECREATED", acknowledged=True, lost_of_joined=lost
    )
    proof = prove(source, target, gaps=(gap,))
    assert found(proof) == ([(DifferenceKind.MISSING, 150, 150, 1)] if lost is None else [])


@pytest.mark.parametrize("lost", [3, 50, 202, 203])
def test_a_joined_gap_excuses_no_more_records_than_it_lost(lost: int) -> None:
    """Also where the rest of its span is missing in a row that is longer than a window."""
    source = MemoryLog.of(numbers(0, 400))
    copied = [each for each in numbers(0, 400) if not (20 <= each.offset < 23 or 190 <= each.offset < 390)]
    target = MemoryLog.of(records_at(copied, range(len(copied))))
    gap = KnownGap(
        from_offset=10, to_offset=390, reason="TARGET_RECREATED", acknowledged=True, lost_of_joined=lost
    )
    proof = prove(source, target, gaps=(gap,))
    assert sum(each.count for each in proof.differences) == max(0, 203 - lost)


def test_a_record_before_what_is_compared_explains_that_it_is_there_twice() -> None:
    """As where a verification continues behind what is proven."""
    source, target = MemoryLog.of(numbers(0, 100)), MemoryLog.of([*numbers(0, 100), record(100, 7)])
    bounds: dict[str, Any] = {"source_start": 60, "target_start": 60, "source_lost": (), "target_lost": ()}
    proof = prove(source, target, **bounds, source_log_start=0)
    assert found(proof) == [(DifferenceKind.DUPLICATE, 7, 100, 1)]


def test_what_only_some_retention_took_is_still_excused_where_offsets_are_kept() -> None:
    source = MemoryLog.of(numbers(40, 300), start=40)
    target = MemoryLog.of(numbers(100, 300), start=100)
    proof = prove(source, target, offsets_kept_from=0, source_lost=(Range(0, 40),))
    assert found(proof) == []
    assert [(each.side, each.reason, each.from_offset, each.to_offset) for each in proof.not_compared] == [
        ("source", NotComparedReason.TARGET_RETENTION, 40, 100)
    ]
