"""Exact translation where it is hard: far from syncs, on damaged logs, on a budget, asked by many."""

import asyncio
from dataclasses import replace

import pytest

from twinlog.batches import EndMarker
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import Record
from twinlog.testing.fakes.cluster import Call
from twinlog_checkpoint.translation.history import OffsetPair
from twinlog_checkpoint.translation.log_sides import COUNT_BYTES, READ_BYTES
from twinlog_checkpoint.translation.translation import SourcePosition, Verdict
from unit.checkpoint.checkpoint_rig import one_turn
from unit.checkpoint.dead_leader import kill_leader
from unit.checkpoint.exact_questions import (
    GOOD,
    check_all,
    check_never_ahead,
    floor_translator,
    source_side,
    translate,
    translator,
    translator_back,
)
from unit.checkpoint.mirrored_logs import COPY, ORIGIN, MirroredLogs
from unit.checkpoint.record_log import RecordLog


async def test_far_from_any_sync_records_are_counted() -> None:
    logs = MirroredLogs.copied(6000, seed=3, exactly_once=True, offset_lag_max=1 << 40)
    end = logs.source.log(ORIGIN).end_offset
    await check_all(logs, [end - 500, end - 100, end // 2, 5, 0])


async def test_far_from_any_sync_duplicates_do_not_move_answers() -> None:
    logs = MirroredLogs(seed=4, exactly_once=False, offset_lag_max=1 << 40)
    logs.produce(4000)
    logs.copy(2500)
    logs.copied_to -= 300
    logs.copy()
    end = logs.source.log(ORIGIN).end_offset
    await check_all(logs, [end - 1, end - 700, end // 2])


async def test_a_long_range_that_was_copied_twice_between_two_syncs_is_passed() -> None:
    """A mirror in a hurry leaves few syncs, so none may tell of it: beyond it the next sync leads back.

    Slow, as it is longer than walking looks ahead.
    """
    logs = MirroredLogs(seed=5, exactly_once=False, offset_lag_max=1 << 40)
    logs.produce(11_000)
    logs.copy(7_000)
    twice, back = logs.copied_to, 6_500
    logs.copied_to -= back
    logs.copy(back)
    logs.rest()
    synced = logs.copied_to
    logs.copy()
    await check_all(logs, [0, twice - back, twice - 500, twice - 1, twice, synced - 300, synced - 1, synced])


async def test_far_from_any_sync_gaps_do_not_move_answers_ahead() -> None:
    logs = MirroredLogs(seed=5, exactly_once=False, offset_lag_max=1 << 40)
    logs.produce(4000)
    logs.copy(1000)
    logs.copied_to += 200
    logs.copy()
    end = logs.source.log(ORIGIN).end_offset
    await check_all(logs, [end - 1, end - 700, end // 2])


async def test_a_budget_that_is_used_up_gives_the_floor_and_goes_on_in_the_next_interval() -> None:
    logs = MirroredLogs.copied(12_000, seed=6, exactly_once=True, offset_lag_max=1 << 40)
    end = logs.source.log(ORIGIN).end_offset
    exact = translator(logs, max_bytes=100_000)
    wanted = [end - 100]
    first = (await translate(exact, wanted))[end - 100]
    assert first.verdict is Verdict.FLOOR
    assert "next" in first.message
    for _ in range(30):
        found = (await translate(exact, wanted))[end - 100]
        if found.verdict is Verdict.EXACT:
            break
    assert found.verdict is Verdict.EXACT
    assert found.downstream_offset is not None
    logs.check(end - 100, found.downstream_offset)


async def test_a_walk_that_is_cut_off_continues_where_it_stopped() -> None:
    """Counting leads astray here (a long stretch was copied twice), so every record must be compared."""
    logs = MirroredLogs(seed=13, exactly_once=False, offset_lag_max=1 << 40, value_bytes=200)
    logs.produce(6000)
    logs.copy(5900)
    logs.copied_to -= 5800
    logs.copy()
    exact = translator(logs, max_bytes=1_200_000)
    wanted = logs.source.log(ORIGIN).end_offset - 2000
    for _ in range(20):
        found = (await translate(exact, [wanted]))[wanted]
        if found.verdict is Verdict.EXACT:
            break
    assert found.verdict is Verdict.EXACT, found
    assert found.downstream_offset is not None
    logs.check(wanted, found.downstream_offset)


@pytest.mark.parametrize("compacted", ["source", "target", "both"])
async def test_the_few_survivors_of_a_compacted_log_are_found_however_far_they_lie(compacted: str) -> None:
    logs = MirroredLogs.copied(12_000, seed=14, keys=5)
    for cluster in (logs.source, logs.target):
        if compacted in ("both", {logs.source: "source", logs.target: "target"}[cluster]):
            logs.compact(cluster, 0.95)
    end = logs.source.log(ORIGIN).end_offset
    await check_all(logs, [0, 1, 50, end // 3, end // 2, int(end * 0.94), int(end * 0.97), end])


async def test_a_pair_whose_records_differ_is_not_trusted() -> None:
    """The copy was deleted and created again, from a later record on, and its new syncs have not come yet:
    what the old ones say may be ahead, so there is no answer."""
    logs = MirroredLogs.copied(600, seed=15)
    second = MirroredLogs(seed=15, source=logs.source)
    second.copied_to = 30
    second.copy()
    logs.target = second.target
    offsets = range(100, 500, 10)
    found = await translate(translator(logs), offsets)
    assert {translation.downstream_offset for translation in found.values()} == {None}
    assert {translation.verdict for translation in found.values()} == {Verdict.NO_SYNC}
    logs.history, logs.store = second.history, second.store
    await check_all(logs, offsets)


async def test_a_sync_that_goes_back_while_logs_are_read_voids_what_they_gave() -> None:
    logs = MirroredLogs.copied(1000, seed=16, offset_lag_max=1 << 40)
    exact = translator(logs)
    pairs = logs.history.of(ORIGIN)
    assert pairs is not None
    offset = logs.visible_source()[500].offset

    def rewind(call: Call) -> None:
        logs.history.on_sync(ORIGIN, OffsetPair(1, 1))
        logs.history.on_sync(ORIGIN, OffsetPair(0, 0))

    logs.source.intercept("fetch", rewind)
    found = (await translate(exact, [offset]))[offset]
    assert found.verdict is Verdict.FLOOR
    assert pairs.newest() == OffsetPair(0, 0)
    assert (await translate(exact, [offset]))[offset].verdict is Verdict.FLOOR


async def test_the_bytes_of_one_interval_are_bounded_and_told() -> None:
    logs = MirroredLogs.copied(4000, seed=17, offset_lag_max=1 << 40, value_bytes=1000)
    told: list[int] = []
    exact = translator(logs, max_bytes=1 << 20, on_read_bytes=told.append)
    await translate(exact, range(0, logs.source.log(ORIGIN).end_offset, 50))
    assert (1 << 20) <= told[0] <= (1 << 20) + max(READ_BYTES, COUNT_BYTES)


async def test_many_groups_share_what_is_read() -> None:
    logs = MirroredLogs.copied(800, seed=18)
    fetches: list[Call] = []
    logs.source.intercept("fetch", fetches.append)
    logs.target.intercept("fetch", fetches.append)
    alone = translator(logs)
    await translate(alone, [5])
    for_one = len(fetches)
    fetches.clear()
    found = await translate(translator(logs), range(logs.source.log(ORIGIN).end_offset))
    assert {translation.verdict for translation in found.values()} <= set(GOOD)
    assert len(found) > 800
    assert len(fetches) <= for_one + 2


async def test_questions_at_the_same_time_share_what_is_read() -> None:
    """A pass over the groups, and an operator who asks: neither takes the other's search for a dead end."""
    told: list[int] = []
    for questions in (1, 3):
        logs = MirroredLogs.copied(3500, seed=6, offset_lag_max=1 << 40)
        far = logs.source.log(ORIGIN).end_offset - 100
        exact = translator(logs, on_read_bytes=told.append)

        async def let_others_run(call: Call) -> None:
            await one_turn()

        for cluster in (logs.source, logs.target):
            cluster.intercept("fetch", let_others_run)
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(translate(exact, [far]), name=f"q{n}") for n in range(questions)]
        for task in asked:
            assert task.result()[far].verdict in GOOD
            logs.check(far, task.result()[far].downstream_offset or 0)
    assert sum(told[1:]) == told[0]


async def test_where_uncommitted_records_are_copied_they_are_translated() -> None:
    """isolation.level=read_uncommitted: an open transaction at the source's end holds nothing back."""
    logs = MirroredLogs.copied(50, seed=19, exactly_once=False)
    waiting = [
        Record(offset=-1, timestamp_ms=1_800_000_000_000 + n, key=b"k", value=b"%d" % n) for n in range(5)
    ]
    logs.source.append_transaction(ORIGIN, waiting, None)
    first = logs.target.log(COPY).end_offset
    logs.target.append(COPY, *waiting)
    committed = translator(logs)
    offset = logs.source.log(ORIGIN).end_offset - 2
    assert (await translate(committed, [offset]))[offset].verdict is Verdict.FLOOR
    log = RecordLog(logs.source.reader(read_committed=False))
    here = replace(source_side(logs), log=log, end=OffsetSpec.LATEST)
    everything = replace(committed, here=here)
    translation = (await translate(everything, [offset]))[offset]
    assert (translation.verdict, translation.downstream_offset) == (Verdict.EXACT, first + 3)


async def test_answers_are_remembered_until_the_logs_change() -> None:
    logs = MirroredLogs.copied(500, seed=7)
    end = logs.source.log(ORIGIN).end_offset
    exact = translator(logs)
    fetches: list[object] = []
    logs.source.intercept("fetch", lambda call: fetches.append(call))
    first = await translate(exact, [100, end])
    reads = len(fetches)
    assert await translate(exact, [100, end]) == first
    assert len(fetches) == reads
    logs.produce(10)
    logs.copy()
    second = await translate(exact, [100, end])
    assert second[100] == first[100]
    assert second[end].verdict is Verdict.EXACT


async def test_records_gone_from_the_source_leave_the_floor() -> None:
    """The copy still holds them."""
    logs = MirroredLogs.copied(500, seed=8)
    end = logs.source.log(ORIGIN).end_offset
    logs.retain(300)
    found = await translate(translator(logs), [100, 299, 300, 301, end - 1])
    assert [found[offset].verdict for offset in (100, 299)] == [Verdict.FLOOR, Verdict.FLOOR]
    for offset in (300, 301, end - 1):
        assert found[offset].verdict in GOOD
        logs.check(offset, found[offset].downstream_offset or 0)


async def test_a_record_gone_from_the_source_has_the_floor_of_the_nearest_record_that_was_compared() -> None:
    """Offset syncs of old records are forgotten: they alone would take the group far back."""
    logs = MirroredLogs.copied(5000, seed=8)
    exact = translator(logs)
    offset = logs.visible_source()[2000].offset
    before = (await translate(exact, [offset]))[offset]
    logs.retain(offset + 10)
    found = await translate(exact, [offset, offset + 5])
    assert [found[each].verdict for each in found] == [Verdict.FLOOR, Verdict.FLOOR]
    assert found[offset].downstream_offset == before.downstream_offset
    assert found[offset + 5].downstream_offset == (before.downstream_offset or 0) + 1
    by_syncs = floor_translator(logs).translate_one(SourcePosition(partition=ORIGIN, next_offset=offset))
    assert (by_syncs.downstream_offset or 0) < (before.downstream_offset or 0) - 100


async def test_no_floor_is_left_where_the_source_lost_the_records_and_the_copy_was_created_again() -> None:
    """The syncs of the new copy have not come yet: the floor of the old one may be ahead."""
    logs = MirroredLogs.copied(600, seed=15)
    logs.retain(300)
    second = MirroredLogs(seed=15, source=logs.source)
    second.copy()
    logs.target = second.target
    found = await translate(translator(logs), range(100, 300, 10))
    assert {translation.downstream_offset for translation in found.values()} == {None}, found


async def test_a_group_before_the_log_start_skips_nothing_that_the_copy_still_holds() -> None:
    """No sync tells of its place, which is normal after a start: older ones were compacted."""
    logs = MirroredLogs.copied(900, seed=8)
    logs.forget_pairs(400)
    logs.retain(600)
    first = logs.visible_target()[0].offset
    found = await translate(translator(logs), [50, 300, 500])
    assert [found[offset].verdict for offset in found] == [Verdict.FLOOR] * 3
    assert [found[offset].downstream_offset for offset in (50, 300)] == [first, first]
    assert first < (found[500].downstream_offset or 0)
    for offset, translation in found.items():
        logs.check(offset, translation.downstream_offset or 0, exact=False)


async def test_a_group_before_the_start_of_the_copy_skips_nothing_that_the_source_still_holds() -> None:
    """The same on the way back."""
    logs = MirroredLogs.copied(900, seed=8)
    logs.forget_pairs(400)
    logs.target.log(COPY).delete_before(600)
    found = await translate(translator_back(logs), [50, 300, 599], COPY)
    assert [found[offset].verdict for offset in found] == [Verdict.FLOOR] * 3
    assert [found[offset].downstream_offset for offset in (50, 300)] == [0, 0]


@pytest.mark.parametrize("again", [False, True])
async def test_records_that_the_copy_lost_lead_to_the_next_one_it_has(again: bool) -> None:
    """Far more than walking looks ahead are gone: the copies of what lies around them are neighbours."""
    logs = MirroredLogs.copied(12_000, seed=12)
    lost_to = logs.visible_source()[-1].offset
    if again:
        logs.create_again(from_start=False)
    else:
        logs.lose_tail(0.9)
    kept = len(logs.visible_target())
    logs.produce(6_000)
    logs.copy()
    offsets = [logs.visible_source()[kept].offset, lost_to // 2, lost_to - 4_500, lost_to, lost_to + 1]
    found = await translate(translator(logs), offsets)
    assert {translation.verdict for translation in found.values()} == {Verdict.EXACT}, found
    for offset, translation in found.items():
        logs.check(offset, translation.downstream_offset or 0)


async def test_a_floor_past_the_end_of_the_copy_is_no_answer() -> None:
    """The copy lost its tail: the end of its log would leave out whatever is copied from now on."""
    logs = MirroredLogs.copied(500, seed=9)
    end = logs.visible_source()[-1].offset
    logs.lose_tail(0.5)
    for exact in (translator(logs), translator(logs, max_bytes=1)):
        found = (await translate(exact, [end]))[end]
        assert found.downstream_offset is None, found
        assert found.verdict is Verdict.NO_SYNC
    logs.produce(300)
    logs.copy()
    for exact in (translator(logs), translator(logs, max_bytes=1)):
        found = (await translate(exact, [end]))[end]
        if found.downstream_offset is not None:
            logs.check(end, found.downstream_offset, exact=found.verdict in GOOD)


async def test_a_floor_past_the_end_of_the_copy_is_not_final_while_the_source_cannot_be_read() -> None:
    """Its log may have the place."""
    logs = MirroredLogs.copied(500, seed=9)
    end = logs.visible_source()[-1].offset
    logs.lose_tail(0.5)
    kill_leader(logs.source, ORIGIN)
    found = await translate(translator(logs), [0, end])
    assert found[end].verdict is Verdict.SOURCE_UNREADABLE
    assert "has no leader" in found[end].message
    assert found[0].verdict is Verdict.FLOOR


async def test_records_gone_from_the_target_go_on_at_its_first() -> None:
    logs = MirroredLogs.copied(500, seed=9)
    end = logs.source.log(ORIGIN).end_offset
    logs.target.log(COPY).delete_before(300)
    found = await translate(translator(logs), [0, 100, end - 1])
    for offset in (0, 100, end - 1):
        downstream = found[offset].downstream_offset
        assert downstream is not None
        assert downstream >= 300
        logs.check(offset, downstream)


async def test_an_offset_past_the_end_of_the_source_has_no_place_behind_what_was_written_since() -> None:
    """The log lost its tail: the newest records have lower offsets, and the group has read none of them."""
    logs = MirroredLogs.copied(100, seed=10)
    end = logs.source.log(ORIGIN).end_offset
    found = await translate(translator(logs), [end, end + 1])
    assert [found[offset].verdict for offset in (end, end + 1)] == [Verdict.UP_TO_DATE, Verdict.PAST_END]
    assert found[end + 1].downstream_offset is None


@pytest.mark.parametrize("is_back", [False, True])
async def test_a_group_that_has_read_everything_has_no_lag_there(*, is_back: bool) -> None:
    """Behind the last record lie a marker and what was aborted; an open transaction is not passed."""
    logs = MirroredLogs.copied(100, seed=10)
    here, asked, there, answered = logs.source, ORIGIN, logs.target, COPY
    if is_back:
        here, asked, there, answered = there, answered, here, asked
    translating = translator_back(logs) if is_back else translator(logs)
    others = [Record(offset=-1, timestamp_ms=1, key=None, value=b"aborted")] * 2
    there.append_transaction(answered, others, EndMarker.ABORT)
    end, end_there = here.log(asked).end_offset, there.log(answered).end_offset
    there.append_transaction(answered, others, None)
    (told,) = (await translate(translating, [end], asked)).values()
    assert (told.verdict, told.downstream_offset) == (Verdict.UP_TO_DATE, end_there)


async def test_there_is_no_answer_where_the_copy_holds_other_records() -> None:
    """The target was deleted and filled with other records: the syncs point at strangers."""
    logs = MirroredLogs.copied(300, seed=11)
    other = MirroredLogs(seed=12)
    other.next_name = 100_000
    other.produce(300)
    other.copy()
    logs.target = other.target
    found = await translate(translator(logs), [50, 150])
    assert {translation.verdict for translation in found.values()} == {Verdict.NO_SYNC}


async def test_a_group_that_has_read_nothing_of_a_copy_without_a_sync_begins_at_the_first_record() -> None:
    """The source has aborted records alone, so nothing is there to compare; the copy may have some, too."""
    logs = MirroredLogs(seed=1, lost_syncs=1)
    aborted = [Record(offset=-1, timestamp_ms=1, key=None, value=b"none")] * 2
    logs.source.append_transaction(ORIGIN, aborted, EndMarker.ABORT)
    back = translator_back(logs)
    for offsets in ([0], range(4)):
        for told in (await translate(back, offsets, COPY)).values():
            assert (told.verdict, told.downstream_offset) == (Verdict.FLOOR, 0)
        logs.target.append_transaction(COPY, aborted, EndMarker.ABORT)
    logs.target.append_transaction(COPY, aborted, EndMarker.COMMIT)
    end = logs.target.log(COPY).end_offset
    assert (await translate(back, [end], COPY))[end].downstream_offset is None


async def test_without_a_sync_it_is_told_why_the_logs_gave_no_place_where_the_copy_has_records() -> None:
    logs = MirroredLogs(seed=1, lost_syncs=1)
    logs.produce(20)
    (nothing,) = (await translate(translator(logs), [9])).values()
    assert "none of its records has been copied" in nothing.message
    logs.copy()
    (told,) = (await translate(translator(logs, max_bytes=1), [9])).values()
    assert told.verdict is Verdict.NO_SYNC
    assert "limit of bytes" in told.message


async def test_before_the_first_sync_of_a_topic_created_again_nobody_knows_how_many_are_read_again() -> None:
    """Its copy has the records of the former topic."""
    logs = MirroredLogs.copied(60, seed=5, offset_lag_max=10)
    del logs.source.topics[ORIGIN.topic]
    logs.source.add_topic(ORIGIN.topic)
    logs.produce(20)
    (told,) = (await translate(translator(logs), [15])).values()
    assert (told.verdict, told.downstream_offset) == (Verdict.FLOOR, 1)
    assert "by the offset sync 11 -> 0: at most 3 records lie between; not exact" in told.message


def without_its_first_hundred(seed: int, records: int) -> tuple[MirroredLogs, list[Record], int]:
    """A copy that lost its first 100 records, the records of its source, and where it begins."""
    logs = MirroredLogs.copied(records, seed=seed, offset_lag_max=20)
    logs.rest()
    first = logs.visible_target()[100].offset
    logs.target.log(COPY).delete_before(first)
    return logs, logs.visible_source(), first


@pytest.mark.parametrize("seed", range(4))
async def test_an_offset_whose_record_is_gone_from_the_start_of_the_copy_is_before_its_start(
    seed: int,
) -> None:
    """Retention or DeleteRecords took it there: a group that continues at the first record skips some."""
    logs, here, first = without_its_first_hundred(seed, 300)
    gone = [here[each].offset for each in (0, 20, 60, 99)]
    told = await translate(translator(logs), gone)
    assert {(each.verdict, each.downstream_offset) for each in told.values()} == {
        (Verdict.BEFORE_START, first)
    }
    (kept,) = (await translate(translator(logs), [here[100].offset])).values()
    assert (kept.verdict, kept.downstream_offset) == (Verdict.EXACT, first)


@pytest.mark.parametrize("max_bytes", [0, 2_000, 20_000, 1 << 30])
@pytest.mark.parametrize("lost_syncs", [0.0, 0.9])
async def test_whatever_is_read_no_answer_passes_over_records_that_are_gone_without_a_word(
    lost_syncs: float, max_bytes: int
) -> None:
    """A budget that is soon spent, or few syncs: the start of the log may stand for what is gone."""
    for seed in range(12):
        logs = MirroredLogs.copied(600, seed=seed, offset_lag_max=20, lost_syncs=lost_syncs, keys=30)
        logs.rest()
        if seed % 3 == 1:
            logs.compact(logs.target, 0.7)
        there = logs.visible_target()
        start = there[logs.rng.randrange(1, len(there) - 20)].offset
        logs.target.log(COPY).delete_before(start)
        if seed % 4 == 3:
            logs.retain(logs.rng.randrange(start))
        if seed % 2:
            logs.forget_pairs(logs.rng.randrange(start))
        left = {record.value for record in logs.visible_target()}
        wanted = logs.rng.sample(range(logs.source.log(ORIGIN).end_offset), 30)
        found = await translate(translator(logs, max_bytes=max_bytes), wanted)
        check_never_ahead(logs, found)
        for offset, told in found.items():
            unread = [record.value for record in logs.visible_source() if record.offset >= offset]
            if unread and told.downstream_offset is not None and unread[0] not in left:
                assert told.verdict is Verdict.BEFORE_START or told.downstream_offset > start, (
                    seed,
                    offset,
                    told,
                )


async def test_an_offset_before_the_start_of_its_own_log_is_before_that_of_the_copy_too() -> None:
    """Retention took records from both, and more from the copy: what is left here between is skipped."""
    logs, here, first = without_its_first_hundred(0, 300)
    logs.source.log(ORIGIN).delete_before(here[98].offset)
    told = await translate(translator(logs), [here[each].offset for each in (90, 98, 99)])
    assert {(each.verdict, each.downstream_offset) for each in told.values()} == {
        (Verdict.BEFORE_START, first)
    }
    # Where nothing of it is left here either, nothing is skipped.
    logs.source.log(ORIGIN).delete_before(here[100].offset)
    (both,) = (await translate(translator(logs), [here[90].offset])).values()
    assert (both.verdict, both.downstream_offset) == (Verdict.EXACT, first)


async def test_the_start_of_a_copy_is_not_read_for_groups_near_its_end() -> None:
    logs, here, first = without_its_first_hundred(0, 1000)
    read: list[int] = []
    logs.target.intercept("fetch", lambda call: read.append(call.arguments["offset"]))
    (told,) = (await translate(translator(logs), [here[-100].offset])).values()
    assert told.verdict is Verdict.EXACT
    assert min(read) > first


async def test_what_was_known_of_an_offset_is_forgotten_when_its_own_log_is_shorter_than_it_was() -> None:
    """A copy that was created again: its first offset is that of another record."""
    logs = MirroredLogs(seed=1)
    logs.produce(60)
    logs.retain(30)
    logs.copy()
    back = translator_back(logs)
    (known,) = (await translate(back, [0], COPY)).values()
    assert known.verdict is Verdict.EXACT
    logs.create_again(from_start=True)
    (told,) = (await translate(back, [0], COPY)).values()
    assert told.verdict is not Verdict.EXACT
