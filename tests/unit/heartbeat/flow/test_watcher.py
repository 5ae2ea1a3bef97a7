"""A watcher tells which topic it cannot read, and that it can again."""

import asyncio

from twinlog.errors import FatalKafkaError, TwinlogError
from twinlog.policy import DefaultReplicationPolicy
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_heartbeat.flow.watcher import HeartbeatWatcher
from twinlog_heartbeat.model.state import PathBook


def watcher_of(
    cluster: FakeCluster, clock: FakeClock, told: dict[str, TwinlogError | None], *expected: str
) -> HeartbeatWatcher:
    return HeartbeatWatcher(
        alias="B",
        admin=cluster,
        cluster=cluster,
        policy=DefaultReplicationPolicy(),
        paths=PathBook(),
        clock=clock,
        on_heartbeat=lambda *_heartbeat: None,
        on_blocker=lambda _alias, _error: None,
        on_read_blocker=lambda _alias, topic, error: told.update({topic: error}),
        expected=frozenset(expected),
    )


async def test_the_topics_of_the_cluster_are_not_all_listed_every_few_seconds() -> None:
    """Once a minute; those that are followed, or should be there, are asked for by name in between."""
    clock = FakeClock()
    cluster = FakeCluster("B", clock=clock)
    cluster.add_topic("heartbeats")
    cluster.add_topic("C.A.heartbeats")
    watcher = watcher_of(cluster, clock, {}, "A.heartbeats")
    listed: list[Call] = []
    cluster.intercept("list_topics", listed.append)
    assert await watcher.topics() == {"C.A.heartbeats"}
    cluster.add_topic("A.heartbeats")
    for _ in range(11):
        clock.advance(5)
        assert await watcher.topics() == {"A.heartbeats"}
    assert len(listed) == 1
    clock.advance(5)
    assert await watcher.topics() == {"A.heartbeats", "C.A.heartbeats"}
    assert len(listed) == 2


async def test_an_expected_topic_with_another_separator_is_kept_when_all_topics_are_listed() -> None:
    """A watcher has the policy of one flow, and the flows into its cluster may have others."""
    clock = FakeClock()
    cluster = FakeCluster("C", clock=clock)
    for topic in ("heartbeats", "A.heartbeats", "B_heartbeats", "X_heartbeats"):
        cluster.add_topic(topic)
    watcher = watcher_of(cluster, clock, {}, "A.heartbeats", "B_heartbeats", "D_heartbeats")
    for _ in range(26):  # two minutes: three listings
        assert await watcher.topics() == {"A.heartbeats", "B_heartbeats"}
        clock.advance(5)


async def test_a_topic_that_may_not_be_read_is_told_until_it_may() -> None:
    clock = FakeClock()
    cluster = FakeCluster("B", clock=clock)
    cluster.add_topic("A.heartbeats")
    told: dict[str, TwinlogError | None] = {}
    watcher = watcher_of(cluster, clock, told)

    def refuse(_call: Call) -> None:
        raise FatalKafkaError("an ACL for the topic is missing", reason="TOPIC_UNAUTHORIZED", code=29)

    async def refused() -> bool:
        error = told.get("A.heartbeats")
        return error is not None and error.reason == "TOPIC_UNAUTHORIZED"

    async def read() -> bool:
        return told.get("A.heartbeats", clock) is None

    undo = cluster.intercept("list_offsets", refuse)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(watcher.run(stop), name="watcher")
        assert await eventually(refused)
        undo()
        assert await eventually(read)
        stop.set()
