"""The producer of prepared batches on the wire of new and old brokers: transactions and fencing."""

import pytest

from integration.fake_pair import as_real
from integration.fake_pair import kafka_pair as kafka_pair
from integration.fake_pair import older_cluster as older_cluster
from integration.fake_pair import three_brokers as three_brokers
from integration.kafka.raw_producer_rig import a_batch, committed_values, create_topic, open_target
from twinlog.batches import BatchHeader, read_batches
from twinlog.clock import SystemClock
from twinlog.errors import FatalKafkaError, KafkaError, StateError
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import (
    FetchedPartition,
    ProducerIdentity,
    ProducerState,
    RawProducer,
    TransactionCoordinator,
    TransactionRotation,
    fence,
    list_offsets,
)
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.transactions import Identity
from twinlog.testing.brokers import KafkaPair, eventually
from twinlog.testing.raw_copying import QUICK, open_fetcher


@pytest.fixture(params=["4.3", "3.9"])
def target(
    request: pytest.FixtureRequest, kafka_pair: KafkaPair, older_cluster: BlockingCluster
) -> BlockingCluster:
    """With transactions of version 2, and without."""
    return kafka_pair.b if request.param == "4.3" else older_cluster


# ------------------------------------------------------------------------------------------------
# transactions


async def test_a_commit_shows_everything_and_what_is_left_open_never_shows(
    target: BlockingCluster, unique_topic: str
) -> None:
    await create_topic(target, unique_topic, partition_count=3)
    partitions = [TopicPartition(unique_topic, number) for number in range(3)]
    async with open_target(target) as session:
        for shown, verdict in ((0, "commit"), (1, "leave"), (1, "commit"), (2, "leave"), (2, "commit")):
            async with RawProducer(session, QUICK, transactional_id=unique_topic) as producer:
                producer.begin()
                acks = [producer.send(partition, a_batch(verdict.encode())) for partition in partitions]
                await producer.flush()
                assert all(ack.result() >= 0 for ack in acks)
                committed = await committed_values(target, partitions[0], in_transaction=True)
                assert committed == [b"commit"] * shown
                if verdict == "commit":
                    await producer.commit()
                    assert producer.state is ProducerState.READY
    for partition in partitions:
        assert await committed_values(target, partition) == [b"commit"] * 3


async def test_a_new_producer_id_is_admitted_when_the_epochs_of_one_are_used_up(unique_topic: str) -> None:
    """The end of a transaction of version 2 brings it. Who initialises the id again keeps it."""
    admitted: list[int] = []

    async def admit(producer_id: int, _transactional_id: str) -> None:
        admitted.append(producer_id)

    async with FakeKafka() as kafka, open_target(as_real(kafka)) as session:
        coordinator = TransactionCoordinator(
            session, unique_topic, transaction_timeout_seconds=60, admit=admit
        )
        first = await coordinator.new_identity(timeout_seconds=60)
        await coordinator.agree(timeout_seconds=60)
        identity = first._replace(producer_epoch=32_760)
        kafka.cluster.transactions.by_id[unique_topic].identity = Identity(*identity)
        for _ in range(7):
            assert admitted == [first.producer_id]
            identity = await coordinator.end(identity, commit=False, timeout_seconds=60)
        assert admitted == [first.producer_id, identity.producer_id]
        assert identity.producer_epoch == 0
        assert (await coordinator.new_identity(timeout_seconds=60)).producer_id == identity.producer_id
        assert len(admitted) == 2


