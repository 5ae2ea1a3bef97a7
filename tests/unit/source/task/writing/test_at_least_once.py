"""Without transactions a slot keeps its producer id: each id is stored for ever."""

import pytest
from kio.schema.errors import ErrorCode

from twinlog.errors import KafkaError
from twinlog.kafka.raw import ProducerSettings
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog_source.task.writing.transport import Rounds
from unit.testing.broker.broker_rig import batch, fetched, pool, values

ORDERS = TopicPartition("orders", 0)


async def _round(transport: Rounds, *written: bytes) -> None:
    transaction = transport.begin()
    transaction.send(ORDERS, batch(*written))
    await transaction.store({})
    await transaction.commit()


def _identities(kafka: FakeKafka) -> list[tuple[int, int]]:
    headers = [each.header for each in kafka.cluster.topics["orders"].partitions[0].log.batches]
    return [(header.producer_id, header.producer_epoch) for header in headers]


async def test_failed_rounds_bring_no_producer_id() -> None:
    admitted: list[int] = []

    async def admit(producer_id: int, _transactional_id: str) -> None:
        admitted.append(producer_id)

    async with FakeKafka(node_count=3) as kafka, pool(kafka) as session:
        kafka.cluster.create_topic("orders")
        transport = Rounds(session, (), ProducerSettings(admit=admit))
        for number in range(5):
            async with transport:
                await _round(transport, b"%d" % number)
                with (
                    kafka.faults.during(api="produce", error=ErrorCode.message_too_large),
                    pytest.raises(KafkaError),
                ):
                    await _round(transport, b"refused")
        assert _identities(kafka) == [(admitted[0], epoch) for epoch in range(5)]
        assert len(admitted) == 1
        assert values(await fetched(session, ORDERS)) == [b"0", b"1", b"2", b"3", b"4"]


async def test_an_id_that_brokers_refuse_is_not_used_again() -> None:
    async with FakeKafka() as kafka, pool(kafka) as session:
        kafka.cluster.create_topic("orders")
        transport = Rounds(session, (), ProducerSettings())
        async with transport:
            await _round(transport, b"one")
            with (
                kafka.faults.during(api="produce", error=ErrorCode.invalid_producer_epoch),
                pytest.raises(KafkaError),
            ):
                await _round(transport, b"refused")
        async with transport:
            await _round(transport, b"two")
        assert len({producer_id for producer_id, _ in _identities(kafka)}) == 2
