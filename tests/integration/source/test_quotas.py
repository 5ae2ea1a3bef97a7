"""Quotas of real brokers: a client of ours that exceeds one waits, and nothing fails."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from twinlog.batches import NewRecord, build_batch, decode_batch, read_batches
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.clients import fetch_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic, OffsetSpec, QuotaEntity
from twinlog.kafka.raw import (
    BatchReader,
    DataClientPool,
    FetchedPartition,
    RawProducer,
    TransactionRotation,
    list_offsets,
)
from twinlog.kafka.raw.fetch.wire import FETCH
from twinlog.kafka.reader import KafkaLogReader
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, retry_admin
from twinlog.testing.raw_copying import QUICK, open_fetcher, open_session

RATE = 150_000
"""Bytes a second. Brokers allow ten seconds' worth at once."""
RECORD_BYTES = 50_000
RECORDS = 40


@asynccontextmanager
async def limited_session(
    cluster: BlockingCluster, client_id: str, topic: str, partition_count: int = 1, **quota: float
) -> AsyncIterator[DataClientPool]:
    """A session whose client id has these quotas, with a topic made for it."""
    properties = {**cluster.client_properties(), "client.id": client_id}
    entity = QuotaEntity((("client-id", client_id),))
    async with open_cluster("A", cluster.client_properties()) as admin:
        await make_topics(
            admin,
            NewTopic(
                name=topic,
                partition_count=partition_count,
                replication_factor=-1,
                configs={"retention.ms": "-1"},
            ),
        )
        await retry_admin(lambda: admin.alter_client_quotas({entity: dict(quota)}))

        async def are_in_force() -> bool:
            return (await admin.describe_client_quotas()).get(entity) == quota

        await eventually(are_in_force)
        async with open_session("A", properties) as session:
            yield session


async def fill(cluster: BlockingCluster, partition: TopicPartition) -> None:
    async with (
        open_session("A", cluster.client_properties()) as session,
        RawProducer(session, QUICK) as producer,
    ):
        for number in range(RECORDS):
            producer.send(partition, build_batch([NewRecord(None, bytes([number]) * RECORD_BYTES, 1)]))
        await producer.flush()


async def test_every_reader_waits_out_a_consumer_byte_rate(kafka_pair: KafkaPair, unique_topic: str) -> None:
    partition = TopicPartition(unique_topic, 0)
    async with limited_session(kafka_pair.a, unique_topic, unique_topic, consumer_byte_rate=RATE) as session:
        await fill(kafka_pair.a, partition)
        position, throttles = 0, 0
        async with open_fetcher(session) as fetcher:
            while position < RECORDS:
                answer = (await fetcher.poll({partition: position}, max_wait_seconds=1)).get(partition)
                leader = await session.leader(partition, "look")
                throttles += session.throttled_seconds(leader, FETCH) > 0
                if answer is not None:
                    assert isinstance(answer, FetchedPartition), answer
                    position += sum(len(decode_batch(batch)) for batch in read_batches(answer.records))
        assert position == RECORDS
        assert throttles > 0
        batches = await BatchReader(session, read_committed=True).fetch(partition, 0, max_bytes=1_000_000)
        assert batches.batches
        options = fetch_options({})
        reader = KafkaLogReader(session, options, read_committed=True, timeout_seconds=20)
        fetched = await reader.fetch(partition, 0, max_wait_seconds=0, max_bytes=1_000_000)
        assert fetched.records


async def test_a_producer_waits_out_a_producer_byte_rate_that_is_longer_than_its_time_out(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    partitions = [TopicPartition(unique_topic, number) for number in range(3)]
    settings = replace(QUICK, delivery_timeout_seconds=6.0, request_timeout_seconds=6.0)
    async with (
        limited_session(
            kafka_pair.a, unique_topic, unique_topic, partition_count=3, producer_byte_rate=RATE
        ) as session,
        RawProducer(session, settings, transactional_id=unique_topic) as producer,
    ):
        throttles = []
        is_known = False
        for _ in range(4):
            producer.begin()
            sent = [
                producer.send(partition, build_batch([NewRecord(None, bytes(RECORD_BYTES), number)]))
                for number in range(8)
                for partition in partitions
            ]
            await producer.commit()
            assert all(acknowledged.result() >= 0 for acknowledged in sent)
            client = await session.client("look")
            throttles += [connection.throttled_seconds for connection in client._conns.values()]
            is_known |= session.is_throttled
    assert max(throttles) > 0
    assert is_known, "a task says by it what it waits for"


async def test_topics_are_created_under_a_controller_mutation_rate(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    """A controller that is asked for too much says so, or takes its time: no refusal is final."""
    entity = QuotaEntity((("client-id", unique_topic),))
    topics = [
        NewTopic(name=f"{unique_topic}-{number}", partition_count=10, replication_factor=1, configs={})
        for number in range(6)
    ]
    async with (
        open_cluster("A", kafka_pair.a.client_properties()) as admin,
        open_cluster("A", {**kafka_pair.a.client_properties(), "client.id": unique_topic}) as limited,
    ):
        await retry_admin(lambda: admin.alter_client_quotas({entity: {"controller_mutation_rate": 2.0}}))

        async def are_in_force() -> bool:
            return entity in await admin.describe_client_quotas()

        await eventually(are_in_force)
        for topic in topics:
            await retry_admin(lambda topic=topic: limited.create_topics([topic]))  # type: ignore[misc]
        await retry_admin(lambda: limited.create_partitions({topics[0].name: 20}))
        described = await admin.describe_topics([topic.name for topic in topics])
        assert not [answer for answer in described.values() if isinstance(answer, KafkaError)]
        await retry_admin(lambda: limited.delete_topics([topic.name for topic in topics]))


MANY_REQUESTS = 5_000
"""More than any broker answers in a few thousandths of its threads' time."""


async def test_every_kind_of_request_waits_out_a_request_percentage(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    partition = TopicPartition(unique_topic, 0)
    async with limited_session(kafka_pair.a, unique_topic, unique_topic, request_percentage=0.3) as session:
        async with TransactionRotation(
            session, (f"{unique_topic}-0", f"{unique_topic}-1"), QUICK
        ) as rotation:
            for number in range(5):
                producer = rotation.begin()
                producer.send(
                    partition, build_batch([NewRecord(None, bytes([number]), SystemClock().now_ms())])
                )
                await producer.commit()

        for _ in range(MANY_REQUESTS):  # how many it takes depends on how fast the broker is
            if session.throttled_until:
                break
            await list_offsets(session, OffsetSpec.LATEST, [partition])

        async def are_over() -> bool:
            return (await list_offsets(session, OffsetSpec.LAST_STABLE, [partition]))[partition] == 10

        await eventually(are_over)
        async with open_fetcher(session) as fetcher:
            found = 0
            while not found:
                answer = (await fetcher.poll({partition: 0}, max_wait_seconds=5)).get(partition)
                if answer is not None:
                    assert isinstance(answer, FetchedPartition), answer
                    found = len(answer.records)
        reader = KafkaLogReader(session, fetch_options({}), read_committed=True, timeout_seconds=20)
        fetched = await reader.fetch(partition, 0, max_wait_seconds=1)
        assert session.throttled_until, "the quota was never exceeded"
        assert [record.value for record in fetched.records] == [bytes([number]) for number in range(5)]