async def test_every_transaction_has_an_epoch_of_its_own_where_the_cluster_can_do_that(
    kafka_pair: KafkaPair, older_cluster: BlockingCluster, unique_topic: str
) -> None:
    """So a batch that comes late cannot slip into a later transaction (KIP-890)."""
    epochs: list[list[int]] = []
    now_ms = SystemClock().now_ms()  # markers have it too: with old records each would begin a segment
    partition = TopicPartition(unique_topic, 0)
    for cluster in (kafka_pair.b, older_cluster):
        await create_topic(cluster, unique_topic)
        async with open_target(cluster) as session:
            async with RawProducer(session, QUICK, transactional_id=unique_topic) as producer:
                for number in range(4):
                    producer.begin()
                    producer.send(partition, a_batch(b"%d" % number, b"+", timestamp_ms=now_ms))
                    producer.send(partition, a_batch(b"%d more" % number, timestamp_ms=now_ms))
                    await producer.flush()
                    await producer.commit()

            async def data_headers() -> list[BatchHeader]:
                async with open_fetcher(session) as fetcher:
                    answer = (await fetcher.poll({partition: 0}, max_wait_seconds=1.0))[partition]
                assert isinstance(answer, FetchedPartition)
                headers = [batch.header for batch in read_batches(answer.records)]
                data = [header for header in headers if not header.is_control]
                assert len(data) == 8
                return data

            headers = await eventually(data_headers)
        sequences = [header.base_sequence for header in headers]
        assert sequences == ([0, 2] * 4 if cluster is kafka_pair.b else [0, 2, 3, 5, 6, 8, 9, 11])
        epochs.append([header.producer_epoch - headers[0].producer_epoch for header in headers])
    assert epochs == [[0, 0, 1, 1, 2, 2, 3, 3], [0] * 8]


async def test_one_leader_and_several_take_turns_in_the_transactions_of_an_id(
    three_brokers: BlockingCluster, unique_topic: str
) -> None:
    """One leader adds its partitions to the transaction itself; for several the coordinator is told."""
    await create_topic(three_brokers, unique_topic, partition_count=6)
    partitions = [TopicPartition(unique_topic, number) for number in range(6)]
    expected: dict[TopicPartition, list[bytes]] = {partition: [] for partition in partitions}
    async with open_target(three_brokers) as session:
        async with TransactionRotation(
            session, [f"{unique_topic}-0", f"{unique_topic}-1"], QUICK
        ) as rotation:
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
        client = await session.client("look")
        assert len({client.cluster.leader_for_partition(partition) for partition in partitions}) == 3
    for partition in partitions:
        assert await committed_values(three_brokers, partition) == expected[partition]


async def test_a_transaction_without_records_costs_nothing(
    target: BlockingCluster, unique_topic: str
) -> None:
    async with (
        open_target(target) as session,
        RawProducer(session, QUICK, transactional_id=unique_topic) as producer,
    ):
        for _ in range(3):
            producer.begin()
            await producer.commit()


