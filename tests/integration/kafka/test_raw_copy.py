"""Batches copied from one real broker to another, read back by another library."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition

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
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.kafka.raw import (
    FetchedPartition,
    FetchFailure,
    ProducerSettings,
    RawProducer,
    TransactionRotation,
    list_offsets,
)
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import (
    PATIENCE_SECONDS,
    KafkaPair,
    eventually,
    make_topics,
    retry_admin,
    unique_name,
)
from twinlog.testing.raw_copying import QUICK, PartitionCopy, open_fetcher, open_session

_NOON_MS = 1_700_000_000_000


@asynccontextmanager
async def _admin(cluster: BlockingCluster) -> AsyncIterator[KafkaCluster]:
    async with open_cluster("X", cluster.client_properties()) as admin:
        yield admin


async def _create(cluster: BlockingCluster, topic: str, configs: Mapping[str, str] | None = None) -> None:
    async with _admin(cluster) as admin:
        kept = {"retention.ms": "-1", **(configs or {})}
        new = NewTopic(name=topic, partition_count=1, replication_factor=1, configs=kept)
        await make_topics(admin, new)


@asynccontextmanager
async def _writer(cluster: BlockingCluster, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def _read(
    cluster: BlockingCluster, topic: str, stop_offset: int, isolation_level: str = "read_committed"
) -> list[tuple[Any, ...]]:
    """Every record below `stop_offset`, as aiokafka's consumer sees it."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        partition = AioTopicPartition(topic, 0)
        consumer.assign([partition])
        records: list[tuple[Any, ...]] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await consumer.position(partition) < stop_offset:
                for got in (await consumer.getmany(timeout_ms=200)).values():
                    records += [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in got]
        return records
    finally:
        await consumer.stop()


async def _end(cluster: BlockingCluster, topic: str, spec: OffsetSpec = OffsetSpec.LATEST) -> int:
    async with open_session("X", cluster.client_properties()) as session:
        offsets = await list_offsets(session, spec, [TopicPartition(topic, 0)])
        end = offsets[TopicPartition(topic, 0)]
        assert isinstance(end, int)
        return end


async def _settled(cluster: BlockingCluster, topic: str) -> None:
    """A transaction's end is acknowledged before its markers are written: wait for them."""

    async def stable() -> bool:
        return await _end(cluster, topic, OffsetSpec.LAST_STABLE) == await _end(cluster, topic)

    await eventually(stable)


async def _copy(
    pair: KafkaPair,
    topic: str,
    *,
    policy: CopyPolicy | None = None,
    transactional: bool = True,
    from_offset: int = 0,
    fetch: Mapping[str, str] | None = None,
) -> PartitionCopy:
    """Copy `topic` of A to the topic of the same name on B, up to its stable end."""
    stop_offset = await _end(pair.a, topic, OffsetSpec.LAST_STABLE)
    copy = PartitionCopy(TopicPartition(topic, 0), TopicPartition(topic, 0), policy or CopyPolicy())
    copy.position = from_offset
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_session("A", pair.a.client_properties()))
        target = await stack.enter_async_context(open_session("B", pair.b.client_properties()))
        fetcher = await stack.enter_async_context(open_fetcher(source, fetch))
        ids = (f"{topic}-0", f"{topic}-1")
        sink: RawProducer | TransactionRotation
        if transactional:
            sink = await stack.enter_async_context(TransactionRotation(target, ids, QUICK))
        else:
            sink = await stack.enter_async_context(RawProducer(target, QUICK))
        await copy.copy(fetcher, sink, stop_offset)
    return copy


async def _assert_same(pair: KafkaPair, topic: str, copy: PartitionCopy) -> None:
    """The target holds the source's visible records, at the offsets the map says."""
    source = await _read(pair.a, topic, await _end(pair.a, topic, OffsetSpec.LAST_STABLE))
    target = await _read(pair.b, topic, await _end(pair.b, topic))
    assert [record[1:] for record in target] == [record[1:] for record in source]
    assert copy.target_offsets == {s[0]: t[0] for s, t in zip(source, target, strict=True)}


async def _write_mixed(producer: AIOKafkaProducer, topic: str, count: int) -> None:
    headers = [("trace", b"\x00\xff"), ("empty", b""), ("null", None)]
    acks = []
    for number in range(count):
        key, value = [(b"k", b"v" * number), (None, b""), (b"", None), (b"only key", None)][number % 4]
        acks.append(
            await producer.send(
                topic,
                key=key,
                value=value,
                partition=0,
                timestamp_ms=_NOON_MS + (number * 7919) % 1000,
                headers=headers if number % 3 == 0 else None,
            )
        )
    await asyncio.wait(acks)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("transactional", [True, False], ids=["exactly once", "idempotent"])
