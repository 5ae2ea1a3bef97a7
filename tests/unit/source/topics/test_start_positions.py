"""Where a partition begins that has no stored position."""

from collections.abc import Sequence

import pytest

from twinlog.config import AutoOffsetReset
from twinlog.errors import ConfigError, KafkaError
from twinlog.kafka.errors import from_code
from twinlog.model import TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicState
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.log.facts import TopicFact
from twinlog_source.topics.start_positions import StartPositions, came_later
from unit.config.config_files import load_more

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def topic(*, created_after_start: bool = False) -> ReplicatedTopic:
    return ReplicatedTopic(
        source_topic="t",
        target_topic="A.t",
        partition_count=2,
        target_partition_count=2,
        source_topic_id="id",
        target_topic_id="",
        generation=1,
        created_after_start=created_after_start,
        state=TopicState.READY,
        source_cleanup_policy="",
    )


def test_what_came_after_the_flow_began_is_copied_from_its_beginning() -> None:
    mark = TopicFact(topic="t", topic_id="id", known_partitions=1)
    assert not came_later(P, topic(), mark)
    assert not came_later(P, topic(), None)
    assert came_later(Q, topic(), mark)
    assert came_later(P, topic(created_after_start=True), mark)


def source() -> FakeCluster:
    cluster = FakeCluster("A")
    cluster.add_topic("t", partition_count=2)
    return cluster


async def fill(cluster: FakeCluster, *, times: Sequence[int]) -> None:
    async with cluster.writer() as writer:
        for partition in (P, Q):
            for at in times:
                await writer.append(partition, key=None, value=b"v", timestamp_ms=at)


async def test_a_partition_begins_where_the_group_has_committed_and_the_others_by_the_reset() -> None:
    cluster = source()
    await fill(cluster, times=[10, 20, 30])
    cluster.set_group("mm1", {P: 2})
    starts = StartPositions(source=cluster, read_committed=True, group="mm1")
    latest = dict.fromkeys((P, Q), AutoOffsetReset.LATEST)

    assert await starts.begin(latest, were_there=(P, Q)) == {P: 2, Q: 3}
    none = dict.fromkeys((P, Q), AutoOffsetReset.NONE)
    assert await starts.begin(none, were_there=(P, Q)) == {P: 2}
    later = {P: AutoOffsetReset.EARLIEST}
    assert await starts.begin(later, were_there=()) == {P: 0}, "nothing of what came later is left out"


async def test_the_keys_of_a_file_say_where_a_flow_begins() -> None:
    file = load_more("twinlog.start.group = mm1", "A->B.twinlog.start.time = 1970-01-01T00:00:00.015")
    flow = next(each for each in file.flows if each.enabled)
    cluster = source()
    await fill(cluster, times=[10, 20, 30])
    cluster.set_group("mm1", {P: 2})
    starts = StartPositions(
        source=cluster,
        read_committed=True,
        group=flow.source.start_group,
        time_ms=flow.source.start_time_ms,
    )
    latest = dict.fromkeys((P, Q), AutoOffsetReset.LATEST)
    assert await starts.begin(latest, were_there=(P, Q)) == {P: 2, Q: 1}

    with pytest.raises(ConfigError, match="a time such as"):
        load_more("twinlog.start.time = yesterday")


async def test_a_partition_begins_at_the_time_unless_the_group_knows_it() -> None:
    cluster = source()
    await fill(cluster, times=[10, 20, 30])
    cluster.set_group("mm1", {P: 0})
    latest = dict.fromkeys((P, Q), AutoOffsetReset.LATEST)

    starts = StartPositions(source=cluster, read_committed=True, group="mm1", time_ms=15)
    assert await starts.begin(latest, were_there=(P, Q)) == {P: 0, Q: 1}
    starts = StartPositions(source=cluster, read_committed=True, time_ms=31)
    assert await starts.begin(latest, were_there=(P, Q)) == {P: 3, Q: 3}, "no record is so young"


async def test_a_partition_begins_as_long_ago_as_by_duration_says() -> None:
    cluster = source()
    clock = FakeClock()
    now_ms = clock.now_ms()
    await fill(cluster, times=[now_ms - 7_200_000, now_ms - 3_599_000, now_ms])
    flow = next(each for each in load_more("A.consumer.auto.offset.reset = by_duration:PT1H").enabled_flows)
    starts = StartPositions(
        source=cluster, read_committed=True, ago_ms=flow.source.reset_duration_ms, clock=clock
    )
    resets = {P: flow.source.auto_offset_reset, Q: AutoOffsetReset.EARLIEST}
    assert await starts.begin(resets, were_there=(P,)) == {P: 1, Q: 0}, "what came later is copied whole"
    clock.advance(3_601)
    assert (await starts.begin(resets, were_there=(P,)))[P] == 3, "the end where nothing is so young"


async def test_nothing_begins_while_another_mirror_still_commits_for_the_group() -> None:
    cluster = source()
    cluster.set_group("mm1", {P: 2}, state="STABLE", member_count=1)
    starts = StartPositions(source=cluster, read_committed=True, group="mm1")
    latest = {P: AutoOffsetReset.LATEST}

    found = (await starts.begin(latest, were_there=(P,)))[P]
    assert isinstance(found, KafkaError)
    assert found.reason == "START_GROUP_ACTIVE"
    cluster.set_group("mm1", state="EMPTY")
    assert await starts.begin(latest, were_there=(P,)) == {P: 2}


async def test_a_group_that_may_not_be_read_is_not_taken_for_one_without_offsets() -> None:
    cluster = source()
    cluster.set_group("mm1", {P: 2})

    def refuse(call: Call) -> None:
        call.result["mm1"] = from_code(30, "read offsets", alias="A")

    cluster.intercept("group_offsets", refuse, after=True)
    starts = StartPositions(source=cluster, read_committed=True, group="mm1")

    found = await starts.begin({P: AutoOffsetReset.LATEST}, were_there=(P,))

    assert isinstance(found[P], KafkaError)
