"""What peers know of configsync's topics while it comes, goes and starts again."""

from collections.abc import Callable

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.model import Flow
from twinlog.service.errors_wire import PeerUnavailableError
from twinlog.service.feeds.client import Lost, Received, Restarted
from twinlog.service.feeds.replicated_topics import TopicState
from twinlog.service.feeds.topics import TopicsWatch
from twinlog.service.peers import open_channel
from twinlog.service.runtime import Backoff
from twinlog.testing.fakes.clock import FakeClock

FLOW = Flow("A", "B")
_FLOW = types_pb2.Flow(source="A", target="B")


def _topic(name: str, partitions: int = 1) -> pb2.ReplicatedTopic:
    return pb2.ReplicatedTopic(
        flow=_FLOW,
        source_topic=name,
        target_topic=f"A.{name}",
        partition_count=partitions,
        target_partition_count=partitions,
        state=pb2.TOPIC_STATE_READY,
    )


class Peer:
    """A configsync as the watch shows it."""

    def __init__(self, watch: TopicsWatch) -> None:
        self._watch = watch

    def snapshot(self, *names: str, settled: bool) -> None:
        self._watch.handle(Restarted())
        for name in names:
            self._say(pb2.WatchTopicsResponse(snapshot_item=_topic(name)))
        flows = [_FLOW] if settled else []
        self._say(pb2.WatchTopicsResponse(snapshot_end=pb2.SnapshotEnd(settled_flows=flows)))

    def change(self, name: str, partitions: int = 1) -> None:
        self._say(pb2.WatchTopicsResponse(changed=_topic(name, partitions)))

    def remove(self, name: str) -> None:
        self._say(pb2.WatchTopicsResponse(removed=_topic(name)))

    def settle(self) -> None:
        self._say(pb2.WatchTopicsResponse(flow_settled=_FLOW))

    def vanish(self) -> None:
        self._watch.handle(Lost(PeerUnavailableError("gone")))

    def _say(self, response: pb2.WatchTopicsResponse) -> None:
        self._watch.handle(Received(response))


@pytest.fixture
async def watch() -> TopicsWatch:
    async with open_channel("127.0.0.1:1") as channel:
        backoff = Backoff(initial_seconds=1, max_seconds=1, random=lambda: 1.0)
        return TopicsWatch(channel, clock=FakeClock(), backoff=backoff)


@pytest.fixture
def configsync(watch: TopicsWatch) -> Peer:
    return Peer(watch)


def _names(watch: TopicsWatch) -> set[str]:
    return set(watch.topics(FLOW))


def test_nothing_is_known_before_configsync_spoke(watch: TopicsWatch) -> None:
    assert _names(watch) == set()
    assert not watch.settled(FLOW)
    assert not watch.connected


def test_a_snapshot_shows_when_it_is_complete(watch: TopicsWatch, configsync: Peer) -> None:
    watch.handle(Restarted())
    watch.handle(Received(pb2.WatchTopicsResponse(snapshot_item=_topic("orders"))))
    assert _names(watch) == set()

    configsync.snapshot("orders", "payments", settled=True)
    assert _names(watch) == {"orders", "payments"}
    assert watch.settled(FLOW)


def test_changes_apply_one_by_one(watch: TopicsWatch, configsync: Peer) -> None:
    configsync.snapshot("orders", "old", settled=True)
    configsync.change("orders", partitions=5)
    configsync.change("new")
    configsync.remove("old")

    assert _names(watch) == {"orders", "new"}
    assert watch.topics(FLOW)["orders"].copyable_partition_count == 5


def test_topics_stay_known_while_configsync_is_away(watch: TopicsWatch, configsync: Peer) -> None:
    configsync.snapshot("orders", settled=True)
    configsync.vanish()

    assert _names(watch) == {"orders"}
    assert watch.settled(FLOW)
    assert not watch.connected


def test_a_settled_snapshot_drops_what_is_gone(watch: TopicsWatch, configsync: Peer) -> None:
    configsync.snapshot("orders", "old", settled=True)
    configsync.vanish()
    configsync.snapshot("orders", settled=True)

    assert _names(watch) == {"orders"}


def test_a_configsync_that_has_just_started_makes_no_topic_disappear(
    watch: TopicsWatch, configsync: Peer
) -> None:
    configsync.snapshot("orders", "old", settled=True)
    configsync.vanish()
    configsync.snapshot(settled=False)
    assert _names(watch) == {"orders", "old"}

    configsync.change("orders")
    assert _names(watch) == {"orders", "old"}
    configsync.settle()
    assert _names(watch) == {"orders"}


def test_two_restarts_before_settling_keep_what_the_second_confirmed(
    watch: TopicsWatch, configsync: Peer
) -> None:
    configsync.snapshot("orders", "old", settled=True)
    configsync.snapshot(settled=False)
    configsync.snapshot("orders", "old", settled=False)
    configsync.settle()

    assert _names(watch) == {"orders", "old"}


def test_subscribers_are_told_of_every_change(watch: TopicsWatch, configsync: Peer) -> None:
    told = watch.subscribe()
    assert told.is_set()
    changes: list[Callable[[], None]] = [
        lambda: configsync.snapshot("orders", settled=False),
        lambda: configsync.change("orders"),
        lambda: configsync.remove("orders"),
        configsync.settle,
    ]
    for change in changes:
        told.clear()
        change()
        assert told.is_set()


def test_a_topic_that_is_not_ready_has_nothing_to_copy(watch: TopicsWatch) -> None:
    waiting = _topic("orders", partitions=3)
    waiting.state = pb2.TOPIC_STATE_WAITING
    unknown = _topic("payments", partitions=3)
    unknown.state = 99  # type: ignore[assignment]  # what a newer configsync may say
    for topic in (waiting, unknown):
        watch.handle(Received(pb2.WatchTopicsResponse(changed=topic)))

    assert {entry.state for entry in watch.topics(FLOW).values()} == {TopicState.WAITING}
    assert [entry.copyable_partition_count for entry in watch.topics(FLOW).values()] == [0, 0]


def test_the_fewer_of_both_sides_partitions_can_be_copied(watch: TopicsWatch) -> None:
    growing = _topic("orders", partitions=3)
    growing.target_partition_count = 2
    watch.handle(Received(pb2.WatchTopicsResponse(changed=growing)))

    assert watch.topics(FLOW)["orders"].copyable_partition_count == 2
