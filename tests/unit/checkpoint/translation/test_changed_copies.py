"""Groups in copies that Spark has changed: by the syncs, or exact where records name their origins."""

from collections.abc import Collection
from copy import deepcopy
from dataclasses import dataclass, replace

import pytest

from twinlog.comparison.sides import Chunk
from twinlog.model import Record, TopicPartition
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.exact_questions import (
    GOOD,
    check_never_ahead,
    translate,
    translator,
    translator_back,
)
from unit.checkpoint.mirrored_logs import COPY, ORIGIN, MirroredLogs
from unit.checkpoint.record_log import RecordLog


@pytest.mark.parametrize("seed", range(7))
async def test_a_changed_copy_whose_records_name_their_origins_is_exact_whatever_happens_to_it(
    seed: int,
) -> None:
    logs = MirroredLogs.copied(
        600, seed=seed, offset_lag_max=100, is_changed=True, exactly_once=seed % 2 == 0
    )
    known = deepcopy(logs.history)
    match seed:
        case 1:
            logs.crash(back=150)
        case 2:
            logs.lose_tail(0.3)
        case 3:
            logs.compact(logs.target, 0.8)
        case 4:
            logs.create_again(from_start=False)
        case 5:
            logs.retain(100)
        case 6:
            logs.compact(logs.source, 0.8)
    logs.produce(300)
    logs.copy(None if seed else 100)
    logs.rest()
    if seed == 4:
        logs.history = known  # The syncs of the new copy have not come yet.
    end = logs.source.log(ORIGIN).end_offset
    found = await translate(translator(logs), range(0, end + 1, 7))
    for offset, translation in found.items():
        assert translation.verdict in GOOD, (offset, translation)
        logs.check(offset, translation.downstream_offset or 0, exact=seed not in (1, 6))
    start, held = logs.source.log(ORIGIN).start_offset, {each.offset for each in logs.visible_source()}
    for record in (*logs.visible_target()[::5], None):
        at = logs.target.log(COPY).end_offset if record is None else record.offset
        back = (await translate(translator_back(logs), [at], COPY))[at]
        assert back.verdict in GOOD, (at, back)
        left = [each for each in logs.visible_target() if each.offset >= at]
        origins = [int((each.headers[-1][1] or b"").split(b"/")[3]) for each in left]
        if present := [each for each in origins if each in held or each < start]:
            assert back.downstream_offset == max(present[0], start)
        else:
            assert (back.downstream_offset or 0) == logs.copied_to


async def test_origins_before_the_first_that_a_changed_copy_has_left_are_before_its_start() -> None:
    logs = MirroredLogs.copied(200, seed=1, offset_lag_max=100, is_changed=True)
    there = logs.visible_target()
    first = there[40].offset
    logs.target.log(COPY).delete_before(first)
    origins = [int((record.headers[-1][1] or b"").split(b"/")[3]) for record in there]
    found = await translate(translator(logs), origins)
    assert {found[each].verdict for each in origins[:40]} == {Verdict.BEFORE_START}
    assert {found[each].downstream_offset for each in origins[:40]} == {first}
    assert {found[each].verdict for each in origins[40:]} == {Verdict.EXACT}


async def test_a_place_that_the_copy_has_lost_and_filled_again_since_is_looked_up_again() -> None:
    """The copy was longer again when groups were translated next, by records that they have not read."""
    logs = MirroredLogs.copied(60, seed=1, offset_lag_max=100, is_changed=True)
    exact, end = translator(logs), logs.source.log(ORIGIN).end_offset
    check_never_ahead(logs, await translate(exact, range(end)))
    logs.lose_tail(0.2)
    logs.produce(60)
    logs.copy()
    check_never_ahead(logs, await translate(exact, range(end)))


@dataclass(slots=True)
class NewLeader:
    """It does not know yet how much all replicas have, and shows only what lies before an offset."""

    log: RecordLog
    shown_to: int

    async def expect(self, partitions: Collection[TopicPartition]) -> None:
        await self.log.expect(partitions)

    async def read(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> Chunk:
        if offset >= self.shown_to:
            return Chunk(batches=(), next_offset=offset)
        return await self.log.read(partition, offset, max_bytes=1)


@pytest.mark.parametrize("shown_to", [0, 50])
async def test_a_new_leader_that_does_not_show_all_yet_puts_no_group_ahead(shown_to: int) -> None:
    logs = MirroredLogs.copied(200, seed=3, offset_lag_max=100, is_changed=True)
    log = NewLeader(RecordLog(logs.target.reader()), shown_to)
    exact, back = translator(logs), translator_back(logs)
    exact.there, back.here = replace(exact.there, log=log), replace(back.here, log=log)
    check_never_ahead(logs, await translate(exact, range(0, logs.source.log(ORIGIN).end_offset, 7)))
    for record in logs.visible_target():
        found = (await translate(back, [record.offset], COPY))[record.offset]
        origin = int((record.headers[-1][1] or b"").split(b"/")[3])
        assert found.downstream_offset is None or found.downstream_offset <= origin


@pytest.mark.parametrize("dropped", [0, 30])
@pytest.mark.parametrize("is_synced", [True, False])
async def test_origins_in_a_source_that_is_gone_are_no_places_of_the_present_one(
    is_synced: bool, dropped: int
) -> None:
    """Behind them the copy has all of the present source. Its first sync may come later, or be of a record
    whose offset is above those of old syncs."""
    logs = MirroredLogs.copied(100, seed=3, offset_lag_max=20, is_changed=True)
    former, back, forward = logs.visible_target(), translator_back(logs), translator(logs)
    places = [record.offset for record in former]
    await translate(back, places, COPY)
    known = deepcopy((logs.history, logs.store))
    logs.source.add_topic(ORIGIN.topic)
    logs.copied_to = dropped
    logs.produce(300)
    logs.copy()
    if not is_synced:
        logs.history, logs.store = known
    first = int((logs.visible_target()[len(former)].headers[-1][1] or b"").split(b"/")[3])
    for each in (back, translator_back(logs)):
        for found in (await translate(each, places, COPY)).values():
            assert found.downstream_offset is None or found.downstream_offset <= first
    for each in (forward, translator(logs)):
        for offset, found in (await translate(each, range(logs.copied_to))).items():
            if found.downstream_offset is not None:
                logs.check(offset, found.downstream_offset, exact=False)


async def test_records_without_an_origin_leave_a_changed_copy_to_the_syncs() -> None:
    logs = MirroredLogs.copied(100, seed=7, offset_lag_max=1, is_changed=True)
    logs.target.append(COPY, Record(offset=-1, timestamp_ms=0, key=None, value=b"0"))
    logs.produce(10)
    logs.copy()
    end = logs.source.log(ORIGIN).end_offset
    found = await translate(translator(logs), range(end))
    check_never_ahead(logs, found)
    assert Verdict.EXACT in {each.verdict for each in found.values()}
    at = logs.target.log(COPY).end_offset
    back = (await translate(translator_back(logs), [at], COPY))[at]
    assert back.verdict in (Verdict.MAPPED, Verdict.UP_TO_DATE)
