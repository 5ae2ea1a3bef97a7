"""A flow that has copied, its state in a file, and the target without its topics."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from twinlog.config import load
from twinlog.errors import StateError
from twinlog.model import Flow, TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.config import source_flows
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import (
    ClaimFact,
    Fact,
    OwnerFact,
    TopicFact,
)
from twinlog_source.log.positions import PositionsLog
from twinlog_source.state.export import FlowClusters, StateExport
from twinlog_source.state.judgement import RestoreVerdict
from twinlog_source.state.restore import ImportPlan, StateImport
from twinlog_source.state.state_file import ExportedFlow, lines, parse
from unit.source.flow_rig import FILE, OneFile

POSITIONS = "mm2-offsets.A.internal"
P, COPY = TopicPartition("t", 0), TopicPartition("A.t", 0)
FLOW = Flow("A", "B")


@dataclass(slots=True)
class StateRig:
    """A flow that has copied, and what is left of it."""

    more: str = ""
    clock: FakeClock = field(default_factory=FakeClock)
    source: FakeCluster = field(init=False)
    target: FakeCluster = field(init=False)

    def __post_init__(self) -> None:
        self.source, self.target = FakeCluster("A", clock=self.clock), FakeCluster("B", clock=self.clock)
        self.source.add_topic("t")
        self.target.add_topic("A.t")
        self.target.add_topic(POSITIONS, 5, {"cleanup.policy": "compact"})

    def clusters(self) -> FlowClusters:
        configuration = load(Path("mm2.properties"), environ={}, files=OneFile(FILE + self.more))
        (flow,) = source_flows(configuration)
        return FlowClusters(
            configuration=configuration,
            entry=configuration.flow(FLOW),
            flow=flow,
            source=self.source,
            target=self.target,
            clock=self.clock,
        )

    async def write(self, values: Sequence[bytes], *, source: bool = True, copy: bool = True) -> None:
        for cluster, partition, wanted in ((self.source, P, source), (self.target, COPY, copy)):
            async with cluster.writer() as writer:
                for value in values if wanted else ():
                    await writer.append(partition, key=None, value=value, timestamp_ms=1_000)

    async def store(self, key: bytes, value: bytes | None) -> None:
        number = partition_for_key(key, 5)
        async with self.target.writer() as writer:
            await writer.append(TopicPartition(POSITIONS, number), key=key, value=value)

    async def position(self, offset: int) -> None:
        await self.store(source_offset_key("A", P), encode_source_offset(offset))

    async def state(self, *facts: Fact) -> None:
        for fact in facts:
            await self.store(*fact_record("A", fact))

    async def owned(self, *, slots: int = 3) -> None:
        """As an owner leaves it that has stopped."""
        await self.state(
            ClaimFact(instance="owner", at_ms=1),
            TopicFact(
                topic="t",
                topic_id=self.source.topic_id("t"),
                known_partitions=1,
                target_topic_id=self.target.topic_id("A.t"),
            ),
            OwnerFact(instance="owner", slots=slots, renewed_at_ms=self.clock.now_ms()),
        )

    async def export(self) -> ExportedFlow:
        """Through the file."""
        found = await StateExport(clusters=self.clusters()).run()
        return parse(list(lines(found)), name="state.jsonl")

    def lose_the_topics(self) -> None:
        for topic in [name for name in self.target.topics if name.startswith(("mm2-", "A.checkpoints"))]:
            del self.target.topics[topic]

    async def plan(self, state: ExportedFlow, **options: bool) -> ImportPlan:
        return await StateImport(clusters=self.clusters(), state=state, **options).plan()

    async def restore(self, state: ExportedFlow, **options: bool) -> None:
        work = StateImport(clusters=self.clusters(), state=state, **options)
        await work.carry_out(await work.plan())

    async def log(self) -> PositionsLog:
        async with AsyncExitStack() as stack:
            log = await self.clusters().positions_log(stack)
            await log.refresh()
            return log

    async def refusal(self, state: ExportedFlow, **options: bool) -> str:
        with pytest.raises(StateError) as refused:
            await self.plan(state, **options)
        return refused.value.reason

    async def verdict(self, state: ExportedFlow, **options: bool) -> RestoreVerdict:
        return (await self.plan(state, **options)).verdicts[P][1]
