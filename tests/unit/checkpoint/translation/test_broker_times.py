"""Logs with the broker's own times: records are told apart by key and value alone, and these repeat."""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from twinlog.model import Record, TimestampType
from twinlog_checkpoint.translation.history import OffsetPair
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.exact_questions import translate, translator
from unit.checkpoint.mirrored_logs import COPY, ORIGIN, MirroredLogs

SYNC_EVERY = 100
RECORDS = 1_000


def mirrored(
    values: Sequence[int],
    *,
    copied: Collection[int],
    synced: Collection[int] = (),
    lost_syncs: float = 0.0,
) -> MirroredLogs:
    """A source with these values, of which some were copied, with a sync now and then and where asked for."""
    logs = MirroredLogs(seed=1, exactly_once=False, lost_syncs=lost_syncs)
    for index, value in enumerate(values):
        logs.source.append(
            ORIGIN,
            Record(
                offset=-1,
                timestamp_ms=index,
                timestamp_type=TimestampType.LOG_APPEND_TIME,
                key=None,
                value=b"%d" % value,
            ),
        )
    last_sync = -SYNC_EVERY
    for index in sorted(copied):
        at = logs.target.log(COPY).end_offset
        record = Record(offset=-1, timestamp_ms=index, key=None, value=b"%d" % values[index])
        logs.target.append(COPY, record)
        if at - last_sync >= SYNC_EVERY or index in synced:
            logs.send(OffsetPair(index, at))
            last_sync = at
    return logs


async def assert_never_ahead(logs: MirroredLogs, alive: Sequence[int], offsets: Sequence[int]) -> None:
    """`alive`: which source offsets the copy shows, each with the place that it has there."""
    places = [record.offset for record in logs.target.records(COPY)]
    for asked in ([each] for each in offsets), [list(offsets)]:
        for together in asked:
            for offset, told in (await translate(translator(logs), together)).items():
                index = bisect_left(alive, offset)
                right = places[index] if index < len(places) else logs.target.log(COPY).end_offset
                assert told.downstream_offset is None or told.downstream_offset <= right, (offset, told)


@given(
    seed=st.randoms(use_true_random=False),
    kinds=st.sampled_from([1, 3, 50, 1_000]),
    gap=st.sampled_from([1, 70, 200, 500]),
)
async def test_no_answer_is_ahead_where_the_copy_lacks_a_stretch(seed: Random, kinds: int, gap: int) -> None:
    values = [seed.randrange(kinds) for _ in range(RECORDS)]
    begin = 250
    alive = [*range(begin), *range(begin + gap, RECORDS)]
    logs = mirrored(values, copied=alive, synced=(begin - 1, begin + gap))
    asked = [begin - 20, begin, begin + 1, begin + gap // 2, begin + gap - 1, begin + gap, begin + gap + 30]
    await assert_never_ahead(logs, alive, sorted(set(asked)))


@given(seed=st.randoms(use_true_random=False), kinds=st.sampled_from([10, 100, 2_000]))
async def test_no_answer_is_ahead_where_only_the_copy_was_compacted(seed: Random, kinds: int) -> None:
    values = [seed.randrange(kinds) for _ in range(RECORDS)]
    logs = mirrored(values, copied=range(RECORDS))
    last = {value: index for index, value in enumerate(values)}
    gone = {index for index in range(RECORDS * 4 // 5) if last[values[index]] != index}
    logs.target.punch_holes(COPY, gone)
    alive = [index for index in range(RECORDS) if index not in gone]
    asked = [seed.randrange(RECORDS) for _ in range(4)]
    await assert_never_ahead(logs, alive, sorted(set(asked)))


async def test_what_was_found_for_one_group_does_not_mislead_about_another() -> None:
    """One walk serves both. The record at 190 looks like the one at 100, which is not copied."""
    values = [100 if index == 190 else index for index in range(RECORDS)]
    alive = [*range(100), *range(170, RECORDS)]
    logs = mirrored(values, copied=alive, synced=(99, 170))
    found = await translate(translator(logs), [100, 180])
    assert {offset: told.downstream_offset for offset, told in found.items()} == {100: 100, 180: 110}


async def test_a_whole_copy_is_translated_exactly_whatever_repeats() -> None:
    logs = mirrored([7] * RECORDS, copied=range(RECORDS))
    found = await translate(translator(logs), [1, 250, 555, 900])
    assert {offset: (told.verdict, told.downstream_offset) for offset, told in found.items()} == {
        offset: (Verdict.EXACT, offset) for offset in (1, 250, 555, 900)
    }


async def test_without_any_sync_records_that_look_alike_say_nothing_of_where_the_copy_began() -> None:
    alive = range(3, 5)
    logs = mirrored([7] * 5, copied=alive, lost_syncs=1.0)
    await assert_never_ahead(logs, alive, [1, 2, 3, 4, 5])
