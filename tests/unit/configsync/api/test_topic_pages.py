"""A registry of any number of topics is listed, page by page."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.cli.common.call import called
from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog.service.interceptors import Context
from twinlog.service.limits import MAX_MESSAGE_BYTES
from twinlog_configsync.api.servicer import ConfigSyncServicer
from twinlog_configsync.model.memory import Memory

A_B, C_B = Flow("A", "B"), Flow("C", "B")
NOBODY = cast("Context", None)
TOPICS = 2_000


@dataclass
class Passes:
    topics: list[ReplicatedTopic] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)


def entry(name: str) -> ReplicatedTopic:
    return ReplicatedTopic(source_topic=name, target_topic=f"A.{name}", partition_count=1)


def serve() -> tuple[Mapping[Flow, Passes], ConfigSyncServicer]:
    flows = {A_B: Passes(), C_B: Passes()}
    served: Any = {
        flow: SimpleNamespace(sync=SimpleNamespace(flow=flow, passes=passes))
        for flow, passes in flows.items()
    }
    nothing: Any = None
    return flows, ConfigSyncServicer(served, clusters=nothing, stop=asyncio.Event())


@dataclass
class Stub:
    """The service as a client calls it; the flows of its process are not asked for."""

    servicer: ConfigSyncServicer
    calls: int = 0
    largest: int = 0

    async def ListTopics(  # noqa: N802
        self, request: pb2.ListTopicsRequest, *, timeout: float
    ) -> pb2.ListTopicsResponse:
        self.calls += 1
        answer = await self.servicer.ListTopics(
            pb2.ListTopicsRequest(page_size=request.page_size, page_token=request.page_token), NOBODY
        )
        self.largest = max(self.largest, answer.ByteSize())
        return answer

    async def page(self, *, size: int = 0, token: str = "") -> pb2.ListTopicsResponse:
        return await self.ListTopics(pb2.ListTopicsRequest(page_size=size, page_token=token), timeout=1.0)


def names(answer: pb2.ListTopicsResponse) -> list[tuple[str, str]]:
    return [(topic.flow.source, topic.source_topic) for topic in answer.topics]


async def test_pages_hold_every_topic_once_and_in_order() -> None:
    flows, servicer = serve()
    flows[A_B].topics = [entry(name) for name in ("orders", "users")]
    flows[C_B].topics = [entry(name) for name in ("carts", "orders")]
    flows[C_B].memory = Memory(settled_at_ms=1)
    stub = Stub(servicer)
    for size in (1, 3, 4, 9):
        answer = await stub.page(size=size)
        found = names(answer)
        while answer.next_page_token:
            assert len(answer.topics) == size
            answer = await stub.page(size=size, token=answer.next_page_token)
            found += names(answer)
        assert found == [("A", "orders"), ("A", "users"), ("C", "carts"), ("C", "orders")]
        assert [flow.source for flow in answer.settled_flows] == ["C"]


async def test_a_registry_of_more_than_one_message_is_listed_whole() -> None:
    flows, servicer = serve()
    waits = "x" * 10_000
    flows[A_B].topics = [replace(entry(f"{number:05}"), message=waits) for number in range(TOPICS)]
    stub = Stub(servicer)
    flow = types_pb2.Flow(source="A", target="B")
    found = await called(cast("ConfigSyncServiceStub", stub), "configsync").ListTopics(
        pb2.ListTopicsRequest(flow=flow)
    )
    assert [topic.source_topic for topic in found.topics] == [f"{number:05}" for number in range(TOPICS)]
    assert stub.calls > 1
    assert stub.largest <= MAX_MESSAGE_BYTES


async def test_topics_that_come_and_go_between_pages_move_no_other() -> None:
    flows, servicer = serve()
    flows[A_B].topics = [entry(name) for name in ("a", "b", "c")]
    stub = Stub(servicer)
    first = await stub.page(size=1)
    flows[A_B].topics = [entry(name) for name in ("b", "c", "d")]
    second = await stub.page(token=first.next_page_token)
    assert names(second) == [("A", "b"), ("A", "c"), ("A", "d")]


@pytest.mark.parametrize("token", ["x", "MTI=", "WyJBIl0="])
async def test_a_token_of_something_else_is_refused(token: str) -> None:
    _, servicer = serve()
    with pytest.raises(ConfigError) as refused:
        await Stub(servicer).page(token=token)
    assert refused.value.reason == "INVALID_PAGE_TOKEN"
