"""Twinlog's own clients on the fake broker: what they write is what they read."""

import pytest

from twinlog.errors import KafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import ProducerSettings, RawProducer, list_offsets
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.releases import KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, Release
from unit.testing.broker.broker_rig import batch, fetched, over_sockets, pool, values

ORDERS = TopicPartition("orders", 0)
RELEASES = pytest.mark.parametrize("release", [KAFKA_2_8, KAFKA_3_9, KAFKA_4_3], ids=lambda each: each.name)


async def _written_and_read(release: Release) -> list[bytes | None]:
    async with FakeKafka(node_count=3, release=release) as kafka, pool(kafka) as session:
        kafka.cluster.create_topic("orders")
        async with RawProducer(session, ProducerSettings()) as producer:
            acks = [producer.send(ORDERS, batch(b"one", b"two")), producer.send(ORDERS, batch(b"three"))]
            await producer.flush()
        assert [ack.result() for ack in acks] == [0, 2]
        assert {log.end_offset for log in kafka.cluster.topics["orders"].partitions[0].logs.values()} == {3}
        return values(await fetched(session, ORDERS))


@RELEASES
async def test_an_idempotent_producer_writes_what_a_fetcher_reads(release: Release) -> None:
    assert await _written_and_read(release) == [b"one", b"two", b"three"]


def test_the_same_over_sockets() -> None:
    assert over_sockets(_written_and_read(KAFKA_4_3)) == [b"one", b"two", b"three"]


@RELEASES
async def test_a_transaction_is_readable_once_it_is_committed(release: Release) -> None:
    async with FakeKafka(release=release) as kafka, pool(kafka) as session:
        kafka.cluster.create_topic("orders")
        log = kafka.cluster.topics["orders"].partitions[0].log
        async with RawProducer(session, ProducerSettings(), transactional_id="copier") as producer:
            for number in range(3):
                producer.begin()
                producer.send(ORDERS, batch(b"%d" % number))
                await producer.flush()
                assert log.last_stable_offset == 2 * number
                await producer.commit()
        assert log.last_stable_offset == log.high_watermark == 6
        assert values(await fetched(session, ORDERS)) == [b"0", b"1", b"2"]


@RELEASES
async def test_the_next_owner_of_an_id_aborts_and_fences(release: Release) -> None:
    async with FakeKafka(release=release) as kafka, pool(kafka) as session:
        kafka.cluster.create_topic("orders")
        log = kafka.cluster.topics["orders"].partitions[0].log
        async with RawProducer(session, ProducerSettings(), transactional_id="copier") as old:
            old.begin()
            old.send(ORDERS, batch(b"lost"))
            await old.flush()
            async with RawProducer(session, ProducerSettings(), transactional_id="copier") as new:
                assert log.last_stable_offset == log.end_offset == 2
                new.begin()
                new.send(ORDERS, batch(b"kept"))
                await new.commit()
            with pytest.raises(KafkaError) as refused:
                await old.commit()
            assert refused.value.reason == "PRODUCER_FENCED"
        answer = await fetched(session, ORDERS)
        assert [(each.first_offset) for each in answer.aborted] == [0]


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4_3], ids=lambda each: each.name)
async def test_a_transaction_whose_producer_is_away_is_aborted_in_time(release: Release) -> None:
    async with FakeKafka(release=release) as kafka, pool(kafka) as session:
        kafka.cluster.create_topic("orders")
        settings = ProducerSettings(transaction_timeout_seconds=10)
        async with RawProducer(session, settings, transactional_id="copier") as producer:
            producer.begin()
            producer.send(ORDERS, batch(b"lost"))
            await producer.flush()
        before = await list_offsets(session, OffsetSpec.LAST_STABLE, [ORDERS])
        answer = await fetched(session, ORDERS)
        while not answer.aborted:
            answer = await fetched(session, ORDERS)
        after = await list_offsets(session, OffsetSpec.LAST_STABLE, [ORDERS])
        assert (before[ORDERS], after[ORDERS]) == (0, 2)
