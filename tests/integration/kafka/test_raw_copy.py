"""Batches copied from one broker to another, read back by another library."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from integration.fake_pair import kafka_pair as kafka_pair
from integration.kafka.raw_copy_rig import (
    admin_of,
    assert_same,
    copied,
    create,
    end_of,
    producer_of,
    read_back,
    settled,
    write_mixed,
)
from twinlog.batches import (
    Codec,
    CopyPolicy,
    Lane,
    LaneReason,
    NewRecord,
    TargetTopicLimits,
    build_batch,
    decode_batch,
    read_batches,
)
from twinlog.errors import KafkaError
from twinlog.kafka.raw import (
    FetchedPartition,
    FetchFailure,
    ProducerSettings,
    RawProducer,
)
from twinlog.model import TopicPartition
from twinlog.testing.brokers import (
    KafkaPair,
    eventually,
    retry_admin,
    unique_name,
)
from twinlog.testing.raw_copying import QUICK, RawPartitionCopy, open_fetcher, open_session


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("transactional", [True, False], ids=["exactly once", "idempotent"])
async def test_every_codec_goes_unopened(kafka_pair: KafkaPair, codec: Codec, transactional: bool) -> None:
    topic = unique_name(f"codec-{codec.name}")
    await create(kafka_pair.a, topic)
    await create(kafka_pair.b, topic)
    compression = None if codec is Codec.NONE else codec.name.lower()
    async with producer_of(kafka_pair.a, compression_type=compression, linger_ms=20) as producer:
        await write_mixed(producer, topic, 300)
    policy = CopyPolicy(coalesce_below_bytes=0)
    copy = await copied(kafka_pair, topic, policy=policy, transactional=transactional)
    assert copy.lanes == {(Lane.RAW, LaneReason.UNOPENED)}
    await assert_same(kafka_pair, topic, copy)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
async def test_the_target_topics_codec_is_met(kafka_pair: KafkaPair, codec: Codec) -> None:
    topic = unique_name(f"to-{codec.name}")
    name = "uncompressed" if codec is Codec.NONE else codec.name.lower()
    await create(kafka_pair.a, topic)
    await create(kafka_pair.b, topic, {"compression.type": name})
    other = "lz4" if codec is not Codec.LZ4 else "gzip"
    async with producer_of(kafka_pair.a, compression_type=other, linger_ms=20) as producer:
        await write_mixed(producer, topic, 300)
    limits = TargetTopicLimits(codec=codec)
    policy = CopyPolicy(target=limits, coalesce_below_bytes=0)
    copy = await copied(kafka_pair, topic, policy=policy)
    assert copy.lanes == {(Lane.RECODE, LaneReason.OTHER_CODEC)}
    await assert_same(kafka_pair, topic, copy)


@pytest.mark.parametrize("codec", [None, "snappy", "lz4", "zstd", "gzip"])
async def test_small_batches_are_packed_and_both_lanes_agree(
    kafka_pair: KafkaPair, codec: str | None
) -> None:
    topic = unique_name("tiny")
    await create(kafka_pair.a, topic)
    await create(kafka_pair.b, topic)
    async with producer_of(kafka_pair.a, compression_type=codec, max_batch_size=1) as producer:
        await write_mixed(producer, topic, 200)
    copy = await copied(kafka_pair, topic)
    assert (Lane.RECODE, LaneReason.SMALL_BATCHES) in copy.lanes
    await assert_same(kafka_pair, topic, copy)


async def test_aborted_transactions_are_not_copied_and_positions_pass_them(kafka_pair: KafkaPair) -> None:
    topic = unique_name("aborted")
    await create(kafka_pair.a, topic)
    await create(kafka_pair.b, topic)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(producer_of(kafka_pair.a, transactional_id=topic + "-x"))
        second = await stack.enter_async_context(producer_of(kafka_pair.a, transactional_id=topic + "-y"))
        plain = await stack.enter_async_context(producer_of(kafka_pair.a))
        for number in range(6):
            await first.begin_transaction()
            await second.begin_transaction()
            for producer, name in ((first, b"x"), (second, b"y"), (plain, b"p")):
                for _ in range(5):
                    await producer.send_and_wait(topic, name + b"%d" % number, partition=0)
            await (first.commit_transaction() if number % 2 else first.abort_transaction())
            await (second.abort_transaction() if number % 3 else second.commit_transaction())
    await settled(kafka_pair.a, topic)
    copy = await copied(kafka_pair, topic)
    assert copy.position == await end_of(kafka_pair.a, topic)
    await assert_same(kafka_pair, topic, copy)
    values = [record[3] for record in await read_back(kafka_pair.b, topic, await end_of(kafka_pair.b, topic))]
    assert len(values) == 6 * 5 + 3 * 5 + 2 * 5


async def test_an_open_transaction_is_not_copied_until_it_ends(kafka_pair: KafkaPair) -> None:
    topic = unique_name("open")
    await create(kafka_pair.a, topic)
    await create(kafka_pair.b, topic)
    async with producer_of(kafka_pair.a, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"not yet", partition=0)
        copy = await copied(kafka_pair, topic)
        assert copy.position == 0
        await producer.commit_transaction()
    await settled(kafka_pair.a, topic)
    copy = await copied(kafka_pair, topic)
    await assert_same(kafka_pair, topic, copy)
    assert len(copy.target_offsets) == 1


async def test_log_append_time_keeps_the_source_brokers_timestamps(kafka_pair: KafkaPair) -> None:
    topic = unique_name("append-time")
    await create(kafka_pair.a, topic, {"message.timestamp.type": "LogAppendTime"})
    await create(kafka_pair.b, topic)
    async with producer_of(kafka_pair.a, compression_type="zstd", linger_ms=20) as producer:
        await write_mixed(producer, topic, 100)
    copy = await copied(kafka_pair, topic, policy=CopyPolicy(coalesce_below_bytes=0))
    assert copy.lanes == {(Lane.RECODE, LaneReason.LOG_APPEND_TIME)}
    await assert_same(kafka_pair, topic, copy)


async def test_a_topic_that_was_created_again_is_neither_read_nor_written_in_place_of_the_earlier_one(
    kafka_pair: KafkaPair,
) -> None:
    """Its log has records at the position already when it is asked for. Transactions find it in their
    middle."""
    cluster, topic = kafka_pair.a, unique_name("created-again")
    partition = TopicPartition(topic, 0)
    await create(cluster, topic)

    async def write(count: int) -> None:
        async with producer_of(cluster) as producer:
            for number in range(count):
                await producer.send_and_wait(topic, b"%d" % number, partition=0)

    async def topic_id() -> str:
        async with admin_of(cluster) as admin:
            found = (await admin.describe_topics([topic]))[topic]
            assert not isinstance(found, KafkaError), found
            return found.topic_id

    await write(2)
    ids = {topic: await topic_id()}
    async with (
        open_session("A", cluster.client_properties()) as session,
        open_fetcher(session, topic_ids=ids) as fetcher,
    ):

        async def answer(position: int) -> FetchedPartition | FetchFailure | None:
            found = await fetcher.poll({partition: position}, max_wait_seconds=1)
            return found.get(partition)

        first = await eventually(lambda: answer(0))
        assert isinstance(first, FetchedPartition)
        assert first.last_stable_offset == 2
        async with admin_of(cluster) as admin:
            await retry_admin(lambda: admin.delete_topics([topic]))
        await create(cluster, topic)
        await write(5)

        async def refused() -> bool:
            found = await answer(2)
            assert not isinstance(found, FetchedPartition) or not found.records, "another topic's records"
            return isinstance(found, FetchFailure) and found.error.reason == "TOPIC_CHANGED"

        await eventually(refused)
        settings = replace(QUICK, topic_ids=ids)
        record = build_batch([NewRecord(None, b"5", 0)])
        for transactional_id in (None, unique_name("writer")):
            async with RawProducer(session, settings, transactional_id=transactional_id) as producer:
                if transactional_id is not None:
                    producer.begin()
                with pytest.raises(KafkaError) as changed:
                    await producer.send(partition, record)
                assert (changed.value.reason, {*producer.partition_failures}) == (
                    "TOPIC_CHANGED",
                    {partition},
                )
        ids[topic] = await topic_id()
        async with RawProducer(session, settings, transactional_id=unique_name("writer")) as producer:
            producer.begin()
            assert await producer.send(partition, record) == 5

        async def is_read() -> bool:
            found = await answer(2)
            return isinstance(found, FetchedPartition) and found.last_stable_offset == 5  # Nobody commits.

        await eventually(is_read)


async def test_a_copy_begins_inside_a_batch(kafka_pair: KafkaPair) -> None:
    topic = unique_name("inside")
    await create(kafka_pair.a, topic)
    await create(kafka_pair.b, topic)
    async with producer_of(kafka_pair.a, compression_type="gzip", linger_ms=100) as producer:
        await write_mixed(producer, topic, 100)
    copy = await copied(kafka_pair, topic, from_offset=37)
    source = [record for record in await read_back(kafka_pair.a, topic, 100) if record[0] >= 37]
    target = await read_back(kafka_pair.b, topic, await end_of(kafka_pair.b, topic))
    assert [record[1:] for record in target] == [record[1:] for record in source]
    assert copy.target_offsets[37] == 0


async def test_a_batch_above_the_targets_limit_is_split_and_a_record_above_it_named(
    kafka_pair: KafkaPair,
) -> None:
    topic = unique_name("limit")
    await create(kafka_pair.a, topic)
    await create(kafka_pair.b, topic, {"max.message.bytes": "20000"})
    async with producer_of(kafka_pair.a, linger_ms=50, max_batch_size=900_000) as producer:
        await asyncio.wait([await producer.send(topic, bytes(1000), partition=0) for _ in range(100)])
        await producer.send_and_wait(topic, bytes(30_000), partition=0)
        await producer.send_and_wait(topic, b"after it", partition=0)
    policy = CopyPolicy(target=TargetTopicLimits(max_message_bytes=20_000))
    copy = await copied(kafka_pair, topic, policy=policy)
    assert copy.fault_reason == "RECORD_TOO_LARGE"
    assert copy.position == 100
    assert sorted(copy.target_offsets) == list(range(100))


async def test_headers_that_are_not_utf8_and_odd_timestamps_survive(kafka_pair: KafkaPair) -> None:
    """Written by our own producer, as aiokafka's cannot."""
    topic = unique_name("odd")
    any_timestamp = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    await create(kafka_pair.a, topic, any_timestamp)
    await create(kafka_pair.b, topic, any_timestamp)
    records = [
        NewRecord(b"k", b"v", -1, ((b"\xff\xfe", b"\x00"), (b"", None))),
        NewRecord(None, None, 4_000_000_000_000_000),
        NewRecord(b"", b"", 0, tuple((b"h%d" % i, b"x") for i in range(1000))),
    ]
    partition = TopicPartition(topic, 0)
    async with (
        open_session("A", kafka_pair.a.client_properties()) as source,
        open_session("B", kafka_pair.b.client_properties()) as target,
    ):
        async with RawProducer(source, ProducerSettings()) as producer:
            producer.send(partition, build_batch(records, codec=Codec.SNAPPY))
            producer.send(partition, build_batch(records))
            await producer.flush()
        for policy in (CopyPolicy(coalesce_below_bytes=0), CopyPolicy()):
            copy = RawPartitionCopy(partition, partition, policy)
            async with open_fetcher(source) as fetcher, RawProducer(target, QUICK) as sink:
                await copy.copy(fetcher, sink, 6)
        copies = []
        async with open_fetcher(target) as fetcher:
            fetched = (await fetcher.poll({partition: 0}, max_wait_seconds=5))[partition]
            assert isinstance(fetched, FetchedPartition)
            for batch in read_batches(fetched.records):
                copies += decode_batch(batch)
    expected = [(record.timestamp_ms, record.key, record.value, record.headers) for record in records]
    assert [record[1:] for record in copies] == expected * 4
