"""The fetcher of whole batches on the wire: many leaders, long polls, moves, refusals."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from integration.fake_pair import kafka_pair as kafka_pair
from twinlog.batches import NewRecord, build_batch, decode_batch, read_batches
from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic, OffsetSpec
from twinlog.kafka.raw import (
    DataClientPool,
    FetchedPartition,
    FetchFailure,
    RawFetcher,
    RawProducer,
    list_offsets,
    prepare_to_fetch,
    prepare_to_produce,
)
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, retry_admin
from twinlog.testing.raw_copying import QUICK, open_fetcher, open_session


@asynccontextmanager
async def _session(
    cluster: BlockingCluster, *, timeout_seconds: float = 20.0
) -> AsyncIterator[DataClientPool]:
    async with open_session("A", cluster.client_properties(), timeout_seconds=timeout_seconds) as session:
        yield session


async def _create(
    cluster: BlockingCluster, topic: str, partition_count: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    async with open_cluster("A", cluster.client_properties()) as admin:
        kept = {"retention.ms": "-1", **(configs or {})}
        new = NewTopic(name=topic, partition_count=partition_count, replication_factor=-1, configs=kept)
        await make_topics(admin, new)


async def _write(session: DataClientPool, partition: TopicPartition, *values: bytes) -> None:
    async with RawProducer(session, QUICK) as producer:
        await producer.send(partition, build_batch([NewRecord(None, value, 1) for value in values]))


async def _begin_long_polls(fetcher: RawFetcher, positions: Mapping[TopicPartition, int]) -> None:
    """The bounds of all are known then, and nothing is to come but data."""
    unknown = set(positions)
    while unknown:
        unknown -= (await fetcher.poll(positions, max_wait_seconds=5)).keys()
    assert await fetcher.poll(positions, max_wait_seconds=0.2) == {}
    assert all(map(fetcher.is_asked, positions))


def _values(fetched: FetchedPartition | FetchFailure) -> list[bytes | None]:
    assert isinstance(fetched, FetchedPartition), fetched
    return [record.value for batch in read_batches(fetched.records) for record in decode_batch(batch)]


async def test_data_ends_a_long_poll_at_once(kafka_pair: KafkaPair, unique_topic: str) -> None:
    await _create(kafka_pair.a, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with (
        _session(kafka_pair.a, timeout_seconds=480) as session,
        RawProducer(session, QUICK) as producer,
        open_fetcher(session, {"fetch.max.wait.ms": "120000"}) as fetcher,
    ):
        await _begin_long_polls(fetcher, {partition: 0})
        producer.send(partition, build_batch([NewRecord(None, b"v", 1)]))
        answers = await fetcher.poll({partition: 0}, max_wait_seconds=60)
    assert _values(answers[partition]) == [b"v"]


async def test_quiet_partitions_answer_with_their_bounds(kafka_pair: KafkaPair, unique_topic: str) -> None:
    await _create(kafka_pair.a, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with _session(kafka_pair.a) as session, open_fetcher(session) as fetcher:
        await _write(session, partition, b"1", b"2", b"3")
        fetched = (await fetcher.poll({partition: 3}, max_wait_seconds=5))[partition]
    assert isinstance(fetched, FetchedPartition)
    assert len(fetched.records) == 0
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (3, 3, 0)


async def test_an_answer_for_another_position_is_thrown_away(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    await _create(kafka_pair.a, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with _session(kafka_pair.a) as session, open_fetcher(session) as fetcher:
        await _write(session, partition, b"0")
        await _write(session, partition, b"1")
        await fetcher.request({partition: 0})
        await eventually(lambda: partition in fetcher.answers.ready)
        assert await fetcher.poll({}, max_wait_seconds=0) == {}
        answers = await fetcher.poll({partition: 1}, max_wait_seconds=5)
    assert _values(answers[partition]) == [b"1"]


async def test_what_was_answered_while_nothing_was_wanted_is_thrown_away(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    """A partition that is paused for long continues with what its log holds then."""
    partition = TopicPartition(unique_topic, 0)
    await _create(kafka_pair.a, unique_topic)
    async with _session(kafka_pair.a) as session, open_fetcher(session) as fetcher:
        await _begin_long_polls(fetcher, {partition: 0})
        await _write(session, partition, b"gone", b"kept")
        await fetcher.pause(5)
        async with open_cluster("A", kafka_pair.a.client_properties()) as admin:
            await retry_admin(lambda: admin.delete_records({partition: 1}))
        await fetcher.pause(0)
        (answer,) = (await fetcher.poll({partition: 0}, max_wait_seconds=5)).values()
        assert isinstance(answer, FetchFailure)
        assert answer.error.reason == "OFFSET_OUT_OF_RANGE"


async def test_a_new_position_need_not_wait_for_the_long_poll_of_the_old_one(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    await _create(kafka_pair.a, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    async with (
        _session(kafka_pair.a, timeout_seconds=100) as session,
        open_fetcher(session, {"fetch.max.wait.ms": "25000"}) as fetcher,
    ):
        await _write(session, partition, b"0")
        await _begin_long_polls(fetcher, {partition: 1})
        answers = await fetcher.poll({partition: 0}, max_wait_seconds=5)
    assert _values(answers[partition]) == [b"0"]


async def test_one_bad_partition_does_not_stop_the_others(kafka_pair: KafkaPair, unique_topic: str) -> None:
    await _create(kafka_pair.a, unique_topic, partition_count=2)
    good, beyond = (TopicPartition(unique_topic, number) for number in range(2))
    absent = TopicPartition(unique_topic + "-absent", 0)
    no_such_partition = TopicPartition(unique_topic, 99)
    positions = {good: 0, beyond: 1000, absent: 0, no_such_partition: 0}
    answers: dict[TopicPartition, FetchedPartition | FetchFailure] = {}
    async with _session(kafka_pair.a) as session, open_fetcher(session) as fetcher:
        await _write(session, good, b"v")
        async with asyncio.timeout(60):
            while answers.keys() != positions.keys():
                left = {partition: positions[partition] for partition in positions.keys() - answers.keys()}
                answers |= await fetcher.poll(left, max_wait_seconds=1)
    assert _values(answers[good]) == [b"v"]
    reasons = {}
    for partition in (beyond, absent, no_such_partition):
        failure = answers[partition]
        assert isinstance(failure, FetchFailure)
        assert isinstance(failure.error, FatalKafkaError)
        assert failure.error.metadata["topic"] == partition.topic
        reasons[partition] = failure.error.reason
    assert reasons == {
        beyond: "OFFSET_OUT_OF_RANGE",
        absent: "TOPIC_UNKNOWN",
        no_such_partition: "TOPIC_UNKNOWN",
    }


async def test_fetch_sizes_are_kept_to_and_one_larger_batch_still_comes(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    await _create(kafka_pair.a, unique_topic)
    partition = TopicPartition(unique_topic, 0)
    sizes = []
    async with (
        _session(kafka_pair.a) as session,
        open_fetcher(session, {"max.partition.fetch.bytes": "10000"}) as fetcher,
    ):
        await _write(session, partition, bytes(50_000))
        for _ in range(5):
            await _write(session, partition, bytes(3_000))
        position = 0
        while position < 6:
            fetched = (await fetcher.poll({partition: position}, max_wait_seconds=5))[partition]
            count = len(_values(fetched))
            sizes.append(count)
            position += count
    assert sizes == [1, 3, 2]


@pytest.mark.parametrize("spec", OffsetSpec)
async def test_bounds_are_listed_per_partition(
    kafka_pair: KafkaPair, unique_topic: str, spec: OffsetSpec
) -> None:
    await _create(kafka_pair.a, unique_topic, partition_count=3)
    partitions = [TopicPartition(unique_topic, number) for number in range(3)]
    absent = TopicPartition(unique_topic + "-absent", 0)
    async with _session(kafka_pair.a) as session:
        for partition in partitions[:2]:
            await _write(session, partition, b"1", b"2", b"3", b"4")
        async with open_cluster("A", kafka_pair.a.client_properties()) as admin:
            await retry_admin(lambda: admin.delete_records({partitions[0]: 3}))
        async with RawProducer(session, QUICK, transactional_id=unique_topic) as producer:
            producer.begin()
            await producer.send(partitions[1], build_batch([NewRecord(None, b"open", 1)]))
            found = await list_offsets(session, spec, [*partitions, absent])
    expected = {
        OffsetSpec.EARLIEST: [3, 0, 0],
        OffsetSpec.LATEST: [4, 5, 0],
        OffsetSpec.LAST_STABLE: [4, 4, 0],
    }
    assert [found[partition] for partition in partitions] == expected[spec]
    refusal = found[absent]
    assert isinstance(refusal, KafkaError)
    assert refusal.reason == "TOPIC_UNKNOWN"


async def test_who_was_prepared_for_its_topics_opens_no_more_connections(
    kafka_pair: KafkaPair, unique_topic: str
) -> None:
    """Else the first records after the hand-over from one task to the next would wait for them."""
    partition = TopicPartition(unique_topic, 0)
    await _create(kafka_pair.a, unique_topic)
    async with _session(kafka_pair.a) as session, open_fetcher(session) as fetcher:
        await prepare_to_produce(session, [unique_topic])
        await prepare_to_fetch(session, [unique_topic])
        client = await session.client("look")
        leader = client.cluster.leader_for_partition(partition)
        connections = set(client._conns)
        assert {(leader, 1), (leader, 2)} <= connections
        async with RawProducer(session, QUICK) as producer:
            await producer.send(partition, build_batch([NewRecord(None, b"v", 1)]))
        answers = await fetcher.poll({partition: 0}, max_wait_seconds=30)
        assert _values(answers[partition]) == [b"v"]
        assert set(client._conns) == connections


async def test_leaving_ends_a_long_poll(kafka_pair: KafkaPair, unique_topic: str) -> None:
    await _create(kafka_pair.a, unique_topic)
    async with _session(kafka_pair.a, timeout_seconds=480) as session:
        async with open_fetcher(session, {"fetch.max.wait.ms": "120000"}) as fetcher:
            await _begin_long_polls(fetcher, {TopicPartition(unique_topic, 0): 0})
            client = await session.client("look")
            asked = [client._conns[place] for place in session.busy]
            assert [connection.connected() for connection in asked] == [True]
        # A connection whose answer was waited for would be used again.
        assert not asked[0].connected()


async def test_a_cluster_that_is_away_is_a_transient_error() -> None:
    properties = {"bootstrap.servers": "127.0.0.1:9"}
    async with open_session("A", properties) as session, open_fetcher(session) as fetcher:
        with pytest.raises(TransientKafkaError) as caught:
            await fetcher.poll({TopicPartition("t", 0): 0}, max_wait_seconds=1)
    assert caught.value.reason == "KAFKA_UNAVAILABLE"
