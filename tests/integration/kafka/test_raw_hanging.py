"""Transactions whose end a broker has left out, because a partition had no leader at that moment."""

import asyncio
from dataclasses import replace

import pytest

from integration.kafka.hanging_rig import coordinator_of, down, open_on
from integration.kafka.raw_producer_rig import a_batch, committed_values, create_topic, open_target
from twinlog.errors import KafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import COMMITTED, OUTCOME, DataClientPool, RawProducer, list_offsets
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import PATIENCE_SECONDS, eventually
from twinlog.testing.raw_copying import QUICK


async def test_nothing_is_written_onto_a_transaction_that_hangs(
    three_brokers: BlockingCluster, unique_topic: str
) -> None:
    async with open_target(three_brokers) as session:
        lost, other, broker = await away_from_the_coordinator(three_brokers, session, unique_topic)
        async with RawProducer(session, QUICK, transactional_id=unique_topic) as producer:
            producer.begin()
            await producer.send(lost, a_batch(b"committed"))
            async with down(three_brokers, broker):
                await producer.commit()
                # It begins when the one before has ended everywhere, as far as its coordinator knows.
                producer.begin()
                await producer.send(other, a_batch(b"next"))
                await producer.commit()
            (hanging,) = await eventually(lambda: open_on(session, lost))
            assert hanging.first_offset == 0
            producer.begin()
            producer.send(lost, a_batch(b"onto it"))
            with pytest.raises(KafkaError) as refused:
                await producer.commit()
            assert refused.value.reason == "HANGING_TRANSACTION"
            assert producer.partition_failures.keys() == {lost}
        ends = await list_offsets(session, OffsetSpec.LATEST, [lost])
        assert ends[lost] == 1
    assert await committed_values(three_brokers, other) == [b"next"]


async def test_a_transaction_that_hangs_is_found_though_no_other_follows(
    three_brokers: BlockingCluster, unique_topic: str
) -> None:
    async with open_target(three_brokers) as session:
        lost, _, broker = await away_from_the_coordinator(three_brokers, session, unique_topic)
        failed = asyncio.Event()
        settings = replace(QUICK, end_look_seconds=0.5)
        async with RawProducer(
            session, settings, transactional_id=unique_topic, on_failure=failed.set
        ) as producer:
            producer.begin()
            await producer.send(lost, a_batch(b"committed"))
            async with down(three_brokers, broker):
                await producer.commit()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await failed.wait()
            assert producer.partition_failures.keys() == {lost}
            assert producer.partition_failures[lost].reason == "HANGING_TRANSACTION"
            assert producer.partition_failures[lost].metadata[OUTCOME] == COMMITTED


async def away_from_the_coordinator(
    cluster: BlockingCluster, session: DataClientPool, name: str
) -> tuple[TopicPartition, TopicPartition, int]:
    """One whose only replica is not where the coordinator of the id of this name is; another, elsewhere; the
    broker of the first."""
    await create_topic(cluster, name, {"min.insync.replicas": "1"}, partition_count=6, replication_factor=1)
    partitions = [TopicPartition(name, number) for number in range(6)]
    leaders = {partition: await session.leader(partition, "look") for partition in partitions}

    coordinator = await coordinator_of(session, name)
    lost = next(partition for partition in partitions if leaders[partition] != coordinator)
    other = next(partition for partition in partitions if leaders[partition] != leaders[lost])
    return lost, other, leaders[lost]
