"""The producer of prepared batches on real brokers: refusals, rights, outages."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from integration.kafka.raw_producer_rig import a_batch, committed_values, create_topic, open_target
from twinlog.batches import LaneReason, NewRecord, OffsetRun, OutgoingBatch, build_batch
from twinlog.batches.outgoing import Seal, sealed_header
from twinlog.clock import SystemClock
from twinlog.errors import FatalKafkaError, KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import AclBinding
from twinlog.kafka.raw import (
    ProducerSettings,
    RawProducer,
    fence,
    known_producers,
)
from twinlog.kafka.raw.produce.wire import SealedBatch, produce_request
from twinlog.kafka.raw.transactions.coordinator import TransactionCoordinator
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin
from twinlog.testing.raw_copying import QUICK, open_session

OUT_OF_ORDER = 45


async def test_a_copied_record_that_is_refused_is_named_by_its_offset_on_the_source(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    await create_topic(kafka_pair.b, unique_topic, {"cleanup.policy": "compact"})
    now_ms = SystemClock().now_ms()
    records = [NewRecord(None if number == 3 else b"k", b"v", now_ms) for number in range(5)]
    copied = build_batch(records)._replace(
        reason=LaneReason.COMPACTION_HOLES, runs=(OffsetRun(100, 2), OffsetRun(110, 3))
    )
    async with open_target(kafka_pair.b) as session, RawProducer(session, QUICK) as producer:
        producer.send(TopicPartition(unique_topic, 0), copied)
        with pytest.raises(FatalKafkaError, match="the record at the source's offset 111: "):
            await producer.flush()


async def test_missing_rights_are_told_apart(start_cluster: Callable[[ClusterSpec], BlockingCluster]) -> None:
    cluster = start_cluster(
        ClusterSpec(
            name="guarded",
            security=Security(mechanisms=(SaslMechanism.PLAIN,), users={"mirror": "secret"}, authorizer=True),
        )
    )

    def allow(kind: str, name: str, operation: str) -> AclBinding:
        return AclBinding(
            resource_type=kind,
            resource_name=name,
            pattern_type="LITERAL",
            principal="User:mirror",
            host="*",
            operation=operation,
            permission="ALLOW",
        )

    allowed, denied = TopicPartition("allowed", 0), TopicPartition("denied", 0)
    await create_topic(cluster, allowed.topic)
    await create_topic(cluster, denied.topic)
    async with open_cluster("B", cluster.client_properties()) as admin:
        acls = [
            allow("TOPIC", "allowed", "WRITE"),
            allow("TOPIC", "allowed", "DESCRIBE"),
            allow("TRANSACTIONAL_ID", "mine", "WRITE"),
            allow("TRANSACTIONAL_ID", "mine", "DESCRIBE"),
        ]
        await retry_admin(lambda: admin.create_acls(acls))
    async with open_session("B", cluster.client_properties("mirror")) as session:

        async def only_mine() -> bool:
            outcome = await fence(
                session, ["theirs", "mine"], timeout_seconds=60, transaction_timeout_seconds=60
            )
            assert not isinstance(outcome["mine"], KafkaError), "the rights are on their way to the broker"
            refusal = outcome["theirs"]
            return isinstance(refusal, KafkaError) and refusal.reason == "TRANSACTION_UNAUTHORIZED"

        await eventually(only_mine)
        known = await known_producers(session, ["theirs", "mine", "never"], timeout_seconds=60)
        assert list(known.values()) == ["mine"]
        for transactional_id in ("mine", None):
            async with RawProducer(session, QUICK, transactional_id=transactional_id) as producer:
                if transactional_id:
                    producer.begin()
                producer.send(allowed, a_batch(b"v"))
                producer.send(denied, a_batch(b"v"))
                with pytest.raises(FatalKafkaError) as caught:
                    await producer.flush()
                assert caught.value.reason == "TOPIC_UNAUTHORIZED"
                assert producer.partition_failures.keys() == {denied}
        async with RawProducer(session, QUICK, transactional_id="mine") as producer:
            producer.begin()
            producer.send(allowed, a_batch(b"v"))
            await producer.commit()


@pytest.mark.parametrize("transactional", [True], ids=["transactional"])
async def test_a_killed_broker_loses_and_doubles_nothing(
    start_cluster: Callable[[ClusterSpec], BlockingCluster], transactional: bool
) -> None:
    """SIGKILL while batches are in flight: after the restart each is there once, in order.

    In a transaction that holds for records of any age, but the transaction may have to be made again: a
    broker that recovers its log knows only the last batch of each producer, and refuses an earlier one whose
    acknowledgement was lost. Without one only one batch is ever in flight; there a broker that starts forgets
    producers whose last record is older than producer.id.expiration.ms (a day), and may take a batch twice.
    """
    cluster = start_cluster(ClusterSpec(name="mortal"))
    partition = TopicPartition("t", 0)
    await create_topic(cluster, partition.topic)
    timestamp_ms = 1_500_000_000_000 if transactional else SystemClock().now_ms()
    settings = ProducerSettings(delivery_timeout_seconds=120)
    transactional_id = "mortal" if transactional else None

    def numbered(number: int) -> OutgoingBatch:
        return a_batch(b"%d" % number, timestamp_ms=timestamp_ms)

    async with open_target(cluster) as session:
        async with RawProducer(session, settings, transactional_id=transactional_id) as producer:
            if transactional:
                producer.begin()
            acks = [producer.send(partition, numbered(number)) for number in range(2000)]
            await acks[50]
            cluster.kill_broker(1)
            assert not acks[-1].done(), "the broker was to die with batches in flight"
            acks += [producer.send(partition, numbered(number)) for number in range(2000, 2100)]
            await asyncio.get_running_loop().run_in_executor(None, cluster.restart_broker, 1)
            with suppress(FatalKafkaError):
                await (producer.commit() if transactional else producer.flush())
        if producer.failure is None:
            assert [ack.result() for ack in acks] == list(range(2100))
        else:
            assert transactional
            assert producer.failure.reason == "PRODUCER_STATE_LOST"
            async with RawProducer(session, settings, transactional_id=transactional_id) as producer:
                producer.begin()
                for number in range(2100):
                    producer.send(partition, numbered(number))
                await producer.commit()
    assert await committed_values(cluster, partition) == [b"%d" % number for number in range(2100)]


async def test_a_killed_broker_forgets_all_but_the_last_batch_of_a_producer(
    start_cluster: Callable[[ClusterSpec], BlockingCluster],
) -> None:
    """Why a transaction may have to be made again, though every batch of it is there."""
    cluster = start_cluster(ClusterSpec(name="forgetful"))
    partition = TopicPartition("t", 0)
    await create_topic(cluster, partition.topic)
    async with open_target(cluster) as session:
        coordinator = TransactionCoordinator(session, "forgotten", transaction_timeout_seconds=60)
        identity = await coordinator.new_identity(timeout_seconds=60)
        await coordinator.add_partitions(identity, [partition], timeout_seconds=60, unknown_topic_seconds=60)

        async def send(sequence: int) -> int:
            batch = a_batch(b"%d" % sequence)
            header = sealed_header(batch, Seal(*identity, sequence, True))
            request = produce_request(
                [SealedBatch(partition=partition, batch=batch, header=header)],
                transactional_id="forgotten",
                timeout_ms=20_000,
            )
            ((answer,), _) = await session.send(1, request, "send a batch")
            return int(answer.error_code)

        assert [await send(sequence) for sequence in (0, 1, 2, 1)] == [0, 0, 0, 0]
        cluster.kill_broker(1)
        await asyncio.get_running_loop().run_in_executor(None, cluster.restart_broker, 1)

        async def refusal() -> int:
            code = await send(1)
            assert code in (0, OUT_OF_ORDER), "the broker is not back"
            return code

        assert await eventually(refusal) == OUT_OF_ORDER
        assert await send(2) == 0
