"""Records that are equal in everything, their times too: content does not tell which of them a copy has."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twinlog.model import Record, TopicPartition
from twinlog_checkpoint.translation.exact import ExactTranslator
from twinlog_checkpoint.translation.history import OffsetPair
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.exact_questions import translate, translator, translator_back
from unit.checkpoint.mirrored_logs import COPY, ORIGIN, MirroredLogs

Kinds = st.lists(st.integers(0, 1), min_size=1, max_size=12)


def mirrored(kinds: Sequence[int], *, begin: int, end: int, synced: Sequence[int] = ()) -> MirroredLogs:
    """A source with these records, of which a copy has those from `begin` to before `end`."""
    return copied(kinds, range(begin, end), synced=synced)


def copied(kinds: Sequence[int], alive: Sequence[int], *, synced: Collection[int] = ()) -> MirroredLogs:
    """A source with these records, of which a copy has those that are alive."""
    logs = MirroredLogs(seed=1, exactly_once=False)
    logs.source.append(ORIGIN, *map(_record, kinds))
    for downstream, upstream in enumerate(alive):
        logs.target.append(COPY, _record(kinds[upstream]))
        if upstream in synced:
            logs.send(OffsetPair(upstream, downstream))
    return logs


def alignments(
    kinds: Sequence[int], alive: Sequence[int], synced: Collection[int]
) -> Iterator[Sequence[int]]:
    """Every choice of originals that a copy with these records may have, by all that is seen of it."""
    for places in combinations(range(len(kinds)), len(alive)):
        if all(
            kinds[one] == kinds[other] and (one == other or other not in synced)
            for one, other in zip(places, alive, strict=True)
        ):
            yield places


async def assert_never_ahead_of_any_alignment(
    kinds: Sequence[int], alive: Sequence[int], synced: Collection[int]
) -> None:
    """Forth, back, and forth again: what was found for one way must not mislead about the other."""
    found = list(alignments(kinds, alive, synced))
    there = {
        offset: min(sum(place < offset for place in places) for places in found)
        for offset in range(len(kinds) + 1)
    }
    back = {number: min(places[number] for places in found) for number in range(len(alive))}
    if alive:
        back[len(alive)] = min(places[-1] for places in found) + 1
    for together in (True, False):
        logs = copied(kinds, alive, synced=synced)
        await assert_never_ahead(translator(logs), ORIGIN, there, together=together)
        await assert_never_ahead(translator_back(logs), COPY, back, together=together)
        await assert_never_ahead(translator(logs), ORIGIN, there, together=together)


@pytest.mark.parametrize("count", [2, 3])
async def test_no_answer_is_ahead_of_what_any_small_copy_may_be(count: int) -> None:
    for kinds in product((0, 1), repeat=count):
        for size in range(count + 1):
            for alive in combinations(range(count), size):
                for synced in [(), *combinations(alive, 1), *combinations(alive, 2)]:
                    await assert_never_ahead_of_any_alignment(kinds, alive, synced)


@given(
    kinds=st.lists(st.integers(0, 2), min_size=1, max_size=12),
    alive=st.sets(st.integers(0, 11)),
    synced=st.sets(st.integers(0, 11), max_size=3),
)
@example(kinds=[1, 0, 2, 0, 1], alive={0, 3, 4}, synced={0, 3})
@example(kinds=[0] * 5, alive={0, 1, 2, 4}, synced={0})
@example(kinds=[0, 1] * 4, alive={0, 1, 4, 5, 6, 7}, synced={0, 6})
@example(kinds=[0, 0, 1, 1, 0, 0, 0, 1], alive={0, 4, 5}, synced={0, 4, 5})
async def test_no_answer_is_ahead_where_the_copy_lacks_records(
    kinds: list[int], alive: set[int], synced: set[int]
) -> None:
    kept = sorted(each for each in alive if each < len(kinds))
    await assert_never_ahead_of_any_alignment(kinds, kept, synced.intersection(kept))


@pytest.mark.parametrize("kinds", [[7] * 9, [0, 1] * 4, [3, 7, 7, 7, 4]])
@pytest.mark.parametrize("synced", [{0}, {0, 2}])
async def test_a_whole_copy_is_exact_whatever_repeats(kinds: list[int], synced: set[int]) -> None:
    logs = copied(kinds, range(len(kinds)), synced=synced)
    found = await translate(translator(logs), range(len(kinds) + 1))
    assert {offset: told.downstream_offset for offset, told in found.items()} == {
        offset: offset for offset in range(len(kinds) + 1)
    }
    assert {told.verdict for told in found.values()} == {Verdict.EXACT, Verdict.UP_TO_DATE}


async def test_only_places_among_equal_records_are_in_doubt_where_the_copy_lacks_one() -> None:
    """Behind the run, and before it, no record is equal to one on the other side of the place."""
    kinds = [1, 2, 7, 7, 7, 3, 4, 5]
    logs = copied(kinds, [0, 1, 2, 3, 5, 6, 7], synced={0})
    found = await translate(translator(logs), range(9))
    assert {offset: (told.verdict, told.downstream_offset) for offset, told in found.items()} == {
        0: (Verdict.EXACT, 0),
        1: (Verdict.EXACT, 1),
        2: (Verdict.EXACT, 2),
        3: (Verdict.FLOOR, 2),
        4: (Verdict.FLOOR, 2),
        5: (Verdict.EXACT, 4),
        6: (Verdict.EXACT, 5),
        7: (Verdict.EXACT, 6),
        8: (Verdict.UP_TO_DATE, 7),
    }


def _record(kind: int) -> Record:
    return Record(offset=-1, timestamp_ms=kind, key=None, value=b"%d" % kind)


async def assert_never_ahead(
    exact: ExactTranslator, partition: TopicPartition, right: Mapping[int, int], *, together: bool
) -> None:
    for offsets in [list(right)] if together else [[offset] for offset in right]:
        for offset, told in (await translate(exact, offsets, partition)).items():
            place = told.downstream_offset
            assert place is None or place <= right[offset], (partition.topic, offset, told)


@given(kinds=Kinds, cuts=st.tuples(*[st.integers(0, 12)] * 3), synced=st.sets(st.integers(0, 12), max_size=2))
@example(kinds=[7] * 5, cuts=(3, 5, 0), synced=set())
@example(kinds=[7] * 5, cuts=(0, 2, 1), synced=set())
@example(kinds=[0, 0, 1, 1, 0, 0], cuts=(3, 5, 0), synced={4})
async def test_no_answer_is_ahead_where_the_copy_began_later(
    kinds: list[int], cuts: tuple[int, int, int], synced: set[int]
) -> None:
    """Also without any sync, where the copy is not at its end, and where the source has lost its first
    records. What was found for one way must not mislead about the other."""
    begin, end, gone = (min(cut, len(kinds)) for cut in cuts)
    end = max(begin, end)
    logs = mirrored(kinds, begin=begin, end=end, synced=sorted(synced & set(range(begin, end))))
    logs.source.log(ORIGIN).delete_before(gone)
    there = {offset: max(0, offset - begin) for offset in range(len(kinds) + 1)}
    back = {offset: max(gone, offset + begin) for offset in range(end - begin + 1)}
    for together in (True, False):
        await assert_never_ahead(translator(logs), ORIGIN, there, together=together)
        await assert_never_ahead(translator_back(logs), COPY, back, together=together)


async def test_records_that_differ_have_their_exact_places_without_any_sync() -> None:
    logs = mirrored(range(9), begin=3, end=7)
    found = await translate(translator(logs), range(10))
    assert {offset: told.downstream_offset for offset, told in found.items()} == {
        offset: min(max(0, offset - 3), 4) for offset in range(10)
    }
    assert {told.verdict for told in found.values()} == {Verdict.EXACT, Verdict.UP_TO_DATE}