async def test_every_codec_goes_unopened(kafka_pair: KafkaPair, codec: Codec, transactional: bool) -> None:
    topic = unique_name(f"codec-{codec.name}")
    await _create(kafka_pair.a, topic)
    await _create(kafka_pair.b, topic)
    compression = None if codec is Codec.NONE else codec.name.lower()
    async with _writer(kafka_pair.a, compression_type=compression, linger_ms=20) as producer:
        await _write_mixed(producer, topic, 300)
    policy = CopyPolicy(coalesce_below_bytes=0)
    copy = await _copy(kafka_pair, topic, policy=policy, transactional=transactional)
    assert copy.lanes == {(Lane.RAW, LaneReason.UNOPENED)}
    await _assert_same(kafka_pair, topic, copy)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
async def test_the_target_topics_codec_is_met(kafka_pair: KafkaPair, codec: Codec) -> None:
    topic = unique_name(f"to-{codec.name}")
    name = "uncompressed" if codec is Codec.NONE else codec.name.lower()
    await _create(kafka_pair.a, topic)
    await _create(kafka_pair.b, topic, {"compression.type": name})
    other = "lz4" if codec is not Codec.LZ4 else "gzip"
    async with _writer(kafka_pair.a, compression_type=other, linger_ms=20) as producer:
        await _write_mixed(producer, topic, 300)
    limits = TargetTopicLimits(codec=codec)
    policy = CopyPolicy(target=limits, coalesce_below_bytes=0)
    copy = await _copy(kafka_pair, topic, policy=policy)
    assert copy.lanes == {(Lane.RECODE, LaneReason.OTHER_CODEC)}
    await _assert_same(kafka_pair, topic, copy)


@pytest.mark.parametrize("codec", [None, "snappy", "lz4", "zstd", "gzip"])
async def test_small_batches_are_packed_and_both_lanes_agree(
    kafka_pair: KafkaPair, codec: str | None
) -> None:
    topic = unique_name("tiny")
    await _create(kafka_pair.a, topic)
    await _create(kafka_pair.b, topic)
    async with _writer(kafka_pair.a, compression_type=codec, max_batch_size=1) as producer:
        await _write_mixed(producer, topic, 200)
    copy = await _copy(kafka_pair, topic)
    assert (Lane.RECODE, LaneReason.SMALL_BATCHES) in copy.lanes
    await _assert_same(kafka_pair, topic, copy)


async def test_aborted_transactions_are_not_copied_and_positions_pass_them(kafka_pair: KafkaPair) -> None:
    topic = unique_name("aborted")
    await _create(kafka_pair.a, topic)
    await _create(kafka_pair.b, topic)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(_writer(kafka_pair.a, transactional_id=topic + "-x"))
        second = await stack.enter_async_context(_writer(kafka_pair.a, transactional_id=topic + "-y"))
        plain = await stack.enter_async_context(_writer(kafka_pair.a))
        for number in range(6):
            await first.begin_transaction()
            await second.begin_transaction()
            for producer, name in ((first, b"x"), (second, b"y"), (plain, b"p")):
                for _ in range(5):
                    await producer.send_and_wait(topic, name + b"%d" % number, partition=0)
            await (first.commit_transaction() if number % 2 else first.abort_transaction())
            await (second.abort_transaction() if number % 3 else second.commit_transaction())
    await _settled(kafka_pair.a, topic)
    copy = await _copy(kafka_pair, topic)
    assert copy.position == await _end(kafka_pair.a, topic)
    await _assert_same(kafka_pair, topic, copy)
    values = [record[3] for record in await _read(kafka_pair.b, topic, await _end(kafka_pair.b, topic))]
    assert len(values) == 6 * 5 + 3 * 5 + 2 * 5


async def test_an_open_transaction_is_not_copied_until_it_ends(kafka_pair: KafkaPair) -> None:
    topic = unique_name("open")
    await _create(kafka_pair.a, topic)
    await _create(kafka_pair.b, topic)
    async with _writer(kafka_pair.a, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"not yet", partition=0)
        copy = await _copy(kafka_pair, topic)
        assert copy.position == 0
        await producer.commit_transaction()
    await _settled(kafka_pair.a, topic)
    copy = await _copy(kafka_pair, topic)
    await _assert_same(kafka_pair, topic, copy)
    assert len(copy.target_offsets) == 1


async def test_log_append_time_keeps_the_source_brokers_timestamps(kafka_pair: KafkaPair) -> None:
    topic = unique_name("append-time")
    await _create(kafka_pair.a, topic, {"message.timestamp.type": "LogAppendTime"})
    await _create(kafka_pair.b, topic)
    async with _writer(kafka_pair.a, compression_type="zstd", linger_ms=20) as producer:
        await _write_mixed(producer, topic, 100)
    copy = await _copy(kafka_pair, topic, policy=CopyPolicy(coalesce_below_bytes=0))
    assert copy.lanes == {(Lane.RECODE, LaneReason.LOG_APPEND_TIME)}
    await _assert_same(kafka_pair, topic, copy)


