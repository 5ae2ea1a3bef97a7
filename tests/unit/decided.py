"""What configsync has decided about a flow, as its registry on the target has it, and as it tells it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import grpc

from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.table import Table
from twinlog.model import Flow
from twinlog.policy.internal_topics import configsync_topic
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog.service.feeds.rules_record import RulesRecord
from twinlog_configsync.model.memory import Memory
from twinlog_configsync.model.records import RegistryCodec


async def decide(
    target: KafkaCluster,
    flow: Flow,
    entries: Iterable[ReplicatedTopic] = (),
    *,
    rules: Mapping[str, str] | RulesRecord | None = None,
) -> None:
    """Store it: these topics, and no others."""
    table = Table(cluster=target, topic=configsync_topic(flow.source), codec=RegistryCodec())
    await table.load()
    if isinstance(rules, Mapping):
        rules = RulesRecord(revision=1, updated_at_ms=1, values=rules)
    memory = Memory(
        entries={each.source_topic: each for each in entries},
        rules=rules,
        settled_at_ms=1,
    )
    await table.replace(memory.records())


async def told(decisions: Decisions, target: KafkaCluster, flow: Flow, *entries: ReplicatedTopic) -> None:
    """Store it, and let a peer read it."""
    decisions.add(flow, target)
    await decide(target, flow, entries)
    await decisions.know(flow)


@dataclass(slots=True)
class Joined:
    """A channel to tables that are told in the same loop, for as long as they are not away."""

    tables: Any
    is_away: bool = False
    sent: list[Any] = field(default_factory=list)
    """Every answer that was told."""
    most: int | None = None
    """How many answers a stream gives before it breaks."""
    breaks: asyncio.Event = field(default_factory=asyncio.Event)

    def unary_stream(self, *_: object, **__: object) -> Callable[..., "_Stream"]:
        return lambda request, **_: _Stream(self, request)

    def cut(self) -> None:
        """End all streams. New ones work, unless it is away."""
        self.breaks.set()
        self.breaks = asyncio.Event()


@dataclass(slots=True)
class _Stream:
    joined: Joined
    request: Any

    async def __aiter__(self) -> AsyncIterator[Any]:
        joined, left, cut = self.joined, self.joined.most, self.joined.breaks
        answers = joined.tables.Follow(self.request, None)
        async with aclosing(answers):
            while not joined.is_away and left != 0:
                async with asyncio.TaskGroup() as group:
                    end = group.create_task(cut.wait(), name="cut")
                    following = group.create_task(anext(answers, None), name="next answer")
                    await asyncio.wait({following, end}, return_when=asyncio.FIRST_COMPLETED)
                    answer = following.result() if following.done() else None
                    end.cancel()
                    following.cancel()
                if answer is None:
                    break
                joined.sent.append(answer)
                left = None if left is None else left - 1
                yield answer
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())

    def cancel(self) -> bool:
        return True
