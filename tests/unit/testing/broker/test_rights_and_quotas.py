"""Rights, quotas and configs of the fake cluster, as clients meet them."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from twinlog.batches import DecodedRecord, read_batches
from twinlog.kafka.raw import FetchedPartition, FetchSizes
from twinlog.model import TopicPartition as TwinlogPartition
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.acls import Acl, Authorizer, Operation, Pattern, Permission, Resource
from twinlog.testing.broker.calls import KAFKA_3_9, KAFKA_4_3
from twinlog.testing.broker.configs import RefusedError, check, topic_configs
from twinlog.testing.broker.faults import Quotas
from twinlog.testing.raw_copying import open_fetcher
from twinlog.testing.source_batches import source_batch
from twinlog.testing.virtual_time import FakeClock
from unit.kafka.source_rig import source_rig


def allowed(operation: Operation, resource: Resource, name: str) -> Acl:
    return Acl(resource, name, Pattern.LITERAL, "User:alice", "*", operation, Permission.ALLOW)


def denied(operation: Operation, name: str) -> Acl:
    return Acl(Resource.TOPIC, name, Pattern.PREFIXED, "User:*", "*", operation, Permission.DENY)


async def test_who_may_read_may_not_write_nor_join() -> None:
    async with FakeKafka() as kafka:
        kafka.cluster.create_topic("orders")
        kafka.cluster.principals["alice"] = "User:alice"
        kafka.cluster.authorizer = authorizer = Authorizer()
        authorizer.add([allowed(Operation.READ, Resource.TOPIC, "orders")])
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, client_id="alice")
        await producer.start()
        try:
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait("orders", b"one")
            authorizer.add([allowed(Operation.WRITE, Resource.TOPIC, "orders")])
            await producer.send_and_wait("orders", b"one")
        finally:
            await producer.stop()
        reader = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, client_id="alice")
        await reader.start()
        try:
            partition = TopicPartition("orders", 0)
            reader.assign([partition])
            await reader.seek_to_beginning(partition)
            assert (await reader.getone()).value == b"one"
        finally:
            await reader.stop()
        member = AIOKafkaConsumer(
            "orders", bootstrap_servers=kafka.bootstrap, client_id="alice", group_id="readers"
        )
        try:
            with pytest.raises(GroupAuthorizationFailedError):
                await member.start()
        finally:
            await member.stop()


def test_a_denial_wins_and_a_right_to_write_is_one_to_describe() -> None:
    authorizer = Authorizer()
    authorizer.add([allowed(Operation.WRITE, Resource.TOPIC, "orders")])
    describes = "User:alice", "1.2.3.4", Operation.DESCRIBE, Resource.TOPIC, "orders"
    assert authorizer.allows(*describes)
    authorizer.add([denied(Operation.DESCRIBE, "ord")])
    assert not authorizer.allows(*describes)


def test_a_producer_waits_for_what_it_is_ahead_of_its_quota() -> None:
    clock = FakeClock()
    quotas = Quotas(clock)
    quotas.alter((("client-id", "copier"),), {"producer_byte_rate": 100.0})
    assert quotas.throttle_ms("producer_byte_rate", "alice", "copier", 1_000) == 0
    assert quotas.throttle_ms("producer_byte_rate", "alice", "copier", 200) == 2_000
    assert quotas.throttle_ms("producer_byte_rate", "alice", "other", 10_000) == 0
    assert quotas.throttle_ms("consumer_byte_rate", "alice", "copier", 10_000) == 0
    quotas.alter((("user", "alice"),), {"producer_byte_rate": 10_000.0})
    assert quotas.throttle_ms("producer_byte_rate", "alice", "copier", 1_000) == 0


async def test_a_fetch_beyond_a_quota_brings_nothing_and_counts_once_it_brings_something() -> None:
    place = TwinlogPartition("orders", 0)
    async with source_rig({place: 1}) as source, open_fetcher(source.session) as fetcher:
        source.kafka.cluster.quotas.alter((("client-id", None),), {"consumer_byte_rate": 1_000.0})
        source.append(place, [source_batch([DecodedRecord(0, 0, None, bytes(1_000), ())])] * 30)
        position = 0
        while position < 30:
            answers = await fetcher.poll(
                {place: position}, max_wait_seconds=60, sizes=FetchSizes(max_bytes=3_000)
            )
            for answer in answers.values():
                assert isinstance(answer, FetchedPartition)
                position += len(list(read_batches(answer.records)))
        assert 20 < asyncio.get_running_loop().time() < 40


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "keep"),
        ("preallocate", "maybe"),
        ("message.timestamp.type", "Never"),
        ("min.cleanable.dirty.ratio", "2"),
        ("max.message.bytes", str(1 << 31)),
        ("no.such.config", "1"),
        ("message.format.version", "3.0"),
    ],
)
def test_values_that_brokers_refuse(name: str, value: str) -> None:
    with pytest.raises(RefusedError):
        check(name, value, KAFKA_4_3)


def test_a_topic_inherits_from_the_broker_and_tells_synonyms() -> None:
    found = {each.name: each for each in topic_configs({}, {"max.message.bytes": "7"}, KAFKA_3_9)}
    assert [each.name for each in found["max.message.bytes"].found] == ["message.max.bytes"] * 2
    assert found["max.message.bytes"].found[0].value == "7"
    assert found["message.downconversion.enable"].found[0].value == "true"
