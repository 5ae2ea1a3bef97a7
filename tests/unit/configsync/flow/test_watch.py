"""WatchTopics: a watcher that is cut off at any point, any number of times, knows in the end what one that
was never cut off knows.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import cast

import pytest
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.errors import NotFoundError
from twinlog.model import Flow
from twinlog.service.api_values import flow_message
from twinlog.service.clusters import Clusters
from twinlog.service.errors_wire import ResumeTokenExpiredError
from twinlog.service.interceptors import Context
from twinlog.testing.fakes.clock import FakeClock
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_configsync.api.servicer import ConfigSyncServicer
from twinlog_configsync.flow.feeds import Boards
from twinlog_configsync.flow.rules_feed import RulesBoard
from twinlog_configsync.flow.topic_feed import TopicBoard
from twinlog_configsync.model.entry import TopicEntry, TopicState

A_B, C_B = Flow("A", "B"), Flow("C", "B")
_METER = NoOpMeterProvider().get_meter("test")


class Caller:
    """A context that says nothing."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


def entry(name: str, partitions: int = 1) -> TopicEntry:
    return TopicEntry(
        source_topic=name,
        target_topic=f"A.{name}",
        partition_count=partitions,
        target_partition_count=partitions,
        state=TopicState.READY,
    )


STEPS: list[tuple[Flow, dict[str, TopicEntry] | None]] = [
    (A_B, {"orders": entry("orders"), "users": entry("users")}),
    (A_B, None),
    (C_B, {"carts": entry("carts")}),
    (A_B, {"orders": entry("orders", 3), "users": entry("users")}),
    (A_B, {"orders": entry("orders", 3)}),
    (C_B, None),
    (A_B, {"orders": replace(entry("orders", 3), generation=2), "users": entry("users")}),
]
"""What is published one after the other; None = the flow is settled."""


@dataclass(slots=True)
class Watcher:
    """Follows the proto's contract: a snapshot replaces everything, each token says where to continue."""

    servicer: ConfigSyncServicer
    cuts: frozenset[int] = frozenset()
    """After how many answers the stream breaks."""
    topics: dict[tuple[str, str], pb2.ReplicatedTopic] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    token: bytes = b""
    answers: int = 0
    _stream: AsyncGenerator[pb2.WatchTopicsResponse, None] | None = None

    async def catch_up(self, board: TopicBoard) -> None:
        while self.token != board.token:
            if self._stream is None:
                if not self.token:
                    self.topics.clear()
                    self.settled.clear()
                request = pb2.WatchTopicsRequest(resume_token=self.token)
                answers = self.servicer.WatchTopics(request, cast("Context", Caller()))
                self._stream = cast("AsyncGenerator[pb2.WatchTopicsResponse, None]", answers)
            async with asyncio.timeout(60):
                self._take(await anext(self._stream))
            if self.answers in self.cuts:
                await self.break_off()

    async def break_off(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()
        self._stream = None

    def _take(self, answer: pb2.WatchTopicsResponse) -> None:
        self.answers += 1
        self.token = answer.resume_token
        match answer.WhichOneof("event"):
            case "snapshot_item":
                self._put(answer.snapshot_item)
            case "changed":
                self._put(answer.changed)
            case "removed":
                del self.topics[_key(answer.removed)]
            case "snapshot_end":
                self.settled |= {str(flow) for flow in answer.snapshot_end.settled_flows}
            case "flow_settled":
                self.settled.add(str(answer.flow_settled))

    def _put(self, topic: pb2.ReplicatedTopic) -> None:
        self.topics[_key(topic)] = topic


def _key(topic: pb2.ReplicatedTopic) -> tuple[str, str]:
    return str(topic.flow), topic.source_topic


def publish(board: TopicBoard, flow: Flow, entries: dict[str, TopicEntry] | None) -> None:
    if entries is None:
        board.settle(flow)
    else:
        board.publish(flow, entries)


def serve(history_id: str = "test") -> tuple[TopicBoard, ConfigSyncServicer]:
    board = TopicBoard(history_id=history_id, meter=_METER)
    clock = FakeClock()
    clusters = Clusters(
        {}, open_cluster=lambda _config, _timeout: FakeCluster(), stack=AsyncExitStack(), clock=clock
    )
    boards = Boards(topics=board, rules=RulesBoard(history_id=history_id, meter=_METER))
    servicer = ConfigSyncServicer({}, boards=boards, clusters=clusters, clock=clock, stop=asyncio.Event())
    return board, servicer


async def watched(cuts: frozenset[int], *, late: int = 0) -> Watcher:
    """What a watcher knows that starts after `late` steps and is cut off at these answers."""
    board, servicer = serve()
    watcher = Watcher(servicer, cuts)
    for number, step in enumerate(STEPS):
        publish(board, *step)
        if number >= late:
            await watcher.catch_up(board)
    await watcher.break_off()
    return watcher


@pytest.mark.parametrize("late", range(len(STEPS)))
async def test_cut_off_at_every_point_it_knows_what_an_uninterrupted_watcher_knows(late: int) -> None:
    whole = await watched(frozenset(), late=late)
    assert len(whole.topics) == 3
    assert len(whole.settled) == 2
    points = range(1, whole.answers + 1)
    for cuts in [*combinations(points, 1), *combinations(points, 2), tuple(points)]:
        cut = await watched(frozenset(cuts), late=late)
        assert cut.topics == whole.topics, cuts
        assert cut.settled == whole.settled, cuts


async def test_changes_that_come_while_it_is_away_are_not_missed() -> None:
    board, servicer = serve()
    watcher = Watcher(servicer)
    publish(board, *STEPS[0])
    await watcher.catch_up(board)
    await watcher.break_off()
    for step in STEPS[1:]:
        publish(board, *step)
    await watcher.catch_up(board)
    await watcher.break_off()
    assert watcher.topics == (await watched(frozenset())).topics


async def test_a_token_of_an_earlier_process_says_so() -> None:
    board, servicer = serve("first")
    watcher = Watcher(servicer)
    publish(board, *STEPS[0])
    await watcher.catch_up(board)
    await watcher.break_off()
    board, watcher.servicer = serve("second")
    publish(board, *STEPS[0])
    with pytest.raises(ResumeTokenExpiredError):
        await watcher.catch_up(board)


async def test_a_flow_that_is_not_here_is_not_found() -> None:
    _, servicer = serve()
    with pytest.raises(NotFoundError) as unknown:
        await servicer.ListTopics(
            pb2.ListTopicsRequest(flow=flow_message(Flow("X", "Y"))),
            cast("object", None),  # type: ignore[arg-type]
        )
    assert unknown.value.reason == "FLOW_UNKNOWN"
