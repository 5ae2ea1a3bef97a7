"""Where a group continues in a topic that is copied both ways, by what is known of both flows."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog.wire import TopicIds
from twinlog_checkpoint.translation.both_ways import SETTLED_SECONDS, BothFlows, BothWaysTranslator, Copied
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.translation import (
    FloorRule,
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

    async def translator(self) -> BothWaysTranslator:
        for cluster, count in ((self.here, 4), (self.there, 3)):
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


@pytest.mark.parametrize(("own", "told"), [(3, True), (0, False), (None, False)])
def test_a_flow_back_from_a_copy_that_keeps_the_offsets_had_nothing_to_copy(
    own: int | None, told: bool
) -> None:
    """After a kill it is not known what it wrote. An empty copy keeps all offsets."""
    there = Copied(4, own, TopicIds("a", "b"), is_preserved=True)
    assert BothFlows(Copied(2, None, TopicIds("b", "a")), there).copied_nothing_out is told


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
