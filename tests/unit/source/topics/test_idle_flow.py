"""What an idle flow does not do: wake up for nothing, or ask as often beside a hundred flows as alone."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.batches import NewRecord, build_batch
from twinlog.model import Flow, TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock, LoopClock
from twinlog_source.log.control import ControlState
from twinlog_source.log.journal import TopicIdentities
from twinlog_source.partitions.events import TopicsChosen
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.task.writing.round import OffsetSyncs, paced_syncs
from twinlog_source.topics.source_ends import SourceEnds
from twinlog_source.topics.wanted import WantedTopics

P = TopicPartition("t", 0)


class CountingClock(LoopClock):
    """Each look at what is due asks it."""

    asked = 0

    def monotonic(self) -> float:
        self.asked += 1
        return super().monotonic()


async def test_offset_syncs_wake_up_only_while_there_is_something_to_publish() -> None:
    clock, nothing = CountingClock(), object()
    unused: Any = nothing
    syncs = OffsetSyncs(
        topic="syncs",
        session=unused,
        settings=unused,
        paced=paced_syncs(100, flush_seconds=60),
        clock=clock,
    )
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(syncs.run(stop), name="syncs")
        await wait_or_stop(stop, 3600)
        assert clock.asked < 5
        syncs.reopen_at = 7200.0  # the syncs topic is away
        syncs.acknowledged(P, build_batch([NewRecord(None, b"x", 0)]), 0)
        await wait_or_stop(stop, 60)
        assert clock.asked > 60, "what waits is tried again and again"
        stop.set()


@pytest.mark.parametrize(("flows", "every_seconds"), [(1, 2), (20, 2), (100, 10)])
async def test_many_flows_of_a_process_look_at_ends_less_often_each(flows: int, every_seconds: int) -> None:
    clock = FakeClock()
    cluster, table = FakeCluster("A", clock=clock), PartitionTable()
    cluster.add_topic("t")
    table.apply(TopicsChosen(targets={P: "A.t"}), 0.0)
    ends = SourceEnds(
        source=cluster,
        reader=cluster.reader(),
        table=table,
        read_committed=True,
        clock=clock,
        flows=flows,
    )
    looks = 0
    for _ in range(60):
        if ends.is_due:
            await ends.look()
            looks += 1
        clock.advance(1)
    assert looks == 60 // every_seconds


@dataclass(slots=True)
class NoTopics:
    """configsync's word, limits and facts: none."""

    control = ControlState()

    def topics(self, _flow: Flow) -> dict[str, Any]:
        return {"t": _Topic()}

    def settled(self, _flow: Flow) -> bool:
        return True

    async def corrected(self, topics: dict[str, Any], _now: float) -> dict[str, Any]:
        return topics


@dataclass(frozen=True, slots=True)
class _Topic:
    source_topic: str = "t"
    source_topic_id: str = ""
    copyable_partition_count: int = 1


@pytest.mark.parametrize(("flows", "every_seconds"), [(1, 1), (10, 1), (100, 10)])
async def test_many_flows_of_a_process_compare_topic_ids_less_often_each(
    flows: int, every_seconds: int
) -> None:
    clock = FakeClock()
    cluster = FakeCluster("A", clock=clock)
    cluster.add_topic("t")
    asked: list[Call] = []
    cluster.intercept("describe_topics", asked.append)
    word: Any = NoTopics()
    book: Any = SimpleNamespace(
        flow=SimpleNamespace(flow=Flow("A", "B")),
        source=cluster,
        control=word.control,
        marks=TopicIdentities(flow=Flow("A", "B"), control=word.control, journal=word),
        table=PartitionTable(),
        clock=clock,
    )
    wanted = WantedTopics(
        book=book,
        decisions=word,
        target_topics=word,
        flows=flows,
    )
    for _ in range(60):
        topics = await wanted.now()
        assert topics["t"].source_topic_id == cluster.topic_id("t")
        clock.advance(1)
    assert len(asked) == 60 // every_seconds
