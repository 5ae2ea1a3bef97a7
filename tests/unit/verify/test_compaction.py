"""Compacted logs, as the log cleaner leaves them: a copy that is right is never accused, whatever was cleaned
on either side, and what is wrong with the last record of a key is found."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from twinlog.batches import Codec, DecodedRecord
from twinlog.comparison.model import DifferenceKind
from twinlog.testing.mirror_logs import MemoryLog, prove
from twinlog.verify.report import safe_range
from unit.cases import about

NOW_MS = 1_700_000_000_000
KEYS = [b"a", b"b", b"c", b"d"]


@st.composite
def histories(draw: st.DrawFn, *, tombstones: bool = True) -> list[DecodedRecord]:
    """What was written, before anything was cleaned."""
    flavours = [0, 1, 2] if tombstones else [0, 1]
    written = draw(
        st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(flavours)), min_size=1, max_size=40)
    )
    return [
        DecodedRecord(offset, NOW_MS + offset, key, None if flavour == 2 else b"%d" % offset, ())
        for offset, (key, flavour) in enumerate(written)
    ]


def cleaned(records: Sequence[DecodedRecord], until: int, *, tombstones_too: bool) -> list[DecodedRecord]:
    """As the cleaner leaves a log whose first `until` records it has been over."""
    last = {record.key: record.offset for record in records[:until]}
    return [
        record
        for record in records
        if record.offset >= until
        or (last[record.key] == record.offset and not (tombstones_too and record.value is None))
    ]


def log(records: Sequence[DecodedRecord], data: st.DataObject) -> MemoryLog:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    return MemoryLog.of(list(records), start=0, sizes=sizes, codec=data.draw(st.sampled_from(list(Codec))))


@given(histories(), st.data())
def test_whatever_was_cleaned_on_either_side_a_copy_is_not_accused(
    written: list[DecodedRecord], data: st.DataObject
) -> None:
    sides = [
        cleaned(written, data.draw(st.integers(0, len(written) - 1)), tombstones_too=data.draw(st.booleans()))
        for _ in range(2)
    ]
    proof = prove(log(sides[0], data), log(sides[1], data), source_compacted=True, target_compacted=True)
    assert proof.differences == []


@given(histories(), st.integers(1, 40), st.data())
def test_records_that_were_written_twice_accuse_no_copy_whatever_was_cleaned(
    written: list[DecodedRecord], at_once: int, data: st.DataObject
) -> None:
    """A producer without idempotence repeats them with everything, and LogAppendTime leaves times out."""
    repeated = [
        each._replace(timestamp_ms=NOW_MS + each.offset // at_once, value=each.value and b"v")
        for each in written
    ]
    are_compacted = data.draw(st.sampled_from([(True, True), (False, True), (True, False)]))
    sides = [
        cleaned(repeated, data.draw(st.integers(0, len(written) - 1)) if is_so else 0, tombstones_too=False)
        for is_so in are_compacted
    ]
    proof = prove(
        log(sides[0], data),
        log(sides[1], data),
        source_compacted=are_compacted[0],
        target_compacted=are_compacted[1],
    )
    assert proof.differences == []


@given(histories(), st.data())
def test_what_was_cleaned_because_of_records_that_are_newer_than_the_comparison_is_no_difference(
    written: list[DecodedRecord], data: st.DataObject
) -> None:
    """The ends were taken before the first record was read; everything was copied since, too."""
    end = len(written)
    goal = data.draw(st.integers(0, end))
    target_limit = data.draw(st.integers(goal, end))
    source_limit = data.draw(st.integers(target_limit, end))
    sides = [
        cleaned(written, data.draw(st.integers(0, end - 1)), tombstones_too=data.draw(st.booleans()))
        for _ in range(2)
    ]
    proof = prove(
        log(sides[0], data),
        log(sides[1], data),
        source_compacted=True,
        target_compacted=True,
        source_start=0,
        source_goal=goal,
        source_limit=source_limit,
        target_start=0,
        target_goal=target_limit,
        target_limit=target_limit,
        position=target_limit,
    )
    assert (proof.differences, proof.is_complete) == ([], True)


def of(*written: tuple[int, bytes, bytes | None]) -> MemoryLog:
    """A log that begins at 0, of offsets, keys and values."""
    return MemoryLog.of(
        [DecodedRecord(at, NOW_MS + at, key, value, ()) for at, key, value in written], start=0
    )


COMPACTED: dict[str, Any] = {"source_compacted": True, "target_compacted": True}


@pytest.mark.parametrize("cleaned_first", ["source", "copy"])
@pytest.mark.parametrize("goal", [3, 2, 1])
def test_a_record_that_was_removed_during_the_comparison_is_explained_by_one_behind_its_limits(
    cleaned_first: str, goal: int
) -> None:
    """Also the last one below the limits, after which nothing is equal."""
    records = [(0, b"b", b"1"), (1, b"c", b"1"), (2, b"d", b"1"), (3, b"bcd"[goal - 1 : goal], b"2")]
    old, new = of(*records), of(*[each for each in records if each[0] != goal - 1])
    source, target = (new, old) if cleaned_first == "source" else (old, new)
    limits: dict[str, Any] = {
        "source_goal": goal,
        "source_limit": goal,
        "target_goal": goal,
        "target_limit": goal,
    }
    proof = prove(source, target, position=goal, **limits, **COMPACTED)
    assert (proof.differences, proof.is_complete, proof.superseded_records) == ([], True, 1)
    assert safe_range(proof).is_whole


def test_a_record_of_somebody_else_is_no_reason_that_the_copy_lacks_a_value() -> None:
    """Also if the comparison ends before the end of the source."""
    for foreign in [b"foreign", None]:
        for until in [3, 2, 1]:
            for is_source_compacted in [True, False]:
                with about(foreign, until, is_source_compacted):
                    source = of((0, b"a", b"1"), (1, b"b", b"1"), (2, b"c", b"1"))
                    target = of((1, b"b", b"1"), (2, b"c", b"1"), (3, b"a", foreign))
                    to: dict[str, Any] = (
                        {} if until == 3 else {"source_goal": until, "target_goal": 0, "tail_is_free": True}
                    )
                    proof = prove(
                        source, target, source_compacted=is_source_compacted, target_compacted=True, **to
                    )
                    assert (DifferenceKind.MISSING, 0) in {
                        (each.kind, each.source_offset) for each in proof.differences
                    }
                    assert safe_range(proof).until == 0


def test_a_value_is_not_safe_while_its_copy_waits_for_the_cleaner() -> None:
    """The copy has a later record of the key: its own record goes with the next cleaning."""
    written = [(0, b"b", b"1"), (1, b"a", b"1"), (2, b"c", b"1")]
    proof = prove(of(*written), of(*written, (3, b"a", b"foreign")), **COMPACTED)
    assert [(each.kind, each.source_offset) for each in proof.differences] == [(DifferenceKind.FOREIGN, None)]
    safe = safe_range(proof)
    assert (safe.until, safe.end, safe.reason) == (1, 3, "FOREIGN")


def test_a_foreign_record_that_the_next_record_of_its_key_supersedes_stands_in_nobodys_way() -> None:
    source = of((0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"2"))
    target = of((0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"foreign"), (3, b"a", b"2"))
    assert safe_range(prove(source, target, **COMPACTED)).until == 2


def test_a_tombstone_may_be_gone_from_the_copy_although_somebody_wrote_its_key() -> None:
    source = of((0, b"a", None), (1, b"b", b"1"))
    target = of((1, b"b", b"1"), (2, b"a", b"foreign"))
    proof = prove(source, target, **COMPACTED)
    assert [each.kind for each in proof.differences] == [DifferenceKind.FOREIGN]


@given(histories(tombstones=False), st.data())
def test_the_last_record_of_a_key_that_the_copy_changed_is_found(
    written: list[DecodedRecord], data: st.DataObject
) -> None:
    last = {record.key: record.offset for record in written}
    at = data.draw(st.sampled_from(sorted(last.values())))
    wrong = [each._replace(value=b"wrong") if each.offset == at else each for each in written]
    source = cleaned(written, data.draw(st.integers(0, len(written) - 1)), tombstones_too=False)
    target = cleaned(wrong, data.draw(st.integers(0, len(written) - 1)), tombstones_too=False)
    proof = prove(log(source, data), log(target, data), source_compacted=True, target_compacted=True)
    found = {(each.kind, each.source_offset, each.target_offset): each.changed for each in proof.differences}
    assert found.pop((DifferenceKind.CHANGED, at, at)) == ("value",)
    # What the right value had superseded, the wrong one does not explain.
    assert {written[offset].key for _, offset, _ in found if offset is not None} <= {written[at].key}


@given(histories(), st.data())
def test_a_record_that_both_logs_hold_is_compared_whatever_is_written_later(
    written: list[DecodedRecord], data: st.DataObject
) -> None:
    sides = [
        cleaned(written, data.draw(st.integers(0, len(written) - 1)), tombstones_too=data.draw(st.booleans()))
        for _ in range(2)
    ]
    both = sorted({each.offset for each in sides[0]} & {each.offset for each in sides[1]})
    assume(both)
    at = data.draw(st.sampled_from(both))
    changes: list[dict[str, Any]] = [{"value": b"wrong"}, {"headers": ((b"h", b"wrong"),)}]
    change = data.draw(st.sampled_from(changes))
    wrong = [each._replace(**change) if each.offset == at else each for each in sides[1]]
    kept = data.draw(st.sampled_from([None, 0]))
    proof = prove(
        log(sides[0], data),
        log(wrong, data),
        source_compacted=True,
        target_compacted=True,
        offsets_kept_from=kept,
    )
    assert (DifferenceKind.CHANGED, at, at) in {
        (each.kind, each.source_offset, each.target_offset) for each in proof.differences
    }


@pytest.mark.parametrize("change", [{"key": b"x"}, {"timestamp_ms": NOW_MS + 9}, {"value": b"wrong"}])
@pytest.mark.parametrize("kept", [None, 0])
def test_a_hole_beside_a_changed_record_does_not_explain_it(change: dict[str, Any], kept: int | None) -> None:
    written = [(0, b"k", b"right"), (2, b"x", b"1"), (3, b"k", b"new"), (4, b"x", b"2"), (5, b"z", b"1")]
    source = [DecodedRecord(offset, NOW_MS + offset, key, value, ()) for offset, key, value in written]
    target = [source[0]._replace(**change), *source[1:]]
    proof = prove(
        MemoryLog.of(source, start=0),
        MemoryLog.of(target, start=0),
        source_compacted=True,
        target_compacted=True,
        offsets_kept_from=kept,
    )
    (changed,) = proof.differences
    assert (changed.kind, changed.source_offset, changed.target_offset) == (DifferenceKind.CHANGED, 0, 0)


@pytest.mark.parametrize("source_compacted", [False, True])
def test_what_only_the_copy_has_compacted_may_not_be_deleted_on_the_source(source_compacted: bool) -> None:
    """Its older values are nowhere else. Where both are compacted nobody counts on them."""
    written = [DecodedRecord(offset, NOW_MS + offset, b"%d" % (offset % 7), b"v", ()) for offset in range(60)]
    source = MemoryLog.of(written)
    target = MemoryLog.of([each for each in written if each.offset < 20 or each.offset >= 40])
    proof = prove(source, target, source_compacted=source_compacted, target_compacted=True)
    assert (proof.differences, proof.is_complete, proof.superseded_records) == ([], True, 20)
    safe = safe_range(proof)
    assert (safe.until, safe.reason) == ((60, "") if source_compacted else (20, "TARGET_RETENTION"))


def same_time(*written: tuple[int, bytes, bytes | None], end: int | None = None) -> MemoryLog:
    """As `of`, and records with equal keys and values are equal."""
    return MemoryLog.of(
        [DecodedRecord(at, NOW_MS, key, value, ()) for at, key, value in written], start=0, end=end
    )


def in_a_row(*written: tuple[bytes, bytes | None], end: int | None = None) -> MemoryLog:
    return same_time(*((at, *each) for at, each in enumerate(written)), end=end)


def test_records_that_were_copied_twice_are_duplicates_though_the_source_was_cleaned_elsewhere() -> None:
    """What a crash at least once leaves; the holes of the source lie before all of these records."""
    source = [(at, b"%d" % at, b"v") for at in [*range(20), *range(100, 130)]]
    copied = [each[1:] for each in source]
    copied[40:40] = copied[30:40]
    proof = prove(same_time(*source), in_a_row(*copied), source_compacted=True)
    assert {each.kind for each in proof.differences} == {DifferenceKind.DUPLICATE}
    assert sum(each.count for each in proof.differences) == 10


def test_one_hole_of_a_copy_explains_one_record_that_it_lacks() -> None:
    others = [(b"%d" % number, b"v") for number in range(30)]
    written = [each for at in range(10) for each in ((b"a", b"v"), *others[3 * at : 3 * at + 3])]
    copied = [written[0], *others, (b"a", b"v")]
    proof = prove(in_a_row(*written, (b"a", b"v")), in_a_row(*copied, end=len(copied) + 1), **COMPACTED)
    assert {each.kind for each in proof.differences} == {DifferenceKind.MISSING}
    assert sum(each.count for each in proof.differences) >= 8


def test_records_that_are_newer_than_the_comparison_take_no_holes_from_equal_ones() -> None:
    newer = [(5 + number, b"x", b"%d" % number) for number in range(6)]
    written = [(0, b"a", b"v"), (1, b"b", b"v"), (2, b"a", b"v"), (3, b"a", b"v"), (4, b"x", b"v"), *newer]
    limits: dict[str, Any] = dict.fromkeys(
        ["source_goal", "source_limit", "target_goal", "target_limit", "position"], 5
    )
    copy = same_time(written[1], written[3], *newer)
    assert prove(same_time(*written), copy, **limits, **COMPACTED).differences == []
