"""Offsets of topics whose records go to several topics: never ahead in any of them, and no way back."""

from collections.abc import Collection, Mapping

import pytest

from twinlog.model import TopicPartition
from twinlog.offsets import OffsetSyncStore
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog.wire.offset_sync import OffsetSync
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.routed import ApartTranslator, NoWayBack, RoutedTranslator
from twinlog_checkpoint.translation.translation import (
    FloorTranslator,
    SourcePosition,
    Translation,
    Verdict,
)
from unit.checkpoint.dead_leader import kill_leader
from unit.checkpoint.record_log import RecordLog

EU, COPY = TopicPartition("eu", 0), TopicPartition("A.eu", 0)
OTHER = Translation(verdict=Verdict.EXACT, downstream_offset=7)


class Others:
    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        return dict.fromkeys(positions, OTHER)


@pytest.mark.parametrize(
    ("offset", "verdict", "place"),
    [
        (3, Verdict.MAPPED, 2),
        (10, Verdict.MAPPED, 4),
        (11, Verdict.MAPPED, 5),
        (20, Verdict.MAPPED, 8),
        (21, Verdict.NO_SYNC, None),
    ],
)
async def test_a_place_in_a_route_is_at_or_behind_the_sync_before_it_and_within_its_log(
    offset: int, verdict: Verdict, place: int | None
) -> None:
    store = OffsetSyncStore(must_read_to_end=False)
    for upstream, downstream in ((10, 4), (20, 8)):
        store.apply(OffsetSync(partition=EU, upstream_offset=upstream, downstream_offset=downstream))
    store.finish_reading()
    target = FakeCluster("B", clock=FakeClock())
    target.add_topic("A.eu", 1)
    async with target.writer() as writer:
        for _ in range(8):
            await writer.append(COPY, key=None, value=b"")
    await target.delete_records({COPY: 2})
    translator = ApartTranslator(
        is_apart=lambda partition: partition.topic == "eu",
        apart=RoutedTranslator(
            floor=FloorTranslator(lambda: store),
            target=LogSide(
                admin=target, log=RecordLog(target.reader()), unreadable=Verdict.TARGET_UNREADABLE
            ),
            counterpart=lambda partition: TopicPartition(f"A.{partition.topic}", partition.partition),
        ),
        otherwise=Others(),
    )
    asked, other = (
        SourcePosition(partition=EU, next_offset=offset),
        SourcePosition(partition=TopicPartition("orders", 0), next_offset=offset),
    )
    told = await translator.translate([asked, other])
    assert (told[asked].verdict, told[asked].downstream_offset) == (verdict, place)
    assert told[other] == OTHER
    kill_leader(target, COPY)
    assert (await translator.translate([asked]))[asked].verdict is Verdict.TARGET_UNREADABLE


async def test_no_offset_of_one_topic_says_what_was_read_in_the_others_that_are_still_there() -> None:
    target = FakeCluster("B", clock=FakeClock())
    target.add_topic("A.eu", 1)
    routed_to = {"A.orders": ["A.us", "A.eu"], "A.b": [], "A.c": ["A.us"]}
    back = NoWayBack(
        routed_to=lambda partition: routed_to[partition.topic], target=target, otherwise=Others()
    )
    routed, *others = (
        SourcePosition(partition=TopicPartition(topic, 0), next_offset=5) for topic in routed_to
    )
    told = await back.translate([routed, *others])
    assert (told[routed].verdict, told[routed].downstream_offset) == (Verdict.NO_SYNC, None)
    assert [told[each] for each in others] == [OTHER, OTHER]
