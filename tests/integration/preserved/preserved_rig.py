"""The task of the source service with copies that keep offsets, on two real brokers, without its driver."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.structs import ConsumerRecord

from twinlog.batches import TargetTopicLimits
from twinlog.clock import SystemClock
from twinlog.config import load
from twinlog.errors import KafkaError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic, OffsetSpec, TopicDescription
from twinlog.kafka.raw import ProducerIdentity, TransactionCoordinator, fence, list_offsets
from twinlog.kafka.raw.lookups import delete_records
from twinlog.kafka.raw.settings import admit_all
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name
from twinlog.testing.raw_copying import QUICK, open_session
from twinlog.transforms.expressions import Expressions
from twinlog_source.config import source_flows
from twinlog_source.driver.stream.task_settings import TaskSettings
from twinlog_source.log.facts import WriterFact
from twinlog_source.partitions.orders import (
    PartitionReport,
    PreservedTerms,
    PriorFailure,
    Start,
    TaskAssignment,
    TaskSetup,
)
from twinlog_source.preserved.filler import Filler
from twinlog_source.records.changing import Changing
from twinlog_source.task.assembly import open_copier
from twinlog_source.task.copier import Copier

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]
"""Key, value, headers, timestamp."""


@dataclass(slots=True, kw_only=True)
class Running:
    """One task while it copies."""

    copier: Copier
    stop: asyncio.Event
    reports: dict[TopicPartition, PartitionReport] = field(default_factory=dict)
    gaps: list[tuple[int, int, str]] = field(default_factory=list)

    def look(self) -> Mapping[TopicPartition, PartitionReport]:
        """The newest report of each partition."""
        told = self.copier.reporter.report(everything=True)
        self.reports.update((report.partition, report) for report in told.partitions)
        self.gaps += [(gap.from_offset, gap.to_offset, gap.reason) for gap in told.gaps]
        return self.reports

    def position(self, partition: TopicPartition) -> int:
        return self.look()[partition].position

    def copied(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(self.position(partition) >= end for partition, end in ends.items())


@dataclass(slots=True, kw_only=True)
class PreservedRig:
    """One flow and one topic of the same name on both sides; any number of tasks, one after the other."""

    pair: KafkaPair
    topic: str
    partitions: int
    directory: Path
    identity: ProducerIdentity
    alias: str
    target_topic_id: str
    """As the driver knows it."""
    skips: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    """Of the target's leaders in whose logs the copies were checked."""
    properties: dict[str, str] = field(default_factory=dict)
    lease_seconds: float = 30.0
    max_message_bytes: int = TargetTopicLimits().max_message_bytes
    required: bool = False
    """`twinlog.offsets=preserved`."""
    prior_failure: PriorFailure | None = None
    """What the task before met, as the next tasks are told."""
    end_reason: str = ""
    """Why the next tasks shall end the copies where they are."""
    common_until: int = 0
    """Below this offset the copies hold records that others wrote, as the next tasks are told."""
    has_lease: bool = True
    """What the next tasks are told when they ask whether they may write."""
    writes_markers: bool = True
    """The next tasks write markers at leaders; False = as where the target does not let them."""

    @property
    def every(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in range(self.partitions)]

    @property
    def filler_id(self) -> str:
        return f"fill-{self.alias}"

    def prepare(self) -> TaskSetup:
        file = self.directory / "mm2.properties"
        settings = {
            "clusters": f"{self.alias}, B",
            f"{self.alias}.bootstrap.servers": self.pair.a.bootstrap_servers,
            "B.bootstrap.servers": self.pair.b.bootstrap_servers,
            f"{self.alias}->B.enabled": "true",
            "emit.offset-syncs.enabled": "false",
            "twinlog.lease.seconds": str(self.lease_seconds),
            **self.properties,
        }
        file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        flow = next(each for each in source_flows(load(file, environ={})) if each.flow.source == self.alias)
        prepare = TaskSettings(flow=flow).prepare(0, 0, positions_partition_count=1)
        return replace(
            prepare,
            preserved_writer=WriterFact(
                producer_id=self.identity.producer_id, producer_epoch=self.identity.producer_epoch
            ),
            filler_transactional_id=self.filler_id,
            marker_transactional_id=prepare.marker_transactional_id if self.writes_markers else "",
            source_topics=(self.topic,),
            target_topics=(self.topic,),
        )

    def start(self) -> Start:
        assignments = []
        for partition in self.every:
            skip_from, skip_to = self.skips.get(partition, (0, 0))
            assignments.append(
                TaskAssignment(
                    partition=partition,
                    target_topic=self.topic,
                    position=self.positions.get(partition, skip_to),
                    position_stored=partition in self.positions,
                    preserved=PreservedTerms(
                        skip_from=skip_from,
                        skip_to=skip_to,
                        required=self.required,
                        leader_epoch=self.epochs.get(partition),
                        end_reason=self.end_reason,
                        common_until=self.common_until,
                    ),
                    prior_failure=self.prior_failure,
                    target_topic_id=self.target_topic_id,
                    max_message_bytes=self.max_message_bytes,
                )
            )
        return Start(assignments=tuple(assignments))

    @asynccontextmanager
    async def task(self, *, kill: bool = False) -> AsyncIterator[Running]:
        """A task that copies; at the end it is told to stop, or is gone with what it has in flight."""

        async def go_on() -> Mapping[TopicPartition, int]:
            """It may, from where it was."""
            return {}

        async with open_copier(
            self.prepare(),
            Flow(self.alias, "B"),
            slot=0,
            clock=SystemClock(),
            ask_driver=go_on,
            admit=admit_all,
            may_write=lambda: self.has_lease,
            changing=_no_records,
        ) as copier:
            copier.assign(self.start())
            running = Running(copier=copier, stop=asyncio.Event())
            async with asyncio.TaskGroup() as group:
                copying = group.create_task(copier.run(running.stop), name="copy")
                try:
                    yield running
                finally:
                    if kill:
                        copying.cancel()
                    else:
                        running.stop.set()
                    await asyncio.wait([copying])
            for partition, report in running.look().items():
                if report.skipped is not None:
                    self.skips[partition] = report.skipped.first, report.skipped.end
                    if not kill and report.leader_epoch is not None:
                        self.epochs[partition] = report.leader_epoch
                if not kill:
                    self.positions[partition] = report.position

    async def begin_source_at(self, offset: int) -> None:
        """Let the source's logs, which are empty, begin there: as those of a topic that is years old."""
        await end_a_transaction(self.pair.a, dict.fromkeys(self.every, (0, offset)))
        async with open_session("A", self.pair.a.client_properties()) as session:
            await delete_records(session, dict.fromkeys(self.every, offset))

    async def ends(self) -> dict[TopicPartition, int]:
        """Where the source's logs end."""
        return await _bounds(self.pair.a, OffsetSpec.LATEST, self.every)

    async def target_bounds(self, spec: OffsetSpec) -> dict[TopicPartition, int]:
        return await _bounds(self.pair.b, spec, self.every)

    async def copy_everything(self) -> None:
        """One more task, to the present ends of the source. Then nothing of its filler is under way on the
        target: a coordinator that is killed before it has noted an end would write that end again."""
        ends = await self.ends()
        async with self.task() as running:
            await eventually(lambda: running.copied(ends))
        async with open_session("B", self.pair.b.client_properties()) as session:
            outcome = await fence(
                session, [self.filler_id], timeout_seconds=60, transaction_timeout_seconds=60
            )
        assert not isinstance(outcome[self.filler_id], KafkaError), outcome

    async def copied_offsets(self, partition: TopicPartition) -> list[int]:
        """Offsets of the records that a consumer of the copy sees."""
        bounds = await self.target_bounds(OffsetSpec.LATEST)
        return sorted(await read(self.pair.b, partition, bounds[partition]))

    async def same(self, until: Mapping[TopicPartition, int] | None = None) -> int:
        """Compare both sides offset by offset, as a read_committed consumer sees them; how many records.
        `until`: where the copies of some partitions have ended."""
        ends, count = {**await self.ends(), **(until or {})}, 0
        for partition in self.every:
            original, copied = [
                {offset: content for offset, content in found.items() if offset < ends[partition]}
                for found in [
                    await read(cluster, partition, ends[partition]) for cluster in (self.pair.a, self.pair.b)
                ]
            ]
            assert copied.keys() == original.keys()
            differing = [offset for offset, content in original.items() if copied[offset] != content]
            assert not differing, (partition, differing[:5])
            count += len(original)
        return count


