"""aiokafka on the fake broker."""

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.releases import KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, Release
from unit.testing.broker.broker_rig import over_sockets


async def _committed_values(release: Release) -> list[bytes]:
    """Of three transactions, of which one is aborted."""
    async with FakeKafka(node_count=2, release=release) as kafka:
        kafka.cluster.create_topic("orders")
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id="copier")
        await producer.start()
        try:
            for value, commits in ((b"one", True), (b"two", False), (b"three", True)):
                await producer.begin_transaction()
                await producer.send_and_wait("orders", value, partition=0)
                if commits:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, isolation_level="read_committed")
        await consumer.start()
        try:
            orders = TopicPartition("orders", 0)
            consumer.assign([orders])
            await consumer.seek_to_beginning(orders)
            return [(await consumer.getone()).value for _ in range(2)]
        finally:
            await consumer.stop()


@pytest.mark.parametrize("release", [KAFKA_2_8, KAFKA_3_9, KAFKA_4_3], ids=lambda each: each.name)
async def test_a_consumer_sees_committed_transactions(release: Release) -> None:
    assert await _committed_values(release) == [b"one", b"three"]


def test_the_same_over_sockets() -> None:
    assert over_sockets(_committed_values(KAFKA_4_3)) == [b"one", b"three"]
