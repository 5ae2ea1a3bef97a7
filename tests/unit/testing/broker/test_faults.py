"""Trouble by script, as clients meet it."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from twinlog.kafka.deadline import pause
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import ProducerSettings, RawProducer, list_offsets
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka, Loss
from twinlog.testing.broker.compaction import compact
from unit.testing.broker.broker_rig import batch, fetched, pool, values

ORDERS = TopicPartition("orders", 0)


async def _write(kafka: FakeKafka, *each: bytes) -> list[int]:
    async with pool(kafka) as session, RawProducer(session, ProducerSettings()) as producer:
        acks = []
        for value in each:
            acks.append(producer.send(ORDERS, batch(value)))
            await producer.flush()
        return [ack.result() for ack in acks]


@pytest.mark.parametrize("loss", list(Loss))
async def test_a_batch_is_written_once_whenever_its_connection_is_lost(loss: Loss) -> None:
    async with FakeKafka() as kafka:
        partition = kafka.cluster.create_topic("orders").partitions[0]
        kafka.faults.begin(api="produce", loses=loss, times=1)
        assert await _write(kafka, b"one", b"two") == [0, 1]
        assert partition.log.end_offset == 2


@pytest.mark.parametrize("code", [ErrorCode.not_leader_or_follower, ErrorCode.not_enough_replicas])
async def test_an_error_is_answered_for_a_while(code: ErrorCode) -> None:
    async with FakeKafka() as kafka:
        kafka.cluster.create_topic("orders")
        kafka.faults.begin(api="produce", error=code, seconds=2)
        assert await _write(kafka, b"one") == [0]
        assert asyncio.get_running_loop().time() >= 2


async def test_a_broker_goes_and_comes_back_with_its_log_behind() -> None:
    async with FakeKafka(node_count=3) as kafka:
        partition = kafka.cluster.create_topic("orders").partitions[0]
        first = partition.leader
        await _write(kafka, b"one")
        await kafka.stop_node(first)
        assert partition.leader not in (first, -1)
        assert await _write(kafka, b"two") == [1]
        assert partition.logs[first].end_offset == 1
        await kafka.start_node(first)
        assert partition.logs[first].end_offset == 2
        assert sorted(partition.isr) == [1, 2, 3]


async def test_compaction_keeps_the_last_record_of_a_key() -> None:
    async with FakeKafka() as kafka, pool(kafka) as session:
        partition = kafka.cluster.create_topic("orders", configs={"cleanup.policy": "compact"}).partitions[0]
        await _write(kafka, b"one", b"two", b"three")
        compact(partition)
        assert values(await fetched(session, ORDERS)) == [b"three"]


async def test_a_transaction_waits_for_a_partition_without_a_leader() -> None:
    async with FakeKafka(node_count=2) as kafka, pool(kafka) as session:
        topic = kafka.cluster.create_topic("orders", replication_factor=1)
        partition = topic.partitions[0]
        other = next(each for each in kafka.cluster.nodes if each != partition.leader)
        home = partition.leader
        kafka.cluster.moved_coordinators[1, "copier"] = other
        async with RawProducer(session, ProducerSettings(), transactional_id="copier") as producer:
            producer.begin()
            producer.send(ORDERS, batch(b"one"))
            await producer.flush()
            await kafka.stop_node(home)
            await producer.commit()
            assert partition.log.last_stable_offset == 0
            await kafka.start_node(home)
            assert partition.log.last_stable_offset == 2


async def test_the_next_transaction_waits_for_markers_that_are_held() -> None:
    async with FakeKafka() as kafka, pool(kafka) as session:
        kafka.cluster.create_topic("orders")
        transactions = kafka.cluster.transactions
        async with RawProducer(session, ProducerSettings(), transactional_id="copier") as producer:
            producer.begin()
            producer.send(ORDERS, batch(b"one"))
            await producer.flush()
            transactions.holds_markers = True
            await producer.commit()
            producer.begin()
            second = producer.send(ORDERS, batch(b"two"))
            await pause(1)
            assert not second.done()
            transactions.holds_markers = False
            transactions.write_pending_markers()
            await producer.commit()
            assert second.result() == 2


@pytest.mark.parametrize("fault", [{"swallows": True}, {"swallows_unseen": True}])
async def test_a_swallowed_packet_costs_a_time_out_and_no_record_twice(fault: dict[str, bool]) -> None:
    async with FakeKafka() as kafka:
        partition = kafka.cluster.create_topic("orders").partitions[0]
        kafka.faults.begin(api="produce", times=1, **fault)
        assert await _write(kafka, b"one", b"two") == [0, 1]
        assert partition.log.end_offset == 2
        assert asyncio.get_running_loop().time() >= 10


async def test_a_throttled_answer_comes_at_once_and_the_next_one_later() -> None:
    async with FakeKafka() as kafka, pool(kafka) as session:
        kafka.cluster.create_topic("orders")
        loop = asyncio.get_running_loop()
        times = []
        kafka.faults.begin(api="list_offsets", throttle_ms=3_000, times=1)
        for _ in range(2):
            await list_offsets(session, OffsetSpec.LATEST, [ORDERS])
            times.append(loop.time())
        assert times[0] < 1
        assert 3 <= times[1] < 4


async def test_a_lost_tail_is_written_anew_in_the_next_epoch() -> None:
    async with FakeKafka(node_count=3) as kafka, pool(kafka) as session:
        partition = kafka.cluster.create_topic("orders").partitions[0]
        await _write(kafka, b"kept", b"lost", b"lost too")
        before = partition.leader_epoch
        kafka.cluster.lose_tail(partition, 1)
        assert [log.end_offset for log in partition.logs.values()] == [1, 1, 1]
        assert partition.log.epoch_end(before) == (before, 1)
        assert await _write(kafka, b"new") == [1]
        assert values(await fetched(session, ORDERS)) == [b"kept", b"new"]


async def test_a_forgotten_producer_goes_on() -> None:
    async with FakeKafka() as kafka:
        partition = kafka.cluster.create_topic("orders").partitions[0]
        async with pool(kafka) as session, RawProducer(session, ProducerSettings()) as producer:
            acks = []
            for value in (b"one", b"two"):
                acks.append(producer.send(ORDERS, batch(value)))
                await producer.flush()
                kafka.cluster.forget_producers(partition)
                assert not partition.log.producers.entries
        assert [ack.result() for ack in acks] == [0, 1]


async def test_a_producer_follows_its_leader() -> None:
    async with FakeKafka(node_count=2) as kafka, pool(kafka) as session:
        partition = kafka.cluster.create_topic("orders").partitions[0]
        async with RawProducer(session, ProducerSettings()) as producer:
            acks = []
            for number in range(4):
                acks.append(producer.send(ORDERS, batch(b"%d" % number)))
                await producer.flush()
                behind = next(each for each in partition.replicas if each != partition.leader)
                kafka.cluster.elect(partition, behind)
        assert [ack.result() for ack in acks] == [0, 1, 2, 3]
        assert partition.log.epochs == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]
