"""The producer of prepared batches against real brokers: transactions, fencing, refusals, outages."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition

from twinlog.batches import NewRecord, OutgoingBatch, build_batch
from twinlog.clock import SystemClock
from twinlog.errors import FatalKafkaError, KafkaError, StateError, TransientKafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import AclBinding, NewTopic, OffsetSpec
from twinlog.kafka.raw import (
    DataSession,
    ProducerSettings,
    ProducerState,
    RawProducer,
    TransactionRotation,
    fence,
    list_offsets,
)
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.raw_copying import QUICK, open_session


def _batch(*values: bytes, key: bytes | None = b"k", timestamp_ms: int = 1_700_000_000_000) -> OutgoingBatch:
    return build_batch([NewRecord(key, value, timestamp_ms) for value in values])


async def _create(
    cluster: BlockingCluster, topic: str, configs: Mapping[str, str] | None = None, partition_count: int = 1
) -> None:
    async with open_cluster("B", cluster.client_properties()) as admin:
        kept = {"retention.ms": "-1", **(configs or {})}
        new = NewTopic(name=topic, partition_count=partition_count, replication_factor=-1, configs=kept)
        assert await admin.create_topics([new]) == {topic: None}


@asynccontextmanager
async def _target(cluster: BlockingCluster) -> AsyncIterator[DataSession]:
    async with open_session("B", cluster.client_properties()) as session:
        yield session


async def _values(
    cluster: BlockingCluster, partition: TopicPartition, *, in_transaction: bool = False
) -> list[bytes]:
    """What a read_committed consumer finds up to the last stable offset.

    A commit is acknowledged before its markers are written: unless a transaction is open, they are awaited.
    """
    async with _target(cluster) as session:

        async def stable_end() -> int:
            stable = (await list_offsets(session, OffsetSpec.LAST_STABLE, [partition]))[partition]
            latest = (await list_offsets(session, OffsetSpec.LATEST, [partition]))[partition]
            assert isinstance(stable, int)
            assert in_transaction or stable == latest
            return stable + 1

        end = await eventually(stable_end) - 1
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        there = AioTopicPartition(*_parts(partition))
        consumer.assign([there])
        values: list[bytes] = []
        async with asyncio.timeout(30):
            while await consumer.position(there) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()


def _parts(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


# ------------------------------------------------------------------------------------------------
# transactions


async def test_a_commit_shows_everything_an_abort_nothing(kafka_pair: KafkaPair, unique_topic: str) -> None:
    await _create(kafka_pair.b, unique_topic, partition_count=3)
    partitions = [TopicPartition(unique_topic, number) for number in range(3)]
    async with (
        _target(kafka_pair.b) as session,
        RawProducer(session, QUICK, transactional_id=unique_topic) as producer,
    ):
        for shown, verdict in ((0, "commit"), (1, "abort"), (1, "commit"), (2, "abort")):
            producer.begin()
            acks = [producer.send(partition, _batch(verdict.encode())) for partition in partitions]
            await producer.flush()
            assert all(ack.result() >= 0 for ack in acks)
            committed = await _values(kafka_pair.b, partitions[0], in_transaction=True)
            assert committed == [b"commit"] * shown
            await (producer.commit() if verdict == "commit" else producer.abort())
            assert producer.state is ProducerState.READY
    for partition in partitions:
        assert await _values(kafka_pair.b, partition) == [b"commit", b"commit"]


async def test_a_transaction_without_records_costs_nothing(kafka_pair: KafkaPair, unique_topic: str) -> None:
    async with (
        _target(kafka_pair.b) as session,
        RawProducer(session, QUICK, transactional_id=unique_topic) as producer,
    ):
        for _ in range(3):
            producer.begin()
            await producer.commit()
            producer.begin()
            await producer.abort()


async def test_an_abort_forgets_what_never_left(kafka_pair: KafkaPair, unique_topic: str) -> None:
    await _create(kafka_pair.b, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with (
        _target(kafka_pair.b) as session,
        RawProducer(session, QUICK, transactional_id=unique_topic) as producer,
    ):
        producer.begin()
        forgotten = producer.send(partition, _batch(b"forgotten"))
        await producer.abort()
        with pytest.raises(KafkaError):
            await forgotten
        producer.begin()
        producer.send(partition, _batch(b"kept"))
        await producer.commit()
    assert await _values(kafka_pair.b, partition) == [b"kept"]


async def test_wrong_order_of_calls_is_said(kafka_pair: KafkaPair, unique_topic: str) -> None:
    await _create(kafka_pair.b, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with _target(kafka_pair.b) as session:
        async with RawProducer(session, QUICK, transactional_id=unique_topic) as producer:
            with pytest.raises(StateError, match="READY, not IN_TRANSACTION"):
                producer.send(partition, _batch(b"v"))
            with pytest.raises(StateError):
                await producer.commit()
            producer.begin()
            with pytest.raises(StateError, match="IN_TRANSACTION, not READY"):
                producer.begin()
        with pytest.raises(StateError, match="CLOSED"):
            producer.begin()
        async with RawProducer(session, QUICK) as idempotent:
            with pytest.raises(StateError, match="has no transactions"):
                idempotent.begin()


async def test_ids_in_turn_keep_the_order_of_transactions(kafka_pair: KafkaPair, unique_topic: str) -> None:
    await _create(kafka_pair.b, unique_topic, partition_count=2)
    partitions = [TopicPartition(unique_topic, number) for number in range(2)]
    ids = (f"{unique_topic}-0", f"{unique_topic}-1")
    async with (
        _target(kafka_pair.b) as session,
        TransactionRotation(session, ids, QUICK) as rotation,
    ):
        for number in range(100):
            rotation.begin()
            for partition in partitions:
                rotation.send(partition, _batch(b"%d" % number, b"%d again" % number))
            await (rotation.abort() if number % 10 == 3 else rotation.commit())
    expected = [
        value for number in range(100) if number % 10 != 3 for value in (b"%d" % number, b"%d again" % number)
    ]
    for partition in partitions:
        assert await _values(kafka_pair.b, partition) == expected


async def test_many_batches_of_a_partition_arrive_once_and_in_order(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    await _create(kafka_pair.b, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with _target(kafka_pair.b) as session, RawProducer(session, QUICK) as producer:
        acks = [producer.send(partition, _batch(b"%d" % number, b"+")) for number in range(500)]
        await producer.flush()
        assert [ack.result() for ack in acks] == list(range(0, 1000, 2))
    values = await _values(kafka_pair.b, partition)
    assert values[::2] == [b"%d" % number for number in range(500)]


async def test_sequence_numbers_wrap_after_two_billion_records(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    await _create(kafka_pair.b, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with _target(kafka_pair.b) as session, RawProducer(session, QUICK) as producer:
        producer.send(partition, _batch(b"first"))
        producer._delivery._outboxes[partition].next_sequence = 0x7FFFFFFF - 3
        for number in range(6):
            producer.send(partition, _batch(b"%d" % number, b"+"))
        await producer.flush()
    assert len(await _values(kafka_pair.b, partition)) == 13


# ------------------------------------------------------------------------------------------------ fencing


async def test_a_zombie_is_fenced_and_its_records_never_show(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    await _create(kafka_pair.b, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with (
        _target(kafka_pair.b) as old_session,
        _target(kafka_pair.b) as new_session,
        RawProducer(old_session, QUICK, transactional_id=unique_topic) as zombie,
    ):
        zombie.begin()
        await zombie.send(partition, _batch(b"zombie"))
        async with RawProducer(new_session, QUICK, transactional_id=unique_topic) as owner:
            owner.begin()
            owner.send(partition, _batch(b"owner"))
            with pytest.raises(FatalKafkaError) as caught:
                await zombie.commit()
            assert caught.value.reason == "PRODUCER_FENCED"
            await owner.commit()
        assert zombie.state is ProducerState.FAILED
        assert zombie.failure is caught.value
        assert zombie.partition_failures == {}
        with pytest.raises(FatalKafkaError):
            zombie.send(partition, _batch(b"more"))
        await zombie.abort()
    assert await _values(kafka_pair.b, partition) == [b"owner"]


async def test_a_zombie_that_only_sends_is_fenced_too(kafka_pair: KafkaPair, unique_topic: str) -> None:
    await _create(kafka_pair.b, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with (
        _target(kafka_pair.b) as session,
        RawProducer(session, QUICK, transactional_id=unique_topic) as zombie,
    ):
        assert await fence(session, [unique_topic], timeout_seconds=20) == {unique_topic: None}
        zombie.begin()
        ack = zombie.send(partition, _batch(b"zombie"))
        with pytest.raises(FatalKafkaError) as caught:
            await zombie.commit()
        assert caught.value.reason == "PRODUCER_FENCED"
        assert ack.done()
        with pytest.raises(KafkaError):
            ack.result()
    assert await _values(kafka_pair.b, partition) == []


async def test_fencing_ends_open_transactions_of_many_ids(kafka_pair: KafkaPair, unique_topic: str) -> None:
    """After it the last stable offset is the end: what was open is aborted, so positions may be read."""
    await _create(kafka_pair.b, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    ids = [f"{unique_topic}-{number}" for number in range(40)]
    async with _target(kafka_pair.b) as session:
        for transactional_id in ids[:3]:
            async with RawProducer(session, QUICK, transactional_id=transactional_id) as owner:
                owner.begin()
                await owner.send(partition, _batch(transactional_id.encode()))
        stable = await list_offsets(session, OffsetSpec.LAST_STABLE, [partition])
        assert stable[partition] == 0
        outcome = await fence(session, ids, timeout_seconds=20)
        assert outcome == dict.fromkeys(ids)
        stable = await list_offsets(session, OffsetSpec.LAST_STABLE, [partition])
        latest = await list_offsets(session, OffsetSpec.LATEST, [partition])
        assert stable == latest
    assert await _values(kafka_pair.b, partition) == []


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("transactional", [True, False], ids=["transactional", "idempotent"])
@pytest.mark.parametrize(
    ("configs", "batch", "reason"),
    [
        ({"max.message.bytes": "1000"}, _batch(bytes(5000)), "RECORD_TOO_LARGE"),
        ({"message.timestamp.before.max.ms": "1000"}, _batch(b"v"), "TIMESTAMP_REFUSED"),
        ({"cleanup.policy": "compact"}, _batch(b"v", key=None), "RECORD_INVALID"),
        (None, _batch(b"v"), "TOPIC_UNKNOWN"),
    ],
    ids=["too large", "timestamp", "no key", "no topic"],
)
async def test_a_refusal_names_its_partition_and_the_rest_goes_on_without_it(
    kafka_pair: KafkaPair,
    unique_topic: str,
    configs: Mapping[str, str] | None,
    batch: OutgoingBatch,
    reason: str,
    transactional: bool,
) -> None:
    good, bad = unique_name("good"), unique_name("bad")
    await _create(kafka_pair.b, good)
    if configs is not None:
        await _create(kafka_pair.b, bad, configs)
    fine, refused = TopicPartition(good, 0), TopicPartition(bad, 0)
    transactional_id = unique_topic if transactional else None
    async with _target(kafka_pair.b) as session:
        async with RawProducer(session, QUICK, transactional_id=transactional_id) as producer:
            if transactional:
                producer.begin()
            producer.send(fine, _batch(b"first try"))
            ack = producer.send(refused, batch)
            with pytest.raises(FatalKafkaError) as caught:
                await producer.flush()
            assert caught.value.reason == reason
            assert caught.value.metadata["topic"] == bad
            assert caught.value.metadata["partition"] == "0"
            assert producer.partition_failures.keys() == {refused}
            with pytest.raises(FatalKafkaError):
                await ack
        async with RawProducer(session, QUICK, transactional_id=transactional_id) as producer:
            if transactional:
                producer.begin()
            producer.send(fine, _batch(b"second try"))
            await (producer.commit() if transactional else producer.flush())
    values = await _values(kafka_pair.b, fine)
    assert values in ([b"second try"], [b"first try", b"second try"][: 2 - transactional])


async def test_a_topic_that_appears_in_time_is_no_failure(kafka_pair: KafkaPair, unique_topic: str) -> None:
    partition = TopicPartition(unique_topic, 0)
    async with (
        _target(kafka_pair.b) as session,
        RawProducer(session, ProducerSettings(unknown_topic_seconds=15)) as producer,
    ):
        ack = producer.send(partition, _batch(b"v"))
        await asyncio.wait([ack], timeout=0.5)
        assert not ack.done()
        await _create(kafka_pair.b, unique_topic)
        assert await ack == 0


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
    await _create(cluster, allowed.topic)
    await _create(cluster, denied.topic)
    async with open_cluster("B", cluster.client_properties()) as admin:
        acls = [
            allow("TOPIC", "allowed", "WRITE"),
            allow("TOPIC", "allowed", "DESCRIBE"),
            allow("TRANSACTIONAL_ID", "mine", "WRITE"),
            allow("TRANSACTIONAL_ID", "mine", "DESCRIBE"),
        ]
        assert set((await admin.create_acls(acls)).values()) == {None}
    async with open_session("B", cluster.client_properties("mirror")) as session:
        outcome = await fence(session, ["theirs", "mine"], timeout_seconds=20)
        assert outcome["mine"] is None
        refusal = outcome["theirs"]
        assert refusal is not None
        assert refusal.reason == "TRANSACTION_UNAUTHORIZED"
        for transactional_id in ("mine", None):
            async with RawProducer(session, QUICK, transactional_id=transactional_id) as producer:
                if transactional_id:
                    producer.begin()
                producer.send(allowed, _batch(b"v"))
                producer.send(denied, _batch(b"v"))
                with pytest.raises(FatalKafkaError) as caught:
                    await producer.flush()
                assert caught.value.reason == "TOPIC_UNAUTHORIZED"
                assert producer.partition_failures.keys() == {denied}
        async with RawProducer(session, QUICK, transactional_id="mine") as producer:
            producer.begin()
            producer.send(allowed, _batch(b"v"))
            await producer.commit()


# ------------------------------------------------------------------------------------------------ outages


@pytest.mark.parametrize("transactional", [True, False], ids=["transactional", "idempotent"])
async def test_a_killed_broker_loses_and_doubles_nothing(
    start_cluster: Callable[[ClusterSpec], BlockingCluster], transactional: bool
) -> None:
    """SIGKILL while batches are in flight: after the restart each is there once, in order.

    In a transaction that holds for records of any age. Without one, a broker that starts forgets producers
    whose last record is older than producer.id.expiration.ms (a day), and may take a batch twice.
    """
    cluster = start_cluster(ClusterSpec(name="mortal"))
    partition = TopicPartition("t", 0)
    await _create(cluster, partition.topic)
    timestamp_ms = 1_500_000_000_000 if transactional else SystemClock().now_ms()
    settings = ProducerSettings(delivery_timeout_seconds=60)
    transactional_id = "mortal" if transactional else None

    def numbered(number: int) -> OutgoingBatch:
        return _batch(b"%d" % number, timestamp_ms=timestamp_ms)

    async with (
        _target(cluster) as session,
        RawProducer(session, settings, transactional_id=transactional_id) as producer,
    ):
        if transactional:
            producer.begin()
        acks = [producer.send(partition, numbered(number)) for number in range(2000)]
        await acks[50]
        cluster.kill_broker(1)
        assert not acks[-1].done(), "the broker was to die with batches in flight"
        acks += [producer.send(partition, numbered(number)) for number in range(2000, 2100)]
        await asyncio.get_running_loop().run_in_executor(None, cluster.restart_broker, 1)
        await (producer.commit() if transactional else producer.flush())
        offsets = [ack.result() for ack in acks]
    assert offsets == list(range(2100))
    assert await _values(cluster, partition) == [b"%d" % number for number in range(2100)]


async def test_a_broker_that_hangs_is_noticed_and_closing_does_not_wait_for_it(
    start_cluster: Callable[[ClusterSpec], BlockingCluster],
) -> None:
    cluster = start_cluster(ClusterSpec(name="frozen"))
    partition = TopicPartition("t", 0)
    await _create(cluster, partition.topic)
    settings = ProducerSettings(delivery_timeout_seconds=1.5)
    loop = asyncio.get_running_loop()
    async with _target(cluster) as session:
        async with RawProducer(session, settings, transactional_id="frozen") as producer:
            producer.begin()
            await producer.send(partition, _batch(b"before"))
            cluster.pause_broker(1)
            began = loop.time()
            producer.send(partition, _batch(b"lost"))
            with pytest.raises(TransientKafkaError) as caught:
                await producer.commit()
            assert 1.4 < loop.time() - began < 15
            assert caught.value.metadata["topic"] == "t"
            assert producer.state is ProducerState.FAILED
            began = loop.time()
        assert loop.time() - began < 10
        cluster.resume_broker(1)
        async with RawProducer(session, QUICK, transactional_id="frozen") as producer:
            producer.begin()
            producer.send(partition, _batch(b"after"))
            await producer.commit()
    assert await _values(cluster, partition) == [b"after"]