async def end_a_transaction(
    cluster: BlockingCluster, offsets: Mapping[TopicPartition, tuple[int, int]]
) -> None:
    """Of somebody's without records that count: it takes so many offsets from the first one on."""
    async with open_session("X", cluster.client_properties()) as session:
        filler = Filler(session, unique_name("somebody"), QUICK)
        await filler.open()
        await filler.fill(offsets, lambda _, __: None, lambda _, __: None)


@asynccontextmanager
async def preserved_rig(
    pair: KafkaPair,
    directory: Path,
    topic: str,
    *,
    partitions: int = 1,
    source: Mapping[str, str] | None = None,
    target: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    target_replicas: int = 1,
) -> AsyncIterator[PreservedRig]:
    """Topics on both sides with these configs, and an identity for the copies."""
    alias = unique_name("A")
    for cluster, configs, replicas in ((pair.a, source, 1), (pair.b, target, target_replicas)):
        async with open_cluster("X", cluster.client_properties()) as admin:
            kept = {"retention.ms": "-1", **(configs or {})}
            new = NewTopic(name=topic, partition_count=partitions, replication_factor=replicas, configs=kept)
            await make_topics(admin, new)
    async with open_cluster("B", pair.b.client_properties()) as admin:
        described = (await admin.describe_topics([topic]))[topic]
        assert isinstance(described, TopicDescription)
        positions = f"mm2-offsets.{alias}.internal"
        await make_topics(
            admin,
            NewTopic(
                name=positions,
                partition_count=1,
                replication_factor=target_replicas,
                configs={"cleanup.policy": "compact"},
            ),
        )
    async with open_session("B", pair.b.client_properties()) as session:
        coordinator = TransactionCoordinator(session, None, transaction_timeout_seconds=60)
        identity = await coordinator.new_identity(timeout_seconds=20)
    yield PreservedRig(
        pair=pair,
        topic=topic,
        partitions=partitions,
        directory=directory,
        identity=identity,
        alias=alias,
        target_topic_id=described.topic_id,
        properties=dict(properties or {}),
    )


