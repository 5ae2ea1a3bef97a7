"""Every way in which a copy can be wrong is found and named; a copy that is right is never accused."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import Codec, DecodedRecord
from twinlog.comparison.model import Difference, DifferenceKind, PartitionProof
from twinlog.testing.mirror_logs import MemoryLog, prove

NOW_MS = 1_700_000_000_000
Content = tuple[int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]


@st.composite
def contents(draw: st.DrawFn, *, least: int = 1, most: int = 40) -> list[Content]:
    """Records that differ from each other, of every awkward kind."""
    count = draw(st.integers(least, most))
    flavours = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    return [_content(index, flavour) for index, flavour in enumerate(flavours)]


def _content(index: int, flavour: int) -> Content:
    key: bytes | None = b"key-%d" % (index % 5)
    value: bytes | None = b"value-%d" % index
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    if flavour == 1:
        key = None
    elif flavour == 2:
        value = None
    elif flavour == 3:
        key, value = b"", b""
    elif flavour == 4:
        headers = ((b"trace", b"%d" % index), (b"trace", b"twice"), (b"none", None), (b"empty", b""))
    elif flavour == 5:
        value = b"x" * 100 + b"%d" % index
    return NOW_MS + index, key, value, headers


def records_of(
    contents: Sequence[Content], *, first: int = 0, holes: Sequence[int] = ()
) -> list[DecodedRecord]:
    """At offsets from `first` on; before every record of those numbers is a hole."""
    records, offset = [], first
    for number, content in enumerate(contents):
        offset += number in holes
        records.append(DecodedRecord(offset, *content))
        offset += 1
    return records


sizes = st.lists(st.integers(1, 40), min_size=1, max_size=4)
codecs = st.sampled_from(list(Codec))


@dataclass(frozen=True, slots=True)
class Framing:
    """How both logs are cut into batches, and where markers leave holes in the source."""

    source_sizes: list[int]
    target_sizes: list[int]
    source_codec: Codec
    target_codec: Codec
    holes: list[int]
    first: int


framings = st.builds(
    Framing, sizes, sizes, codecs, codecs, st.lists(st.integers(0, 100), max_size=5), st.just(0)
)
same_framings = st.builds(lambda some, codec: Framing(some, some, codec, codec, [], 0), sizes, codecs)


def compared(contents: Sequence[Content], copied: Sequence[Content], framing: Framing) -> PartitionProof:
    source = MemoryLog.of(
        records_of(contents, first=framing.first, holes=framing.holes),
        sizes=framing.source_sizes,
        codec=framing.source_codec,
        start=framing.first,
    )
    target = MemoryLog.of(records_of(copied), sizes=framing.target_sizes, codec=framing.target_codec, start=0)
    return prove(source, target)


def source_offset(number: int, framing: Framing) -> int:
    return framing.first + number + sum(hole <= number for hole in set(framing.holes))


def single(differences: Sequence[Difference]) -> list[tuple[DifferenceKind, int | None, int | None]]:
    """Runs as their records."""
    found = []
    for each in differences:
        for number in range(each.count):
            source = each.source_offset
            target = each.target_offset
            if source is not None and each.kind is not DifferenceKind.FOREIGN:
                source += number
            if target is not None and each.kind is not DifferenceKind.MISSING:
                target += number
            found.append((each.kind, source, target))
    return found


@given(contents(), st.one_of(framings, same_framings))
def test_a_good_copy_is_never_accused(contents: list[Content], framing: Framing) -> None:
    proof = compared(contents, contents, framing)
    assert proof.differences == []
    assert proof.not_compared == []
    assert proof.records == len(contents)


@given(contents(), same_framings)
def test_batches_that_were_copied_unopened_are_compared_unopened(
    contents: list[Content], framing: Framing
) -> None:
    proof = compared(contents, contents, framing)
    assert proof.unopened_records == len(contents)
    assert proof.same_offsets


@given(contents(), st.one_of(framings, same_framings), st.data())
def test_one_dropped_record_is_missing(
    contents: list[Content], framing: Framing, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(contents) - 1))
    copied = [*contents[:number], *contents[number + 1 :]]
    after = number if number < len(copied) else None
    proof = compared(contents, copied, framing)
    assert single(proof.differences) == [(DifferenceKind.MISSING, source_offset(number, framing), after)]


@given(contents(), st.one_of(framings, same_framings), st.data())
def test_one_doubled_record_is_a_duplicate(
    contents: list[Content], framing: Framing, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(contents) - 1))
    at = data.draw(st.integers(number + 1, len(contents)))
    copied = [*contents[:at], contents[number], *contents[at:]]
    proof = compared(contents, copied, framing)
    assert len(proof.differences) == 1
    (kind, of, place) = single(proof.differences)[0]
    # Next to its original either of the two is the one too many.
    assert (kind, of) == (DifferenceKind.DUPLICATE, source_offset(number, framing))
    assert place in (at, number)


@given(contents(), st.one_of(framings, same_framings), st.data())
def test_records_copied_twice_in_a_row_are_duplicates(
    contents: list[Content], framing: Framing, data: st.DataObject
) -> None:
    """What MM2 does after a crash: it goes back and copies some records once more."""
    begin = data.draw(st.integers(0, len(contents) - 1))
    end = data.draw(st.integers(begin + 1, len(contents)))
    copied = [*contents[:end], *contents[begin:end], *contents[end:]]
    proof = compared(contents, copied, framing)
    found = single(proof.differences)
    assert {kind for kind, _, _ in found} == {DifferenceKind.DUPLICATE}
    assert [of for _, of, _ in found] == [source_offset(number, framing) for number in range(begin, end)]


@given(contents(least=2), st.one_of(framings, same_framings), st.data())
def test_two_swapped_records_are_out_of_order(
    contents: list[Content], framing: Framing, data: st.DataObject
) -> None:
    one = data.draw(st.integers(0, len(contents) - 2))
    other = data.draw(st.integers(one + 1, len(contents) - 1))
    copied = [*contents]
    copied[one], copied[other] = copied[other], copied[one]
    proof = compared(contents, copied, framing)
    found = single(proof.differences)
    assert {kind for kind, _, _ in found} == {DifferenceKind.ORDER}
    assert len(found) == (1 if other == one + 1 else 2)
    assert {of for _, of, _ in found} <= {source_offset(one, framing), source_offset(other, framing)} | (
        {source_offset(one + 1, framing)} if other == one + 2 else set()
    )


@given(contents(), st.one_of(framings, same_framings), st.data())
def test_a_foreign_record_is_foreign(contents: list[Content], framing: Framing, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(contents)))
    stranger: Content = (NOW_MS - 77, b"stranger", b"not of the source", ())
    proof = compared(contents, [*contents[:at], stranger, *contents[at:]], framing)
    before = source_offset(at, framing) if at < len(contents) else None
    assert single(proof.differences) == [(DifferenceKind.FOREIGN, before, at)]


def flipped(field: bytes) -> bytes:
    return bytes((field[0] ^ 1,)) + field[1:]


@pytest.mark.parametrize(
    "part", ["key", "value", "headers", "timestamp", "null key", "null value", "lost header", "header order"]
)
@given(contents=contents(), framing=st.one_of(framings, same_framings), data=st.data())
def test_one_changed_part_of_a_record_is_named(
    part: str, contents: list[Content], framing: Framing, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(contents) - 1))
    headers = ((b"one", b"1"), (b"two", b"2"))
    before: Content = (NOW_MS + number, b"the key", b"the value %d" % number, headers)
    at, key, value, _ = before
    after, named = {
        "key": ((at, flipped(b"the key"), value, headers), "key"),
        "value": ((at, key, flipped(value or b""), headers), "value"),
        "headers": ((at, key, value, ((b"one", b"1"), (b"two", flipped(b"2")))), "headers"),
        "timestamp": ((at + 1, key, value, headers), "timestamp"),
        "null key": ((at, None, value, headers), "key"),
        "null value": ((at, key, None, headers), "value"),
        "lost header": ((at, key, value, headers[:1]), "headers"),
        "header order": ((at, key, value, headers[::-1]), "headers"),
    }[part]
    contents = [*contents[:number], before, *contents[number + 1 :]]
    proof = compared(contents, [*contents[:number], after, *contents[number + 1 :]], framing)
    assert single(proof.differences) == [(DifferenceKind.CHANGED, source_offset(number, framing), number)]
    assert proof.differences[0].changed == (named,)


@pytest.mark.parametrize("part", ["key", "value", "header"])
@given(contents=contents(), framing=st.one_of(framings, same_framings), data=st.data())
def test_null_is_told_from_empty(
    part: str, contents: list[Content], framing: Framing, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(contents) - 1))

    def with_part(field: bytes | None) -> Content:
        return (
            NOW_MS + number,
            field if part == "key" else b"k",
            field if part == "value" else b"v",
            ((b"h", field if part == "header" else b"x"),),
        )

    contents = [*contents[:number], with_part(None), *contents[number + 1 :]]
    proof = compared(contents, [*contents[:number], with_part(b""), *contents[number + 1 :]], framing)
    assert single(proof.differences) == [(DifferenceKind.CHANGED, source_offset(number, framing), number)]


@given(contents(least=2), st.one_of(framings, same_framings), st.data())
def test_a_copy_that_lost_its_end_misses_it(
    contents: list[Content], framing: Framing, data: st.DataObject
) -> None:
    """The stored position says that all of it was copied."""
    kept = data.draw(st.integers(0, len(contents) - 1))
    proof = compared(contents, contents[:kept], framing)
    assert single(proof.differences) == [
        (DifferenceKind.MISSING, source_offset(number, framing), None)
        for number in range(kept, len(contents))
    ]


@given(contents(least=50, most=60), st.one_of(framings, same_framings), st.data())
def test_several_damages_are_each_named(
    contents: list[Content], framing: Framing, data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True))
    copied = [*contents]
    wanted = []
    done = 0
    for place in sorted(places):
        number = place * 5 + 2
        match data.draw(st.integers(0, 2)):
            case 0:
                del copied[number + done]
                wanted.append((DifferenceKind.MISSING, source_offset(number, framing), number + done))
                done -= 1
            case 1:
                copied.insert(number + done, (NOW_MS - place, b"foreign", b"%d" % place, ()))
                wanted.append((DifferenceKind.FOREIGN, source_offset(number, framing), number + done))
                done += 1
            case _:
                at, key, value, headers = copied[number + done]
                copied[number + done] = (at, key, value, (*headers, (b"more", b"1")))
                wanted.append((DifferenceKind.CHANGED, source_offset(number, framing), number + done))
    proof = compared(contents, copied, framing)
    assert sorted(single(proof.differences), key=str) == sorted(wanted, key=str)


small_contents = st.lists(
    st.sampled_from([(NOW_MS, b"a", b"1", ()), (NOW_MS, b"b", b"2", ()), (NOW_MS, None, None, ())]),
    max_size=60,
)


@given(small_contents, small_contents, st.one_of(framings, same_framings))
def test_logs_of_few_different_records_are_equal_only_when_they_are(
    contents: list[Content], copied: list[Content], framing: Framing
) -> None:
    proof = compared(contents, copied, framing)
    assert (proof.differences == []) == (contents == copied)
    found = [kind for kind, _, _ in single(proof.differences)]
    extra = found.count(DifferenceKind.FOREIGN) + found.count(DifferenceKind.DUPLICATE)
    assert len(copied) == len(contents) + extra - found.count(DifferenceKind.MISSING)


def test_a_difference_among_many_records_costs_one_difference() -> None:
    contents = [_content(index, index % 6) for index in range(4_000)]
    copied = [*contents[:1_999], *contents[2_000:]]
    source = MemoryLog.of(records_of(contents), sizes=[100], codec=Codec.LZ4)
    target = MemoryLog.of(records_of(copied), sizes=[100], codec=Codec.LZ4)
    proof = prove(source, target)
    assert single(proof.differences) == [(DifferenceKind.MISSING, 1_999, 1_999)]


def test_a_run_longer_than_any_first_window_is_found_whole() -> None:
    contents = [_content(index, 0) for index in range(900)]
    copied = [*contents[:500], *contents[100:500], *contents[500:]]
    proof = prove(MemoryLog.of(records_of(contents)), MemoryLog.of(records_of(copied)))
    assert [
        (each.kind, each.source_offset, each.target_offset, each.count) for each in proof.differences
    ] == [(DifferenceKind.DUPLICATE, 100, 500, 400)]
