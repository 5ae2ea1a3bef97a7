"""Copies with the source's offsets, on two fake clusters: the writer of preserved copies alone, without the
service."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition

from integration.fake_pair import kafka_pair as kafka_pair
from integration.preserved.preserved_rig import write_mixture, write_plain
from twinlog.batches import CopyPolicy, prepare
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic, OffsetSpec
from twinlog.kafka.raw import (
    DataClientPool,
    FetchedPartition,
    ProducerIdentity,
    RawFetcher,
    TransactionCoordinator,
    list_offsets,
)
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, make_topics
from twinlog.testing.raw_copying import QUICK, open_fetcher, open_session
from twinlog_source.preserved.append_log import AppendLog
from twinlog_source.preserved.append_steps import ReadEnd, Tail, items_of
from twinlog_source.preserved.filler import Filler
from twinlog_source.preserved.tails import CopyTails
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.writing.preserved_copy import PreservedCopy
from twinlog_source.task.writing.preserved_writer import PreservedWriter

POLICY = CopyPolicy(keeps_offsets=True)


async def _make(cluster: BlockingCluster, topic: str, partitions: int, **configs: str) -> None:
    async with open_cluster("X", cluster.client_properties()) as admin:
        kept = {"retention.ms": "-1", **configs}
        new = NewTopic(name=topic, partition_count=partitions, replication_factor=1, configs=kept)
        await make_topics(admin, new)


async def _read(cluster: BlockingCluster, partition: TopicPartition, end: int) -> dict[int, tuple[Any, ...]]:
    """What a read_committed consumer gets, by offset."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        assigned = AioTopicPartition(*partition)
        consumer.assign([assigned])
        found: dict[int, tuple[Any, ...]] = {}
        async with asyncio.timeout(60):
            while await consumer.position(assigned) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for each in records:
                        found[each.offset] = (each.key, each.value, each.headers, each.timestamp)
        return found
    finally:
        await consumer.stop()


@dataclass(eq=False)
class Owner:
    """A task's worth of copying: reads the source and offers it to the writer."""

    pair: KafkaPair
    source: DataClientPool
    fetcher: RawFetcher
    writer: PreservedWriter
    copies: dict[TopicPartition, PreservedCopy] = field(default_factory=dict)
    """By source partition."""

    async def copy_until(self, ends: Mapping[TopicPartition, int]) -> None:
        async with asyncio.timeout(90):
            while any(self.copies[source].appends.acknowledged < end for source, end in ends.items()):
                wanted = {
                    source: each.appends.wanted
                    for source, each in self.copies.items()
                    if each.appends.wanted - each.appends.acknowledged < 4_000
                }
                for source, answer in (await self.fetcher.poll(wanted, max_wait_seconds=0.05)).items():
                    each = self.copies[source]
                    assert isinstance(answer, FetchedPartition)
                    if answer.fetch_offset != each.appends.wanted:
                        continue
                    prepared = prepare(
                        answer.records,
                        wanted_offset=answer.fetch_offset,
                        policy=POLICY,
                        aborted=answer.aborted,
                    )
                    assert prepared.fault is None
                    items = items_of(prepared, from_offset=answer.fetch_offset)
                    each.appends.offer(items, next_offset=prepared.next_offset)
                    self.writer.wake(each)


@asynccontextmanager
async def _owner(
    pair: KafkaPair, topic: str, partitions: int, identity: ProducerIdentity, *, position: int = 0
) -> AsyncIterator[Owner]:
    async with (
        open_session("A", pair.a.client_properties()) as source,
        open_session("B", pair.b.client_properties()) as target,
        open_fetcher(source) as fetcher,
    ):
        filler = Filler(target, f"fill-{topic}", QUICK)
        writer = PreservedWriter(
            session=target,
            settings=QUICK,
            identity=identity,
            tails=CopyTails(target, writer_id=identity.producer_id, timeout_seconds=10),
            filler=filler,
            clock=SystemClock(),
            changed=lambda _: None,
            failed=lambda *_: None,
            may_write=lambda: True,
        )
        owner = Owner(pair, source, fetcher, writer)
        for number in range(partitions):
            partition = TopicPartition(topic, number)
            each = PreservedCopy(
                copy=PartitionCopy(
                    partition=partition, target_topic=topic, committed=position, random=lambda: 1.0
                ),
                appends=AppendLog.starting_at(position, max_in_flight_bytes=4 << 20),
            )
            owner.copies[partition] = each
            writer.add(each)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.run(stop), name="writer")
            try:
                yield owner
            finally:
                stop.set()


