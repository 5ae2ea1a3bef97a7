"""One flow A->B on two fake clusters, with everything the checkpoint service builds for it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from opentelemetry.metrics import NoOpMeter

from twinlog.config import CheckpointSettings, ClientConfig, Configuration, OffsetSyncsLocation, Selection
from twinlog.errors import KafkaError
from twinlog.kafka.outage import NO_OUTAGE, Outage
from twinlog.kafka.raw.lookups import OpenTransaction
from twinlog.model import Flow, TopicPartition
from twinlog.policy import DefaultReplicationPolicy, HostedTopic, ReplicationPolicy
from twinlog.policy.transformed import TopicTransforms
from twinlog.selection import TopicSelector
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog.wire import Checkpoint, OffsetSync, TopicIds, decode_checkpoint, encode_offset_sync
from twinlog.wire.topic_ids import topic_ids_headers
from twinlog_checkpoint.api.moves_servicer import ServedFlow
from twinlog_checkpoint.assembly import (
    assemble_flow,
    assemble_flow_elsewhere,
    assemble_group_syncer,
    assemble_moves,
)
from twinlog_checkpoint.config import CheckpointClients, CheckpointFlow, checkpoint_flow
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.groups.checkpointer import Checkpointer
from twinlog_checkpoint.moves.planning.decision import CopyReport
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.translation import Verdict
from twinlog_checkpoint.translators import FlowClusters, SharedDependencies
from unit.checkpoint.owners import AlwaysOwner
from unit.checkpoint.record_log import RecordLog
from unit.name_lists import group_lists, topic_lists

A_TO_B = Flow("A", "B")
B_TO_A = Flow("B", "A")
SYNCS_TOPIC = "mm2-offset-syncs.B.internal"
CHECKPOINTS_TOPIC = "A.checkpoints.internal"
_NO_CLIENT = ClientConfig(alias="none", properties={})


class NothingKnown:
    """configsync is away."""

    def settled(self, flow: Flow) -> bool:
        return False

    def topics(self, flow: Flow) -> Mapping[str, object]:
        return {}

    def routes(self, flow: Flow) -> Mapping[str, ReplicatedTopic]:
        return {}

    def ever_routed(self, flow: Flow) -> Mapping[str, ReplicatedTopic]:
        return self.routes(flow)


@dataclass(slots=True, kw_only=True)
class KnownTopics(NothingKnown):
    """configsync has settled on these source topics."""

    names: set[str]

    def settled(self, flow: Flow) -> bool:
        return True

    def topics(self, flow: Flow) -> Mapping[str, object]:
        return dict.fromkeys(self.names)


@dataclass(slots=True, kw_only=True)
class ToldTopics(NothingKnown):
    """configsync has not settled; a test may say what it knows of topics."""

    known: Mapping[str, object] = field(default_factory=dict)

    def settled(self, flow: Flow) -> bool:
        return False

    def topics(self, flow: Flow) -> Mapping[str, object]:
        return self.known


@dataclass(slots=True, kw_only=True)
class ToldCopyStates:
    """The source service says this."""

    report: CopyReport = field(default_factory=lambda: CopyReport(away="the source service does not answer"))
    asked: int = 0

    async def of(self, flow: Flow, *, with_losses: bool = False) -> CopyReport:
        self.asked += 1
        return self.report if with_losses else replace(self.report, lost={})


@dataclass(slots=True, kw_only=True)
class CheckpointFlowRig:
    """Clusters and parts; a test may replace either."""

    source: FakeCluster = field(default_factory=lambda: FakeCluster("A"))
    target: FakeCluster = field(default_factory=lambda: FakeCluster("B"))
    clock: FakeClock = field(default_factory=FakeClock)
    policy: ReplicationPolicy = field(default_factory=DefaultReplicationPolicy)
    known_topics: NothingKnown | KnownTopics | ToldTopics = field(default_factory=NothingKnown)
    copy_states: ToldCopyStates = field(default_factory=ToldCopyStates)
    syncs_topic: str = SYNCS_TOPIC
    translation_max_bytes: int = 0
    """0 = MM2's rule alone."""
    transforms: TopicTransforms = field(default_factory=lambda: TopicTransforms({}, "A"))
    open_transactions: dict[TopicPartition, list[OpenTransaction]] = field(default_factory=dict)
    """What the leaders of the source say of them."""
    outages: dict[str, Outage] = field(default_factory=dict)
    """By cluster."""
    configuration: Configuration | None = None
    """The rules and settings of a file; without one, all topics and groups are selected."""

    def __post_init__(self) -> None:
        if self.syncs_topic not in self.source.topics:
            self.source.add_topic(self.syncs_topic, configs={"cleanup.policy": "compact"})

    async def write_sync(
        self,
        topic: str,
        upstream: int,
        downstream: int,
        partition: int = 0,
        *,
        topic_ids: TopicIds | None = None,
    ) -> None:
        key, value = encode_offset_sync(
            OffsetSync(
                partition=TopicPartition(topic, partition),
                upstream_offset=upstream,
                downstream_offset=downstream,
            )
        )
        async with self.source.writer() as writer:
            place, headers = TopicPartition(self.syncs_topic, 0), topic_ids_headers(topic_ids)
            await writer.append(place, key=key, value=value, headers=headers)

    def checkpoints(self) -> list[Checkpoint]:
        """What stands in the checkpoints topic, in order."""
        if CHECKPOINTS_TOPIC not in self.target.topics:
            return []
        records = self.target.records(TopicPartition(CHECKPOINTS_TOPIC, 0))
        return [decode_checkpoint(record.key, record.value) for record in records]

    def parts(self) -> FlowParts:
        """The parts as after a start of the service."""
        clusters = FlowClusters(
            source=self.source,
            target=self.target,
            syncs=self.source,
            checkpoints_reader=self.target,
            checkpoints_writer=self.target,
            source_log=LogSide(
                admin=self.source,
                log=RecordLog(self.source.reader()),
                unreadable=Verdict.SOURCE_UNREADABLE,
                open_transactions=self._open_transactions,
            ),
            target_log=LogSide(
                admin=self.target,
                log=RecordLog(self.target.reader()),
                unreadable=Verdict.TARGET_UNREADABLE,
            ),
        )
        return assemble_flow(self._entry(), clusters, self.around(), AlwaysOwner().lease)

    async def _open_transactions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[OpenTransaction] | KafkaError]:
        return {each: self.open_transactions.get(each, []) for each in partitions}

    def reverse_parts(self, *, elsewhere: bool = False) -> FlowParts:
        """The parts of the flow B->A: it copies nothing yet, and its offset syncs are read. `elsewhere`: this
        process does not run it."""
        clusters = FlowClusters(
            source=self.target,
            target=self.source,
            syncs=self.target,
            checkpoints_reader=self.source,
            checkpoints_writer=self.source,
            source_log=LogSide(
                admin=self.target,
                log=RecordLog(self.target.reader()),
                unreadable=Verdict.SOURCE_UNREADABLE,
            ),
            target_log=LogSide(
                admin=self.source,
                log=RecordLog(self.source.reader()),
                unreadable=Verdict.TARGET_UNREADABLE,
            ),
        )
        entry, around = self._entry(B_TO_A), self.around()
        if elsewhere:
            parts = assemble_flow_elsewhere(entry, clusters, around)
        else:
            parts = assemble_flow(entry, clusters, around, AlwaysOwner().lease)
        parts.checkpointer.tail.store.finish_reading()
        return parts

    def checkpointer(self) -> Checkpointer:
        return self.parts().checkpointer

    def around(self) -> SharedDependencies:
        return SharedDependencies(
            known_topics=self.known_topics,
            clock=self.clock,
            meter=NoOpMeter("test"),
            stop=asyncio.Event(),
            refusal=lambda flow: None,
            outage=lambda alias: (
                self.outages.get(alias, NO_OUTAGE)
                if {"A": self.source, "B": self.target}[alias].hooks.available
                else Outage(reason="KAFKA_UNAVAILABLE", brokers={1: f"{alias}:9092"})
            ),
            aliases=("A", "B"),
            copy_states=self.copy_states,
        )

    async def sync_groups(self, parts: FlowParts, *, deletes_enabled: bool = False) -> None:
        set_settings(parts, sync_group_deletes_enabled=deletes_enabled)
        await assemble_group_syncer(parts).sync()

    def served(self, parts: FlowParts) -> ServedFlow:
        """The flow with what moves its groups."""
        return assemble_moves({A_TO_B: parts}, self.around())[A_TO_B]

    async def do_pass(self, checkpointer: Checkpointer) -> None:
        async with self.target.writer() as writer:
            await checkpointer.do_pass(writer)

    @asynccontextmanager
    async def running(self, *, until_ready: bool = True) -> AsyncIterator[FlowParts]:
        """A flow whose syncs have been read and are tailed, as after the start of the service.

        Without `until_ready` one whose syncs cannot be read.
        """
        parts = self.parts()
        tail = parts.checkpointer.tail
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(tail.run(stop), name="tail")
            try:
                await self.do_pass(parts.checkpointer)
                await turns(lambda: tail.store.read_to_end if until_ready else tail.blocker)
                yield parts
            finally:
                stop.set()

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[Checkpointer]:
        """Only the checkpointer of `running`."""
        async with self.running() as parts:
            yield parts.checkpointer

    def _entry(self, flow: Flow = A_TO_B) -> CheckpointFlow:
        if self.configuration is not None:
            return checkpoint_flow(self.configuration.flow(flow))
        settings = CheckpointSettings(
            enabled=True,
            groups=Selection(include=(".*",), exclude=()),
            topics=Selection(include=(".*",), exclude=()),
            offset_syncs_location=OffsetSyncsLocation.SOURCE,
            emit_interval_seconds=1,
            refresh_groups_enabled=True,
            refresh_groups_interval_seconds=1,
            sync_group_offsets_enabled=True,
            sync_group_offsets_interval_seconds=1,
            sync_group_deletes_enabled=False,
            sync_group_deletes_grace_seconds=60,
            sync_group_deletes_max_per_hour=2,
            translation_max_bytes=self.translation_max_bytes,
            topic_replication_factor=1,
        )
        return CheckpointFlow(
            is_stopped=False,
            transforms=self.transforms,
            flow=flow,
            policy=self.policy,
            topics=TopicSelector(flow=flow, policy=self.policy, topic_filter=topic_lists()),
            groups=group_lists(),
            syncs_topic=HostedTopic(cluster="A", topic=self.syncs_topic),
            checkpoints_topic=CHECKPOINTS_TOPIC,
            settings=settings,
            clients=CheckpointClients(
                source_admin=_NO_CLIENT,
                target_admin=_NO_CLIENT,
                source_reader=_NO_CLIENT,
                target_reader=_NO_CLIENT,
                syncs_reader=_NO_CLIENT,
                checkpoints_writer=_NO_CLIENT,
            ),
        )


async def turns(condition: Callable[[], object], most: int = 1000) -> None:
    """Let other tasks run until the condition holds: nothing here waits for time."""
    for _ in range(most):
        if condition():
            return
        await one_turn()
    raise AssertionError(f"not so after {most} turns of the event loop")


async def one_turn() -> None:
    loop = asyncio.get_running_loop()
    turn = loop.create_future()
    loop.call_soon(turn.set_result, None)
    await turn


def set_settings(parts: FlowParts, **changed: Any) -> None:
    """As changed rules do it."""
    entry = parts.entry
    parts.checkpointer.entry = replace(entry, settings=replace(entry.settings, **changed))
