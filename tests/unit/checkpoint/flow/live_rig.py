"""A flow whose rules change while groups are moved: orders is copied to its end, invoices is not."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

import grpc

from twinlog.acl_rights import ALLOW
from twinlog.config import Configuration
from twinlog.kafka.ports import AclBinding
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import configsync_topic
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.rules import flow_in_effect
from twinlog.service.runtime import Backoff
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_checkpoint.api.moves_servicer import ServedFlow
from twinlog_checkpoint.assembly import assemble_group_syncer
from twinlog_checkpoint.config import checkpoint_flow
from twinlog_checkpoint.flow.live_rules import RulesFollower
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from unit.checkpoint.checkpoint_rig import A_TO_B, B_TO_A, CheckpointFlowRig, KnownTopics, NothingKnown

ORDERS, INVOICES = TopicPartition("orders", 0), TopicPartition("invoices", 0)
ORDERS_COPY, INVOICES_COPY = TopicPartition("A.orders", 0), TopicPartition("A.invoices", 0)
RECORDS, COPIED = 100, 40
FENCE = MoveOptions(wait_seconds=0, fence=True)
WRITER = AclBinding(
    resource_type="TOPIC",
    resource_name="invoices",
    pattern_type="LITERAL",
    principal="User:app",
    host="*",
    operation="WRITE",
    permission=ALLOW,
)


@dataclass(slots=True, kw_only=True)
class LiveRig:
    """orders is copied to its end, invoices is not; group g has read some of both."""

    fakes: CheckpointFlowRig
    parts: FlowParts
    served: ServedFlow
    follower: RulesFollower

    async def take_over(self) -> None:
        """The checkpointer begins to own the flow, and makes its first pass."""
        stopped = asyncio.Event()
        stopped.set()
        await self.parts.checkpointer.run(stopped)
        await self.fakes.do_pass(self.parts.checkpointer)

    def change_rules(self, values: Mapping[str, str]) -> None:
        config = flow_in_effect(self.follower.configuration, A_TO_B, values)
        self.follower.follow(checkpoint_flow(config))


@asynccontextmanager
async def live_rig(
    configuration: Configuration,
    *,
    configsync_knows: Collection[str] = ("orders", "invoices"),
    reads_stored_rules: bool = False,
) -> AsyncIterator[LiveRig]:
    """`configsync_knows`: the topics of its registry; none if it is down. `reads_stored_rules`: the
    checkpointer and the moves wait for the stored rules, as in the service."""
    source, target = FakeCluster("A", authorizer=True), FakeCluster("B", authorizer=True)
    for name in ("orders", "invoices"):
        source.add_topic(name)
        target.add_topic(f"A.{name}")
    fakes = CheckpointFlowRig(
        source=source,
        target=target,
        known_topics=KnownTopics(names=set(configsync_knows)) if configsync_knows else NothingKnown(),
        configuration=configuration,
    )
    async with source.writer() as here, target.writer() as there:
        for number in range(RECORDS):
            value = b"%d" % number
            for origin, copy, end in ((ORDERS, ORDERS_COPY, RECORDS), (INVOICES, INVOICES_COPY, COPIED)):
                await here.append(origin, key=b"k", value=value, timestamp_ms=number)
                if number < end:
                    await there.append(copy, key=b"k", value=value, timestamp_ms=number)
    for topic, end in (("orders", RECORDS), ("invoices", COPIED)):
        await fakes.write_sync(topic, 0, 0)
        await fakes.write_sync(topic, end - 1, end - 1)
    source.set_group("g", {ORDERS: 90, INVOICES: 20})
    channel = grpc.aio.insecure_channel("127.0.0.1:1")
    decisions = Decisions(
        channel,
        clock=FakeClock(),
        backoff=Backoff(initial_seconds=1.0, max_seconds=1.0, random=lambda: 0.0),
        patience_seconds=0.01,
    )
    decisions.add(A_TO_B, target)
    decisions.add(B_TO_A, source)
    async with fakes.running() as parts:
        follower = RulesFollower(
            configuration=configuration,
            decisions=decisions,
            checkpointer=parts.checkpointer,
            syncer=assemble_group_syncer(parts),
        )
        if reads_stored_rules:
            parts.checkpointer.learn_rules = follower.learn
            parts = replace(parts, rules=follower)
        served = fakes.served(parts)
        for runner in (served.failover, served.failback):
            runner.drain_look_seconds = runner.planner.rate_seconds = 0
        yield LiveRig(fakes=fakes, parts=parts, served=served, follower=follower)
    await channel.close()


async def applied(follower: RulesFollower) -> None:
    """Its loop runs until the stored rules apply."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follower.decisions.run(stop), name="decisions")
        tasks.create_task(follower.run(stop), name="follower")
        await eventually(lambda: not follower.problem)
        stop.set()


async def store_rules(
    target: FakeCluster,
    values: Mapping[str, str],
    *,
    of: str = "A",
    version: int = 1,
    replaced: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """As configsync stores them for the flow from cluster `of`; `replaced`: values of its file."""
    topic = configsync_topic(of)
    target.add_topic(topic, 1, {"cleanup.policy": "compact"})
    rules = {"version": version, "revision": 1, "updated_at_ms": 1, "values": dict(values)}
    rules["origins"] = {key: {"replaced": was} for key, was in replaced.items()}
    value = json.dumps(rules).encode()
    async with target.writer() as writer:
        await writer.append(TopicPartition(topic, 0), key=b'["rules"]', value=value)
