"""The producer of prepared batches on the wire: refusals."""

import asyncio
from collections.abc import Mapping

import pytest

from integration.fake_pair import kafka_pair as kafka_pair
from integration.kafka.raw_producer_rig import a_batch, committed_values, create_topic, open_target
from twinlog.batches import OutgoingBatch
from twinlog.errors import FatalKafkaError
from twinlog.kafka.raw import (
    ProducerSettings,
    RawProducer,
)
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, unique_name
from twinlog.testing.raw_copying import QUICK


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
    kafka_pair: KafkaPair,
    unique_topic: str,
    configs: Mapping[str, str] | None,
    batch: OutgoingBatch,
    reason: str,
    transactional: bool,
) -> None:
    good, bad = unique_name("good"), unique_name("bad")
    await create_topic(kafka_pair.b, good)
    if configs is not None:
        await create_topic(kafka_pair.b, bad, configs)
    fine, refused = TopicPartition(good, 0), TopicPartition(bad, 0)
    transactional_id = unique_topic if transactional else None
    async with open_target(kafka_pair.b) as session:
        async with RawProducer(session, QUICK, transactional_id=transactional_id) as producer:
            if transactional:
                producer.begin()
            producer.send(fine, a_batch(b"first try"))
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
            producer.send(fine, a_batch(b"second try"))
            await (producer.commit() if transactional else producer.flush())
    values = await committed_values(kafka_pair.b, fine)
    assert values in ([b"second try"], [b"first try", b"second try"][: 2 - transactional])


async def test_a_topic_that_appears_in_time_is_no_failure(kafka_pair: KafkaPair, unique_topic: str) -> None:
    partition = TopicPartition(unique_topic, 0)
    async with (
        open_target(kafka_pair.b) as session,
        RawProducer(session, ProducerSettings(unknown_topic_seconds=60)) as producer,
    ):
        ack = producer.send(partition, a_batch(b"v"))
        await asyncio.wait([ack], timeout=0.5)
        assert not ack.done()
        await create_topic(kafka_pair.b, unique_topic)
        assert await ack == 0
