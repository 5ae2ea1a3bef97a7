"""Two clusters with a topic and its copy, and one process after the other that owns the flow."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinlog.batches import EndMarker
from twinlog.config import load
from twinlog.errors import KafkaError
from twinlog.model import Flow, Record, TopicPartition
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicLimits, TopicState
from twinlog.service.peers import open_channel
from twinlog.service.runtime import Backoff
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import NOTHING_WRITTEN, encode_source_offset, source_offset_key
from twinlog_source.config import source_flows
from twinlog_source.driver.driver_moves import MoveOrder
from twinlog_source.driver.ownership import Ownership
from twinlog_source.driver.state import FlowState
from twinlog_source.log.gaps import Gap, SourceBounds
from twinlog_source.log.internal_topics import InternalTopics
from twinlog_source.log.journal import Journal
from twinlog_source.log.positions import PositionsLog
from twinlog_source.log.producers import Producers
from twinlog_source.partitions.events import Reported
from twinlog_source.partitions.orders import PartitionReport, TaskReport
from twinlog_source.topics.id_tables import IdTables
from twinlog_source.topics.origins import Origins
from twinlog_source.topics.start_positions import StartPositions
from unit.decided import told
from unit.source.target_probe import FakeTargetProbe

FILE = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
replication.factor = 1
offset.storage.replication.factor = 1
offset-syncs.topic.replication.factor = 1
"""


POSITIONS = "mm2-offsets.A.internal"


P = TopicPartition("t", 0)


@dataclass(frozen=True, slots=True)
class OneFile:
    text: str

    def read_bytes(self, path: str) -> bytes:
        return self.text.encode()

    def is_file(self, path: str) -> bool:
        return True