async def test_compacted_holes_are_mapped_exactly(kafka_pair: KafkaPair) -> None:
    topic = unique_name("compacted")
    compacting = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "100",
        "min.compaction.lag.ms": "0",
        "max.compaction.lag.ms": "1000",
    }
    await _create(kafka_pair.a, topic, compacting)
    await _create(kafka_pair.b, topic)
    async with _writer(kafka_pair.a, compression_type="lz4", linger_ms=50) as producer:
        acks = [
            await producer.send(
                topic, key=b"%d" % (number % 40 or number), value=b"v%d" % number, partition=0
            )
            for number in range(400)
        ]
        await asyncio.wait(acks)

        async def compacted() -> bool:
            await producer.send_and_wait(topic, key=b"clock", value=b"tick", partition=0)
            return len(await _read(kafka_pair.a, topic, await _end(kafka_pair.a, topic))) < 300

        await eventually(compacted)
    copy = await _copy(kafka_pair, topic)
    assert not copy.lanes.isdisjoint(
        {(Lane.RECODE, LaneReason.COMPACTION_HOLES), (Lane.RECODE, LaneReason.SMALL_BATCHES)}
    )
    await _assert_same(kafka_pair, topic, copy)


async def test_a_topic_that_was_created_again_is_not_read_in_place_of_the_one_that_was_asked_for(
    kafka_pair: KafkaPair,
) -> None:
    """Its log has records at the position already when it is asked for."""
    cluster, topic = kafka_pair.a, unique_name("created-again")
    partition = TopicPartition(topic, 0)
    await _create(cluster, topic)

    async def write(count: int) -> None:
        async with _writer(cluster) as producer:
            for number in range(count):
                await producer.send_and_wait(topic, b"%d" % number, partition=0)

    async def topic_id() -> str:
        async with _admin(cluster) as admin:
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
        async with _admin(cluster) as admin:
            await retry_admin(lambda: admin.delete_topics([topic]))
        await _create(cluster, topic)
        await write(5)

        async def refused() -> bool:
            found = await answer(2)
            assert not isinstance(found, FetchedPartition) or not found.records, "another topic's records"
            return isinstance(found, FetchFailure) and found.error.reason == "TOPIC_CHANGED"

        await eventually(refused)
        ids[topic] = await topic_id()

        async def is_read() -> bool:
            found = await answer(2)
            return isinstance(found, FetchedPartition) and found.last_stable_offset == 5

        await eventually(is_read)


async def test_a_copy_begins_inside_a_batch(kafka_pair: KafkaPair) -> None:
    topic = unique_name("inside")
    await _create(kafka_pair.a, topic)
    await _create(kafka_pair.b, topic)
    async with _writer(kafka_pair.a, compression_type="gzip", linger_ms=100) as producer:
        await _write_mixed(producer, topic, 100)
    copy = await _copy(kafka_pair, topic, from_offset=37)
    source = [record for record in await _read(kafka_pair.a, topic, 100) if record[0] >= 37]
    target = await _read(kafka_pair.b, topic, await _end(kafka_pair.b, topic))
    assert [record[1:] for record in target] == [record[1:] for record in source]
    assert copy.target_offsets[37] == 0


async def test_a_batch_above_the_targets_limit_is_split_and_a_record_above_it_named(
    kafka_pair: KafkaPair,
) -> None:
    topic = unique_name("limit")
    await _create(kafka_pair.a, topic)
    await _create(kafka_pair.b, topic, {"max.message.bytes": "20000"})
    async with _writer(kafka_pair.a, linger_ms=50, max_batch_size=900_000) as producer:
        await asyncio.wait([await producer.send(topic, bytes(1000), partition=0) for _ in range(100)])
        await producer.send_and_wait(topic, bytes(30_000), partition=0)
        await producer.send_and_wait(topic, b"after it", partition=0)
    policy = CopyPolicy(target=TargetTopicLimits(max_message_bytes=20_000))
    copy = await _copy(kafka_pair, topic, policy=policy)
    assert copy.fault_reason == "RECORD_TOO_LARGE"
    assert copy.position == 100
    assert sorted(copy.target_offsets) == list(range(100))


async def test_headers_that_are_not_utf8_and_odd_timestamps_survive(kafka_pair: KafkaPair) -> None:
    """Written by our own producer, as aiokafka's cannot."""
    topic = unique_name("odd")
    any_timestamp = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    await _create(kafka_pair.a, topic, any_timestamp)
    await _create(kafka_pair.b, topic, any_timestamp)
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
            copy = PartitionCopy(partition, partition, policy)
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