async def test_wrong_order_of_calls_is_said(target: BlockingCluster, unique_topic: str) -> None:
    await create_topic(target, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with open_target(target) as session:
        async with RawProducer(session, QUICK, transactional_id=unique_topic) as producer:
            with pytest.raises(StateError, match="READY, not IN_TRANSACTION"):
                producer.send(partition, a_batch(b"v"))
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


async def test_ids_in_turn_keep_the_order_of_transactions(target: BlockingCluster, unique_topic: str) -> None:
    await create_topic(target, unique_topic, partition_count=2)
    partitions = [TopicPartition(unique_topic, number) for number in range(2)]
    ids = (f"{unique_topic}-0", f"{unique_topic}-1")
    async with (
        open_target(target) as session,
        TransactionRotation(session, ids, QUICK) as rotation,
    ):
        for number in range(100):
            producer = rotation.begin()
            for partition in partitions:
                producer.send(partition, a_batch(b"%d" % number, b"%d again" % number))
            await producer.commit()
    expected = [value for number in range(100) for value in (b"%d" % number, b"%d again" % number)]
    for partition in partitions:
        assert await committed_values(target, partition) == expected


async def test_many_batches_of_a_partition_arrive_once_and_in_order(
    target: BlockingCluster, unique_topic: str
) -> None:
    await create_topic(target, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with open_target(target) as session, RawProducer(session, QUICK) as producer:
        acks = [producer.send(partition, a_batch(b"%d" % number, b"+")) for number in range(500)]
        await producer.flush()
        assert [ack.result() for ack in acks] == list(range(0, 1000, 2))
    values = await committed_values(target, partition)
    assert values[::2] == [b"%d" % number for number in range(500)]


async def test_sequence_numbers_wrap_after_two_billion_records(
    target: BlockingCluster, unique_topic: str
) -> None:
    await create_topic(target, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with open_target(target) as session, RawProducer(session, QUICK) as producer:
        producer.send(partition, a_batch(b"first"))
        producer.delivery.batches.queue_of(partition).next_sequence = 0x7FFFFFFF - 3
        for number in range(6):
            producer.send(partition, a_batch(b"%d" % number, b"+"))
        await producer.flush()
    assert len(await committed_values(target, partition)) == 13


# ------------------------------------------------------------------------------------------------ fencing


async def test_a_zombie_is_fenced_and_its_records_never_show(
    target: BlockingCluster, unique_topic: str
) -> None:
    await create_topic(target, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with (
        open_target(target) as old_session,
        open_target(target) as new_session,
        RawProducer(old_session, QUICK, transactional_id=unique_topic) as zombie,
    ):
        zombie.begin()
        await zombie.send(partition, a_batch(b"zombie"))
        async with RawProducer(new_session, QUICK, transactional_id=unique_topic) as owner:
            owner.begin()
            owner.send(partition, a_batch(b"owner"))
            with pytest.raises(FatalKafkaError) as caught:
                await zombie.commit()
            assert caught.value.reason == "PRODUCER_FENCED"
            await owner.commit()
        assert zombie.state is ProducerState.FAILED
        assert zombie.failure is caught.value
        assert zombie.partition_failures == {}
        with pytest.raises(FatalKafkaError):
            zombie.send(partition, a_batch(b"more"))
    assert await committed_values(target, partition) == [b"owner"]


async def test_a_zombie_that_only_sends_is_fenced_too(target: BlockingCluster, unique_topic: str) -> None:
    await create_topic(target, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with (
        open_target(target) as session,
        RawProducer(session, QUICK, transactional_id=unique_topic) as zombie,
    ):
        fenced = await fence(session, [unique_topic], timeout_seconds=60, transaction_timeout_seconds=60)
        assert fenced.keys() == {unique_topic}
        assert isinstance(fenced[unique_topic], ProducerIdentity)
        zombie.begin()
        ack = zombie.send(partition, a_batch(b"zombie"))
        with pytest.raises(FatalKafkaError) as caught:
            await zombie.commit()
        assert caught.value.reason == "PRODUCER_FENCED"
        assert ack.done()
        with pytest.raises(KafkaError):
            ack.result()
    assert await committed_values(target, partition) == []


async def test_fencing_ends_open_transactions_of_many_ids(target: BlockingCluster, unique_topic: str) -> None:
    """After it the last stable offset is the end: what was open is aborted, so positions may be read."""
    await create_topic(target, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    ids = [f"{unique_topic}-{number}" for number in range(40)]
    async with open_target(target) as session:
        for transactional_id in ids[:3]:
            async with RawProducer(session, QUICK, transactional_id=transactional_id) as owner:
                owner.begin()
                await owner.send(partition, a_batch(transactional_id.encode()))
        stable = await list_offsets(session, OffsetSpec.LAST_STABLE, [partition])
        assert stable[partition] == 0
        outcome = await fence(session, ids, timeout_seconds=60, transaction_timeout_seconds=60)
        assert outcome.keys() == set(ids)
        assert all(isinstance(answer, ProducerIdentity) for answer in outcome.values())
        stable = await list_offsets(session, OffsetSpec.LAST_STABLE, [partition])
        latest = await list_offsets(session, OffsetSpec.LATEST, [partition])
        assert stable == latest
    assert await committed_values(target, partition) == []