@dataclass(slots=True, kw_only=True)
class FlowRig:
    """Two clusters with a topic and its copy, and one process after the other that owns the flow."""

    stack: AsyncExitStack
    clock: FakeClock = field(default_factory=FakeClock)
    source: FakeCluster = field(init=False)
    target: FakeCluster = field(init=False)
    owners: int = 0
    flows: int = 1
    """How many flows the process has."""
    open: dict[int, tuple[TopicPartition, int]] = field(default_factory=dict)
    """What dead tasks left open on the target: slot -> partition and number of the transaction."""
    last_producers: dict[TopicPartition, int | KafkaError | None] = field(default_factory=dict)
    """Who wrote last to the target's logs; those that are not named were written by others."""
    known_producers: dict[str, int] | KafkaError = field(default_factory=dict)
    """By the transactional ids that coordinators of the target know; or why they do not tell."""
    while_fencing: Callable[[], Awaitable[object]] | None = None
    """What others do while the next owner fences; once."""

    def __post_init__(self) -> None:
        self.source, self.target = FakeCluster("A", clock=self.clock), FakeCluster("B", clock=self.clock)
        self.source.add_topic("t")
        self.target.add_topic("A.t")

    async def coordinators_know(self, transactional_ids: Sequence[str]) -> dict[int, str]:
        known = self.known_producers
        if isinstance(known, KafkaError):
            raise known
        return {known[each]: each for each in transactional_ids if each in known}

    async def write(self, cluster: FakeCluster, topic: str, count: int) -> None:
        async with cluster.writer() as writer:
            for _ in range(count):
                await writer.append(TopicPartition(topic, 0), key=None, value=b"x")

    async def mirror_maker_stores(self, position: int) -> None:
        """As `store`, by a producer of somebody else."""
        await self.store(position, producer_id=self.target.kafka.transactions.new_producer_id())

    async def store(
        self,
        position: int,
        *,
        producer_id: int,
        ahead_ms: int = 0,
        partition: TopicPartition = P,
        wrote_nothing: bool = False,
    ) -> None:
        """A producer stores a position in the topic of positions, which exists; its clock is ahead."""
        key = source_offset_key("A", partition)
        number = partition_for_key(key, len(self.target.topics[POSITIONS].partitions))
        stored = Record(
            offset=-1,
            timestamp_ms=self.clock.now_ms() + ahead_ms,
            key=key,
            value=encode_source_offset(position),
            headers=((NOTHING_WRITTEN, b""),) if wrote_nothing else (),
            producer_id=producer_id,
        )
        self.target.append(TopicPartition(POSITIONS, number), stored)

    async def owner(self, *more: str) -> FlowState:
        """A new process: it has taken the flow over and knows its topics."""
        state = await self.process(*more)
        await state.take_over(displaced=False)
        assert not await state.refresh(owned=frozenset())
        return state

    async def process(self, *more: str, has_configsync: bool = True) -> FlowState:
        """A new process that has done nothing yet."""
        self.owners += 1
        configuration = load(Path("mm2.properties"), environ={}, files=OneFile(FILE + "\n".join(more)))
        (flow,) = source_flows(configuration)
        channel = await self.stack.enter_async_context(open_channel("127.0.0.1:1"))
        backoff = Backoff(initial_seconds=1, max_seconds=1, random=lambda: 1.0)
        decisions = Decisions(channel, clock=self.clock, backoff=backoff)
        if has_configsync:
            await self.say(decisions)
        writer = await self.stack.enter_async_context(
            self.target.writer(introduce=lambda producer_id: producers.introduction(producer_id))
        )
        positions = PositionsLog(
            list_offsets=self.target.list_offsets,
            reader=await self.stack.enter_async_context(self.target.reader()),
            topic=POSITIONS,
            partition_count=0,
            source_alias="A",
            clock=self.clock,
        )

        async def fence(
            transactional_ids: Sequence[str], _copies: Mapping[TopicPartition, TopicPartition]
        ) -> None:
            """The coordinator aborts what holders of these ids left open."""
            others, self.while_fencing = self.while_fencing, None
            if others is not None:
                await others()
            for transactional_id in transactional_ids:
                slot = int(transactional_id.split("-")[-2])
                if slot in self.open:
                    self.target.finish_transaction(*self.open.pop(slot), EndMarker.ABORT)

        journal = Journal(
            flow=flow.flow,
            connector_name=flow.settings.connector_name,
            topic=POSITIONS,
            writer=writer,
            clock=self.clock,
        )
        producers = Producers(
            journal=journal,
            control=positions.control,
            cluster_id=lambda alias: f"cluster {alias}",
            clock=self.clock,
        )
        ownership = Ownership(
            flow=flow,
            instance_id=f"owner {self.owners}",
            internal=InternalTopics(flow=flow, source=self.source, target=self.target),
            positions=positions,
            journal=journal,
            fence=fence,
            known_producers=self.coordinators_know,
            producers=producers,
            clock=self.clock,
        )
        return FlowState(
            flow=flow,
            ownership=ownership,
            decisions=decisions,
            source=self.source,
            target=self.target,
            positions=positions,
            starts=StartPositions(source=self.source, read_committed=True),
            journal=journal,
            origins=Origins(
                ids=IdTables(
                    flow=flow,
                    source=self.source,
                    reader=await self.stack.enter_async_context(self.source.reader()),
                    target=self.target,
                    target_reader=await self.stack.enter_async_context(self.target.reader()),
                    cluster_id=lambda alias: f"cluster {alias}",
                    clock=self.clock,
                ),
                target=self.target,
                positions=positions,
            ),
            probe=FakeTargetProbe(self.target, last=self.last_producers),
            clock=self.clock,
            on_gap=lambda _: None,
            topics_changed=decisions.subscribe(),
            flows=self.flows,
        )

    async def say(self, decisions: Decisions, *, topics: Collection[str] = ("t",)) -> None:
        """As configsync does: the flow has these topics."""
        entries = [
            ReplicatedTopic(
                source_topic=name,
                target_topic=f"A.{name}",
                partition_count=1,
                target_partition_count=1,
                source_topic_id=self.source.topic_id(name),
                target_topic_id=self.target.topic_id(f"A.{name}"),
                state=TopicState.READY,
                limits=TopicLimits(max_message_bytes=1000),
            )
            for name in topics
        ]
        await told(decisions, self.target, Flow("A", "B"), *entries)


async def set_position(
    state: FlowState, partition: TopicPartition, position: int, *, bounds: SourceBounds | None = None
) -> None:
    """As an operator has it done while no task copies. Raises the refusal, or what the driver raises."""
    order = MoveOrder(partition=partition, position=position, bounds=bounds)
    state.moves.order(order)
    await state.carry_out_moves()
    refused = order.outcome.result()
    if refused is not None:
        raise refused


def reported(state: FlowState, /, **fields: Any) -> None:
    """As the partition's task says it."""
    said = TaskReport(partitions=(PartitionReport(**{"partition": P, "position": 0, **fields}),))
    state.table.apply(Reported(slot=0, report=said, now_ms=1), 1.0)


def ledger(state: FlowState) -> list[tuple[int, int, str]]:
    gaps: list[Gap] = list(state.positions.gaps.values())
    return [(gap.from_offset, gap.to_offset, gap.reason) for gap in gaps]
