"""The producer of prepared batches: transactions, fencing, refusals."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from kio.schema.errors import ErrorCode

from simulated.clients import Applications
from twinlog.batches import NewRecord, OutgoingBatch, build_batch
from twinlog.errors import FatalKafkaError, KafkaError, StateError
from twinlog.kafka.deadline import pause
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import (
    ProducerIdentity,
    ProducerSettings,
    ProducerState,
    RawProducer,
    TransactionRotation,
    fence,
    list_offsets,
)
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.calls import KAFKA_3_9, KAFKA_4_3
from twinlog.testing.raw_copying import QUICK
from unit.testing.broker.broker_rig import pool

P = TopicPartition("t", 0)


def a_batch(*values: bytes, key: bytes | None = b"k") -> OutgoingBatch:
    return build_batch([NewRecord(key, value, 1_600_000_000_000) for value in values])


@pytest.fixture(params=[KAFKA_4_3, KAFKA_3_9], ids=lambda each: each.name)
async def target(request: pytest.FixtureRequest) -> AsyncIterator[FakeKafka]:
    """With transactions of version 2, and without."""
    async with FakeKafka(release=request.param) as kafka:
        yield kafka


def committed(kafka: FakeKafka, partition: TopicPartition = P) -> list[bytes | None]:
    seen = Applications(kafka.cluster).read(partition.topic)
    return [each.value for each in seen if each.partition == partition.partition]


# ------------------------------------------------------------------------------------------------
# transactions


async def test_a_batch_whose_leader_is_away_fails_by_that_and_names_the_broker() -> None:
    async with FakeKafka(node_count=2) as kafka:
        topic = kafka.cluster.create_topic("t", replication_factor=1)
        gone = topic.partitions[0].leader
        async with pool(kafka) as session, RawProducer(session, QUICK) as producer:
            await kafka.stop_node(gone)
            with pytest.raises(KafkaError) as raised:
                await producer.send(P, a_batch(b"1"))
            assert raised.value.reason == "LEADER_UNAVAILABLE"
            assert f"its newest records are on broker {gone}" in str(producer.without_leader[P])
            assert producer.partition_failures[P].reason == "LEADER_UNAVAILABLE"


async def test_a_partition_whose_batches_are_all_sent_waits_for_no_leader() -> None:
    """It has none any more when the metadata are read again, and what it was sent is acknowledged."""
    async with FakeKafka(node_count=2) as kafka, pool(kafka) as session:
        topic = kafka.cluster.create_topic("t", partition_count=2, replication_factor=1)
        other = TopicPartition("t", 1)
        home, elsewhere = (each.leader for each in topic.partitions)
        assert home != elsewhere
        async with RawProducer(session, QUICK) as producer:
            kafka.faults.begin(api="produce", node_id=home, answer_seconds=5)
            sent = producer.send(P, a_batch(b"1"))
            await pause(1)
            topic.partitions[0].leader = -1
            moved = ErrorCode.not_leader_or_follower
            kafka.faults.begin(api="produce", node_id=elsewhere, error=moved, times=1)
            await producer.send(other, a_batch(b"1"))
            await sent
            assert producer.without_leader == {}


async def test_one_leader_and_several_take_turns_in_the_transactions_of_an_id() -> None:
    """One leader adds its partitions to the transaction itself; for several the coordinator is told."""
    partitions = [TopicPartition("t", number) for number in range(6)]
    expected: dict[TopicPartition, list[bytes]] = {partition: [] for partition in partitions}
    async with (
        FakeKafka(node_count=3) as kafka,
        pool(kafka) as session,
        TransactionRotation(session, ["t-0", "t-1"], QUICK) as rotation,
    ):
        topic = kafka.cluster.create_topic("t", partition_count=6)
        assert len({each.leader for each in topic.partitions}) == 3
        for number in range(60):
            producer = rotation.begin()
            written = partitions if number % 3 else partitions[number % 6 : number % 6 + 1]
            for partition in written:
                producer.send(partition, a_batch(b"%d" % number))
            await producer.flush()
            for partition in written:
                producer.send(partition, a_batch(b"%d+" % number))
                expected[partition] += [b"%d" % number, b"%d+" % number]
            await producer.commit()
        for partition in partitions:
            assert committed(kafka, partition) == expected[partition]


async def test_a_transaction_without_records_costs_nothing(target: FakeKafka) -> None:
    async with (
        pool(target) as session,
        RawProducer(session, QUICK, transactional_id="t") as producer,
    ):
        for _ in range(3):
            producer.begin()
            await producer.commit()


async def test_wrong_order_of_calls_is_said(target: FakeKafka) -> None:
    target.cluster.create_topic("t")
    async with pool(target) as session:
        async with RawProducer(session, QUICK, transactional_id="t") as producer:
            with pytest.raises(StateError, match="READY, not IN_TRANSACTION"):
                producer.send(P, a_batch(b"v"))
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


async def test_ids_in_turn_keep_the_order_of_transactions(target: FakeKafka) -> None:
    target.cluster.create_topic("t", partition_count=2)
    partitions = [TopicPartition("t", number) for number in range(2)]
    ids = ("t-0", "t-1")
    async with (
        pool(target) as session,
        TransactionRotation(session, ids, QUICK) as rotation,
    ):
        for number in range(100):
            producer = rotation.begin()
            for partition in partitions:
                producer.send(partition, a_batch(b"%d" % number, b"%d again" % number))
            await producer.commit()
    expected = [value for number in range(100) for value in (b"%d" % number, b"%d again" % number)]
    for partition in partitions:
        assert committed(target, partition) == expected


async def test_many_batches_of_a_partition_arrive_once_and_in_order(target: FakeKafka) -> None:
    target.cluster.create_topic("t")
    async with pool(target) as session, RawProducer(session, QUICK) as producer:
        acks = [producer.send(P, a_batch(b"%d" % number, b"+")) for number in range(500)]
        await producer.flush()
        assert [ack.result() for ack in acks] == list(range(0, 1000, 2))
    values = committed(target)
    assert values[::2] == [b"%d" % number for number in range(500)]


async def test_sequence_numbers_wrap_after_two_billion_records(target: FakeKafka) -> None:
    target.cluster.create_topic("t")
    async with pool(target) as session, RawProducer(session, QUICK) as producer:
        producer.send(P, a_batch(b"first"))
        producer.delivery.batches.queue_of(P).next_sequence = 0x7FFFFFFF - 3
        for number in range(6):
            producer.send(P, a_batch(b"%d" % number, b"+"))
        await producer.flush()
    assert len(committed(target)) == 13


# ------------------------------------------------------------------------------------------------ fencing


async def test_a_zombie_is_fenced_and_its_records_never_show(target: FakeKafka) -> None:
    target.cluster.create_topic("t")
    async with (
        pool(target) as old_session,
        pool(target) as new_session,
        RawProducer(old_session, QUICK, transactional_id="t") as zombie,
    ):
        zombie.begin()
        await zombie.send(P, a_batch(b"zombie"))
        async with RawProducer(new_session, QUICK, transactional_id="t") as owner:
            owner.begin()
            owner.send(P, a_batch(b"owner"))
            with pytest.raises(FatalKafkaError) as caught:
                await zombie.commit()
            assert caught.value.reason == "PRODUCER_FENCED"
            await owner.commit()
        assert zombie.state is ProducerState.FAILED
        assert zombie.failure is caught.value
        assert zombie.partition_failures == {}
        with pytest.raises(FatalKafkaError):
            zombie.send(P, a_batch(b"more"))
    assert committed(target) == [b"owner"]


async def test_a_zombie_that_only_sends_is_fenced_too(target: FakeKafka) -> None:
    target.cluster.create_topic("t")
    async with (
        pool(target) as session,
        RawProducer(session, QUICK, transactional_id="t") as zombie,
    ):
        fenced = await fence(session, ["t"], timeout_seconds=60, transaction_timeout_seconds=60)
        assert fenced.keys() == {"t"}
        assert isinstance(fenced["t"], ProducerIdentity)
        zombie.begin()
        ack = zombie.send(P, a_batch(b"zombie"))
        with pytest.raises(FatalKafkaError) as caught:
            await zombie.commit()
        assert caught.value.reason == "PRODUCER_FENCED"
        assert ack.done()
        with pytest.raises(KafkaError):
            ack.result()
    assert committed(target) == []


async def test_fencing_ends_open_transactions_of_many_ids(target: FakeKafka) -> None:
    """After it the last stable offset is the end: what was open is aborted, so positions may be read."""
    target.cluster.create_topic("t")
    ids = [f"t-{number}" for number in range(40)]
    async with pool(target) as session:
        for transactional_id in ids[:3]:
            async with RawProducer(session, QUICK, transactional_id=transactional_id) as owner:
                owner.begin()
                await owner.send(P, a_batch(transactional_id.encode()))
        stable = await list_offsets(session, OffsetSpec.LAST_STABLE, [P])
        assert stable[P] == 0
        outcome = await fence(session, ids, timeout_seconds=60, transaction_timeout_seconds=60)
        assert outcome.keys() == set(ids)
        assert all(isinstance(answer, ProducerIdentity) for answer in outcome.values())
        stable = await list_offsets(session, OffsetSpec.LAST_STABLE, [P])
        latest = await list_offsets(session, OffsetSpec.LATEST, [P])
        assert stable == latest
    assert committed(target) == []


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("transactional", [True, False], ids=["transactional", "idempotent"])
@pytest.mark.parametrize(
    ("configs", "batch", "reason"),
    [
        ({"max.message.bytes": "1000"}, a_batch(bytes(5000)), "RECORD_TOO_LARGE"),
        ({"message.timestamp.before.max.ms": "1000"}, a_batch(b"v"), "TIMESTAMP_REFUSED"),
        ({"cleanup.policy": "compact"}, a_batch(b"v", key=None), "RECORD_INVALID"),
        (None, a_batch(b"v"), "TOPIC_UNKNOWN"),
    ],
    ids=["too large", "timestamp", "no key", "no topic"],
)
async def test_a_refusal_names_its_partition_and_the_rest_goes_on_without_it(
    configs: Mapping[str, str] | None,
    batch: OutgoingBatch,
    reason: str,
    transactional: bool,
) -> None:
    fine, refused = TopicPartition("good", 0), TopicPartition("bad", 0)
    transactional_id = "t" if transactional else None
    async with FakeKafka() as kafka, pool(kafka) as session:
        kafka.cluster.create_topic("good")
        if configs is not None:
            kafka.cluster.create_topic("bad", configs=configs)
        async with RawProducer(session, QUICK, transactional_id=transactional_id) as producer:
            if transactional:
                producer.begin()
            producer.send(fine, a_batch(b"first try"))
            ack = producer.send(refused, batch)
            with pytest.raises(FatalKafkaError) as caught:
                await producer.flush()
            assert caught.value.reason == reason
            assert caught.value.metadata["topic"] == "bad"
            assert caught.value.metadata["partition"] == "0"
            assert producer.partition_failures.keys() == {refused}
            with pytest.raises(FatalKafkaError):
                await ack
        async with RawProducer(session, QUICK, transactional_id=transactional_id) as producer:
            if transactional:
                producer.begin()
            producer.send(fine, a_batch(b"second try"))
            await (producer.commit() if transactional else producer.flush())
        assert committed(kafka, fine) in ([b"second try"], [b"first try", b"second try"][: 2 - transactional])


async def test_a_topic_that_appears_in_time_is_no_failure() -> None:
    async with (
        FakeKafka() as kafka,
        pool(kafka) as session,
        RawProducer(session, ProducerSettings(unknown_topic_seconds=60)) as producer,
    ):
        ack = producer.send(P, a_batch(b"v"))
        await asyncio.wait([ack], timeout=0.5)
        assert not ack.done()
        kafka.cluster.create_topic("t")
        assert await ack == 0
