"""A broker that throttles a producer for longer than its time-outs takes everything, once and in order."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from twinlog.errors import TransientKafkaError
from twinlog.kafka.protocol.requests import API_KEYS
from twinlog.kafka.raw import ProducerSettings, RawProducer
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.codec import Request
from twinlog.testing.broker.faults import Loss
from twinlog.testing.broker.partitions import Node
from unit.kafka.raw.test_producer import a_batch, committed
from unit.testing.broker.broker_rig import pool

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
IMPATIENT = ProducerSettings(
    delivery_timeout_seconds=6.0, request_timeout_seconds=6.0, transaction_timeout_seconds=600.0
)
BATCHES = 8


def send(producer: RawProducer, name: str) -> list[bytes]:
    """Several batches for each partition, more than may be unanswered; returns the values of one."""
    values = [f"{name} {number}".encode() for number in range(BATCHES)]
    for value in values:
        for partition in PARTITIONS:
            producer.send(partition, a_batch(value))
    return values


def refuse_one_then_throttle(kafka: FakeKafka, throttles_ms: Sequence[int]) -> None:
    """Markers are written between the next two batches. Each answer to a batch has a throttle; the last one
    stays."""
    fault, next_ms = kafka.faults.begin(api="produce"), iter(throttles_ms)
    transactions, kinds = kafka.cluster.transactions, Counter[int]()

    def look(_node: Node, request: Request) -> None:
        kinds[request.api_key] += 1
        if request.api_key == API_KEYS["produce"]:
            fault.throttle_ms = next(next_ms, throttles_ms[-1])
        if kinds[API_KEYS["produce"]] == 2:
            transactions.holds_markers = False
            transactions.write_pending_markers()

    kafka.on_request = look


@pytest.mark.parametrize(
    "throttles_ms",
    [[5_000], [10_000], [0, 0, 343, 1_973, 2_990, 3_988]],
    ids=["almost the time-out", "longer", "longer and longer"],
)
async def test_batches_behind_a_refused_one_outlast_throttles_together_longer_than_the_time_out(
    throttles_ms: list[int],
) -> None:
    """The leader refuses the first batch while markers of the transaction before are written, then those
    behind it as out of order: only the first one has failed, and no throttle is part of its time."""
    async with (
        FakeKafka() as kafka,
        pool(kafka) as session,
        RawProducer(session, IMPATIENT, transactional_id="t") as producer,
    ):
        kafka.cluster.create_topic("t", partition_count=len(PARTITIONS))
        producer.begin()
        values = send(producer, "first")
        await producer.flush()
        kafka.cluster.transactions.holds_markers = True
        await producer.commit()
        refuse_one_then_throttle(kafka, throttles_ms)
        producer.begin()
        values += send(producer, "second")
        await producer.commit()
        for partition in PARTITIONS:
            assert committed(kafka, partition) == values


async def test_a_batch_that_is_always_refused_is_late_by_the_refusal_of_its_own() -> None:
    """Those behind it were out of order only because of it: a later producer may send all of them."""
    async with (
        FakeKafka() as kafka,
        pool(kafka) as session,
        RawProducer(session, IMPATIENT, transactional_id="t") as producer,
    ):
        kafka.cluster.create_topic("t", partition_count=len(PARTITIONS))
        producer.begin()
        send(producer, "first")
        await producer.flush()
        kafka.cluster.transactions.holds_markers = True
        await producer.commit()
        producer.begin()
        send(producer, "second")
        with pytest.raises(TransientKafkaError):
            await producer.flush()
        assert {each.reason for each in producer.partition_failures.values()} == {"TRANSACTION_BUSY"}


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_lost_doubled_or_final_with_throttles_and_lost_answers_at_random(seed: int) -> None:
    """A connection that is given up still has requests that a throttled broker reads later."""
    random = Random(seed)
    expected: list[bytes] = []
    async with FakeKafka(node_count=2, seed=seed) as kafka, pool(kafka) as session:
        kafka.cluster.create_topic("t", partition_count=len(PARTITIONS))

        def trouble(_node: Node, request: Request) -> None:
            if request.api_key != API_KEYS["produce"] or random.random() < 0.7:
                return
            what: dict[str, Any] = random.choice(
                [
                    {"throttle_ms": random.randrange(12_000)},
                    {"throttle_ms": random.randrange(12_000), "swallows": True},
                    {"loses": random.choice(list(Loss))},
                    {"answer_seconds": random.uniform(0, 8)},
                    {"error": ErrorCode.not_enough_replicas},
                ]
            )
            kafka.faults.begin(api="produce", times=1, **what)

        kafka.on_request = trouble
        for number in range(3):
            while True:
                try:
                    async with RawProducer(session, IMPATIENT, transactional_id="t") as producer:
                        producer.begin()
                        values = send(producer, str(number))
                        await producer.commit()
                    break
                except TransientKafkaError:
                    continue
            expected += values
        for partition in PARTITIONS:
            assert committed(kafka, partition) == expected


@pytest.mark.parametrize("transactional_id", ["t", None], ids=["transaction", "idempotent"])
async def test_a_throttle_longer_than_a_minute_is_no_time_out_of_the_batches_behind_it(
    transactional_id: str | None,
) -> None:
    """Brokers throttle by bytes / rate, which a small quota makes minutes, and read nothing from the
    connection meanwhile, also after the minute for which the throttle is respected: another one is used."""
    async with (
        FakeKafka() as kafka,
        pool(kafka) as session,
        RawProducer(session, IMPATIENT, transactional_id=transactional_id) as producer,
    ):
        kafka.cluster.create_topic("t", partition_count=len(PARTITIONS))
        if transactional_id is not None:
            producer.begin()
        kafka.faults.begin(api="produce", times=1, throttle_ms=300_000)
        values = send(producer, "long")
        await producer.flush()
        if transactional_id is not None:
            await producer.commit()
        for partition in PARTITIONS:
            assert committed(kafka, partition) == values


async def test_a_throttle_is_no_time_out_of_a_producer_that_begins_meanwhile() -> None:
    """Its leader is asked whether something hangs, over the connection from which it reads nothing: as after
    a round that failed."""
    async with FakeKafka() as kafka, pool(kafka) as session:
        kafka.cluster.create_topic("t", partition_count=len(PARTITIONS))
        async with RawProducer(session, IMPATIENT, transactional_id="t") as producer:
            producer.begin()
            kafka.faults.begin(api="produce", times=1, throttle_ms=30_000)
            producer.send(PARTITIONS[0], a_batch(b"first"))
            await producer.commit()
        async with RawProducer(session, IMPATIENT, transactional_id="t") as producer:
            producer.begin()
            values = send(producer, "second")
            await producer.commit()
        assert committed(kafka, PARTITIONS[0]) == [b"first", *values]