async def _bounds(
    cluster: BlockingCluster, spec: OffsetSpec, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    async with open_session("X", cluster.client_properties()) as session:
        found = await list_offsets(session, spec, partitions)
        return {partition: offset for partition, offset in found.items() if isinstance(offset, int)}


async def read(
    cluster: BlockingCluster, partition: TopicPartition, end: int, *, isolation: str = "read_committed"
) -> dict[int, Content]:
    """What a consumer gets, by offset."""
    consumer = AIOKafkaConsumer(
        **aiokafka_client_options(cluster.client_properties(), alias="X"),
        auto_offset_reset="earliest",
        isolation_level=isolation,
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        assigned = AioTopicPartition(*partition)
        consumer.assign([assigned])
        found: dict[int, Content] = {}
        async with asyncio.timeout(120):
            while await consumer.position(assigned) < end:
                batches: dict[Any, list[ConsumerRecord[Any, Any]]] = await consumer.getmany(timeout_ms=200)
                for records in batches.values():
                    for each in records:
                        found[each.offset] = each.key, each.value, tuple(each.headers), each.timestamp
        return found
    finally:
        await consumer.stop()


async def write_mixture(cluster: BlockingCluster, topic: str, partitions: int, *, rounds: int) -> None:
    """Plain batches of all codecs, of long ago, between transactions, of which every third is aborted."""
    for number, codec in enumerate(CODECS):
        compression = None if codec == "none" else codec
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            compression_type=compression,
            transactional_id=unique_name(f"{topic}-{codec}"),
        )
        plain = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, compression_type=compression)
        async with producer, plain:
            for turn in range(rounds):
                await producer.begin_transaction()
                for each in range(3 * partitions):
                    value = None if each % 5 == 0 else b"%d-%d-%d" % (number, turn, each)
                    await producer.send(
                        topic, value, b"k%d" % each, each % partitions, headers=[("h", b"\xff")]
                    )
                if turn % 3 == 2:
                    await producer.flush()
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                for each in range(4 * partitions):
                    at_ms = 1_600_000_000_000 + each
                    await plain.send(topic, b"plain", None, each % partitions, timestamp_ms=at_ms)
                await plain.flush()


async def write_plain(
    cluster: BlockingCluster, topic: str, count: int, *, partitions: int = 1, size_bytes: int = 100
) -> None:
    """Records with recent timestamps over all partitions."""
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            value = (b"%d " % number).ljust(size_bytes, b".")
            await producer.send(topic, value, b"%d" % (number % 7), number % partitions)
        await producer.flush()


def _no_records(expressions: Expressions) -> Changing:
    raise AssertionError(f"no flow of these tests changes records: {expressions}")
