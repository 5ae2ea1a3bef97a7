"""Records that are equal in everything, their times too: content does not tell which of them a copy has."""

from collections.abc import Mapping, Sequence

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
    logs = MirroredLogs(seed=1, exactly_once=False)
    source, target = logs.source.log(ORIGIN, "write"), logs.target.log(COPY, "write")
    for kind in kinds:
        source.append(_record(kind))
    for kind in kinds[begin:end]:
        target.append(_record(kind))
    for upstream in synced:
        logs.send(OffsetPair(upstream, upstream - begin))
    return logs


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
    logs.source.log(ORIGIN, "retain").delete_before(gone)
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