async def _new_identity(cluster: BlockingCluster) -> ProducerIdentity:
    async with open_session("B", cluster.client_properties()) as session:
        coordinator = TransactionCoordinator(session, None, transaction_timeout_seconds=60)
        return await coordinator.new_identity(timeout_seconds=20)


async def test_every_record_lies_at_its_source_offset_with_transactions_aborts_and_all_codecs(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    partitions = 3
    for cluster in (kafka_pair.a, kafka_pair.b):
        await _make(cluster, unique_topic, partitions)
    await write_mixture(kafka_pair.a, unique_topic, partitions, rounds=4)
    identity = await _new_identity(kafka_pair.b)
    async with open_session("A", kafka_pair.a.client_properties()) as session:
        every = [TopicPartition(unique_topic, number) for number in range(partitions)]
        ends = {p: int(end) for p, end in (await list_offsets(session, OffsetSpec.LATEST, every)).items()}  # type: ignore[arg-type]
    # Owners one after the other, each cut off somewhere: the same identity continues.
    for share in (0.3, 0.7, 1.0):
        async with _owner(kafka_pair, unique_topic, partitions, identity) as owner:
            await owner.copy_until({p: int(end * share) for p, end in ends.items()})
    for partition in every:
        original = await _read(kafka_pair.a, partition, ends[partition])
        assert len(original) > 50
        assert await _read(kafka_pair.b, partition, ends[partition]) == original


async def test_records_written_before_the_copy_resumed_are_not_reported_as_foreign(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    """What the copy wrote itself is lost; a stranger's batches lie behind the hole that it filled first."""
    await _make(kafka_pair.b, unique_topic, 1)
    partition = TopicPartition(unique_topic, 0)
    await write_plain(kafka_pair.b, unique_topic, 10)
    identity = await _new_identity(kafka_pair.b)
    async with open_session("B", kafka_pair.b.client_properties()) as target:
        filler = Filler(target, f"fill-{unique_topic}", QUICK)
        await filler.open()
        filled: list[TopicPartition] = []
        await filler.fill({partition: (10, 5)}, lambda each, _: filled.append(each), lambda *_: None)
        assert filled == [partition]
        for _ in range(3):
            await write_plain(kafka_pair.b, unique_topic, 1)
        found: dict[TopicPartition, Tail | KafkaError] = {}
        tails = CopyTails(target, writer_id=identity.producer_id, timeout_seconds=10)
        await tails.read({partition: ReadEnd(40, common_until=10)}, found.__setitem__)
    tail = found[partition]
    assert isinstance(tail, Tail)
    assert (tail.end, tail.foreign_from) == (18, 15)


async def test_a_short_hole_waits_for_no_longer_one_of_another_partition(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    """Holes that are added meanwhile join as well."""
    await _make(kafka_pair.b, unique_topic, 3)
    short, long, late = (TopicPartition(unique_topic, number) for number in range(3))
    reported: list[tuple[TopicPartition, bool]] = []
    added: list[TopicPartition] = []

    def more() -> Mapping[TopicPartition, tuple[int, int]]:
        if added or not reported:
            return {}
        added.append(late)
        return {late: (0, 2)}

    async with open_session("B", kafka_pair.b.client_properties()) as target:
        filler = Filler(target, f"fill-{unique_topic}", QUICK)
        await filler.open()
        holes = {long: (0, 100), short: (0, 1)}
        await filler.fill(holes, lambda *each: reported.append(each), _unexpected, more)
        ends = await list_offsets(target, OffsetSpec.LATEST, [short, long, late])
    assert reported == [(short, True), (late, True), (long, True)]
    assert ends == {short: 1, long: 100, late: 2}


def _unexpected(partition: TopicPartition, error: KafkaError) -> None:
    raise AssertionError((partition, error))


async def test_a_position_before_what_others_wrote_makes_that_foreign_no_more_than_one_behind_it(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    """An owner was killed between what it put down of the copy and its position."""
    await _make(kafka_pair.b, unique_topic, 1)
    partition = TopicPartition(unique_topic, 0)
    await write_plain(kafka_pair.b, unique_topic, 10)
    identity = await _new_identity(kafka_pair.b)
    found: dict[TopicPartition, Tail | KafkaError] = {}
    async with open_session("B", kafka_pair.b.client_properties()) as target:
        tails = CopyTails(target, writer_id=identity.producer_id, timeout_seconds=10)
        for common_until, foreign_from in ((10, None), (0, 0)):
            await tails.read({partition: ReadEnd(3, common_until=common_until)}, found.__setitem__)
            tail = found[partition]
            assert isinstance(tail, Tail)
            assert (tail.end, tail.foreign_from, tail.filled) == (10, foreign_from, ())
