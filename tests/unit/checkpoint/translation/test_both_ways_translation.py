"""Where a group continues in a topic that is copied both ways, by what is known of both flows."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import Random

import pytest

from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog.wire import TopicIds
from twinlog_checkpoint.translation.both_ways import SETTLED_SECONDS, BothWaysTranslator, Copied
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.history import OffsetPair, PairHistory
from twinlog_checkpoint.translation.translation import (
    FloorRule,
    PairsFloor,
    SourcePosition,
    Translation,
    Verdict,
)
from unit.checkpoint.dead_leader import kill_leader
from unit.checkpoint.record_log import RecordLog
from unit.checkpoint.translation.test_preserved_translation import Otherwise

P = TopicPartition("orders", 0)


class NoSync(FloorRule):
    def translate_one(self, position: SourcePosition) -> Translation:
        return Translation(verdict=Verdict.NO_SYNC, downstream_offset=None)


@dataclass(slots=True)
class Rig:
    """Four records here and three there, all of which the flows have seen."""

    own: int | None = 0
    """Where the records end that the flow from here to there has written."""
    back: int | None = 0
    id_there: str = "b"
    """Of the topic there."""
    clock: FakeClock = field(default_factory=FakeClock)
    here: FakeCluster = field(default_factory=lambda: FakeCluster("A"))
    there: FakeCluster = field(default_factory=lambda: FakeCluster("B"))

    async def translator(self, here: int = 4, there: int = 3) -> BothWaysTranslator:
        for cluster, count in ((self.here, here), (self.there, there)):
            cluster.add_topic(P.topic)
            async with cluster.writer() as writer:
                for _ in range(count):
                    await writer.append(P, key=None, value=b"x")

        async def told() -> Mapping[TopicPartition, Copied]:
            return {P: Copied(4, self.own, TopicIds("a", "b"))}

        async def told_back() -> Mapping[TopicPartition, Copied]:
            return {P: Copied(2, self.back, TopicIds("b", "a"))}

        async def look() -> None: ...

        async def present(topics: Collection[str]) -> Mapping[str, TopicIds]:
            return dict.fromkeys(topics, TopicIds("a", self.id_there))

        return BothWaysTranslator(
            is_both_ways=lambda _partition: True,
            look=look,
            present=present,
            here=LogSide(
                admin=self.here, log=RecordLog(self.here.reader()), unreadable=Verdict.SOURCE_UNREADABLE
            ),
            there=LogSide(
                admin=self.there, log=RecordLog(self.there.reader()), unreadable=Verdict.TARGET_UNREADABLE
            ),
            counterpart=lambda partition: partition,
            floors=lambda _ids: (NoSync(), NoSync()),
            told=told,
            told_back=told_back,
            otherwise=Otherwise(),
            clock=self.clock,
        )


def by_syncs(pairs: PairHistory) -> PairsFloor:
    return PairsFloor(lambda: True, lambda _partition: pairs)


async def merged_logs(rig: Rig, seed: int) -> tuple[list[str], list[str], BothWaysTranslator]:
    """Records that two applications have written and two flows copied, with a sync now and then."""
    chance = Random(seed)
    logs: tuple[list[str], list[str]] = ([], [])
    positions, ends = [0, 0], [0, 0]
    histories = (PairHistory(), PairHistory())
    weights = [chance.choice((0, 1, 1, 5)) for _ in range(4)]
    sync_share = chance.choice((0.05, 0.3, 1))
    for side, first in ((0, chance.choice((0, 40))), (1, chance.choice((0, 40)))):
        logs[side].extend(f"{'ab'[side]}{number}" for number in range(first))
    for step in range(200):
        action = chance.choices(range(4), [weight + 0.01 for weight in weights])[0]
        side = action % 2
        if action < 2:
            logs[side].append(f"{'ab'[side]}w{step}")
        elif positions[side] < len(logs[side]):
            record = logs[side][positions[side]]
            if record[0] == "ab"[side]:
                here = positions[side], len(logs[1 - side])
                logs[1 - side].append(record)
                if not ends[side] or chance.random() < sync_share:
                    histories[side].on_sync(OffsetPair(*(here if side == 0 else here[::-1])))
                ends[side] = len(logs[1 - side])
            positions[side] += 1
    translator = await rig.translator(len(logs[0]), len(logs[1]))

    async def told() -> Mapping[TopicPartition, Copied]:
        return {P: Copied(positions[0], ends[0], TopicIds("a", "b"))}

    async def told_back() -> Mapping[TopicPartition, Copied]:
        return {P: Copied(positions[1], ends[1], TopicIds("b", "a"))}

    translator.told, translator.told_back = told, told_back
    translator.floors = lambda _ids: (by_syncs(histories[0]), by_syncs(histories[1]))
    return *logs, translator


@pytest.mark.parametrize("seed", range(60))
async def test_no_group_skips_a_record_or_reads_more_again_than_it_is_told(seed: int) -> None:
    rig = Rig()
    here, there, translator = await merged_logs(rig, seed)
    places = [SourcePosition(partition=P, next_offset=offset) for offset in range(len(here) + 1)]
    await translator.translate(places)
    rig.clock.advance(SETTLED_SECONDS)
    for place, answer in (await translator.translate(places)).items():
        begin, read = answer.downstream_offset, set(here[: place.next_offset])
        assert begin is not None
        assert set(there[:begin]) <= read, answer
        found = re.findall(r"at most (\d+) records", answer.message)
        assert len(found) <= 1, answer
        assert len(read & set(there[begin:])) <= sum(map(int, found)), (place, answer)


@pytest.mark.parametrize(("next_offset", "offset", "most"), [(1300, 203, 1300), (1000, 0, 1000)])
async def test_the_figure_counts_what_lies_between_the_two_bounds(
    next_offset: int, offset: int, most: int
) -> None:
    """Each side had a thousand records before anything was copied."""
    translator = await Rig().translator(2000, 2000)
    out, back = PairHistory(), PairHistory()
    out.on_sync(OffsetPair(0, 1000))
    out.on_sync(OffsetPair(999, 1999))
    back.on_sync(OffsetPair(1000, 0))
    back.on_sync(OffsetPair(1202, 202))
    translator.floors = lambda _ids: (by_syncs(out), by_syncs(back))
    place = SourcePosition(partition=P, next_offset=next_offset)
    answer = (await translator.translate([place]))[place]
    assert answer.downstream_offset == offset
    assert answer.message.endswith(f": at most {most} records are read again")


async def test_what_a_flow_has_copied_and_not_told_yet_counts_as_read_again() -> None:
    rig = Rig()
    translator = await rig.translator(here=5)
    back = PairHistory()
    back.on_sync(OffsetPair(3, 2))
    translator.floors = lambda _ids: (NoSync(), by_syncs(back))
    place = SourcePosition(partition=P, next_offset=4)
    await translator.translate([place])
    rig.clock.advance(SETTLED_SECONDS)
    async with rig.there.writer() as writer:
        for _ in range(2):
            await writer.append(P, key=None, value=b"x")
    answer = (await translator.translate([place]))[place]
    assert answer.downstream_offset == 3
    assert answer.message.endswith(
        "nothing was copied that way; by the offset sync that has 3 here and 2 there:"
        " at most 2 records are read again"
    )


@pytest.mark.parametrize(
    ("own", "back", "offset"), [(0, 0, 2), (1, 0, 0), (0, 1, 0), (None, 0, 0), (0, None, 0)]
)
async def test_what_was_copied_without_a_sync_is_not_read(
    own: int | None, back: int | None, offset: int
) -> None:
    """Without a sync nothing was copied that way only if the flow says so."""
    rig = Rig(own, back)
    translator = await rig.translator()
    place = SourcePosition(partition=P, next_offset=3)
    early = (await translator.translate([place]))[place]
    assert early.downstream_offset is None, "syncs may still come"
    assert "has not told for 10 s" in early.message
    rig.clock.advance(SETTLED_SECONDS)
    assert (await translator.translate([place]))[place].downstream_offset == offset


@pytest.mark.parametrize(
    ("cluster", "verdict"), [("A", Verdict.SOURCE_UNREADABLE), ("B", Verdict.TARGET_UNREADABLE)]
)
async def test_a_log_without_a_leader_says_nothing_of_an_offset(cluster: str, verdict: Verdict) -> None:
    rig = Rig()
    translator = await rig.translator()
    kill_leader({"A": rig.here, "B": rig.there}[cluster], P)
    place = SourcePosition(partition=P, next_offset=3)
    answer = (await translator.translate([place]))[place]
    assert (answer.verdict, answer.downstream_offset) == (verdict, None)


@pytest.mark.parametrize(("kept", "offset"), [(3, 3), (2, 2), (0, 0), (None, 0), (5, 0)])
async def test_a_flow_back_from_a_copy_that_keeps_the_offsets_had_nothing_to_copy(
    kept: int | None, offset: int
) -> None:
    """After a kill it is not known what it wrote, or one of another file has not stored how far it was. An
    empty copy keeps all offsets. Behind the position there is something of somebody else."""
    rig = Rig(own=kept, back=None)
    translator = await rig.translator()
    out = PairHistory()
    out.on_sync(OffsetPair(2, 2))
    translator.floors = lambda _ids: (by_syncs(out), NoSync())

    async def told() -> Mapping[TopicPartition, Copied]:
        return {P: Copied(4, kept, TopicIds("a", "b"), is_preserved=True)}

    translator.told = told
    place = SourcePosition(partition=P, next_offset=3)
    await translator.translate([place])
    rig.clock.advance(SETTLED_SECONDS)
    assert (await translator.translate([place]))[place].downstream_offset == offset


@pytest.mark.parametrize(("back", "verdict"), [(4, Verdict.UP_TO_DATE), (5, Verdict.NO_SYNC)])
async def test_a_group_at_the_end_of_a_log_that_gets_all_again_has_not_read_it(
    back: int, verdict: Verdict
) -> None:
    translator = await Rig(back=back).translator()
    place = SourcePosition(partition=P, next_offset=4)
    assert (await translator.translate([place]))[place].verdict is verdict


async def test_a_group_past_the_end_of_a_log_that_lost_records_has_not_read_what_is_written_there() -> None:
    translator = await Rig(back=4).translator()
    place = SourcePosition(partition=P, next_offset=5)
    answer = (await translator.translate([place]))[place]
    assert (answer.verdict, answer.downstream_offset) == (Verdict.PAST_END, None)


async def test_what_a_flow_tells_of_a_topic_that_is_gone_does_not_count() -> None:
    """The topic there was created again, and the flow back does not know yet."""
    rig = Rig(back=4)
    translator = await rig.translator()
    place = SourcePosition(partition=P, next_offset=4)
    answer = (await translator.translate([place]))[place]
    assert (answer.verdict, answer.topic_ids) == (Verdict.UP_TO_DATE, TopicIds("a", "b"))
    rig.id_there = "b2"
    for _ in range(2):
        answer = (await translator.translate([place]))[place]
        assert (answer.verdict, answer.topic_ids) == (Verdict.NO_SYNC, TopicIds("a", "b2"))
        rig.clock.advance(SETTLED_SECONDS)
