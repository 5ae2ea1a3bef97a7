"""The client library on real clusters: local and remote as one, and what Java's own MirrorClient says."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest

from integration.migration.java_mirror_client import java_answers
from twinlog.client import CommittedOffset, LogicalConsumer, LogicalRecord, MirrorClient, remote_cluster_utils
from twinlog.errors import KafkaError, NotFoundError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name
from twinlog.wire import Checkpoint, encode_checkpoint

TIMEOUT_SECONDS = 60


async def make(cluster: KafkaCluster, *topics: str, partitions: int = 1) -> None:
    news = [NewTopic(name=topic, partition_count=partitions, replication_factor=1) for topic in topics]
    await retry_admin(lambda: cluster.create_topics(news))


async def append(cluster: KafkaCluster, topic: str, *values: bytes, partition: int = 0) -> None:
    async with cluster.writer() as writer:
        for value in values:
            where = TopicPartition(topic, partition)
            await writer.append(where, key=None, value=value, headers=(("h", b"1"),))


async def collect(consumer: LogicalConsumer, count: int) -> list[LogicalRecord]:
    found: list[LogicalRecord] = []

    async def enough() -> bool:
        found.extend(await consumer.poll(max_wait_seconds=0.5))
        await consumer.commit()
        return len(found) >= count

    await eventually(enough)
    return found


async def test_a_topic_and_its_copies_are_read_as_one(kafka_pair: KafkaPair) -> None:
    topic, group = unique_name("orders"), unique_name("app")
    copy, later = f"A.{topic}", f"D.C.{topic}"
    properties = kafka_pair.b.client_properties()
    async with open_cluster("b", properties) as cluster:
        await make(cluster, topic, copy, f"C.{copy}", f"{topic}-archive")
        await append(cluster, topic, b"local")
        await append(cluster, copy, b"remote 1", b"remote 2")
        await append(cluster, f"C.{copy}", b"remote 1", b"remote 2")
        await append(cluster, f"{topic}-archive", b"another topic")
        async with LogicalConsumer(properties, group=group, topic=topic, refresh_seconds=0.2) as consumer:
            first = await collect(consumer, 3)
            assert sorted((record.origin or "", record.value) for record in first) == [
                ("", b"local"),
                ("A", b"remote 1"),
                ("A", b"remote 2"),
            ]
            assert {record.topic for record in first} == {topic}
            assert {record.headers for record in first} == {(("h", b"1"),)}
            await make(cluster, later)
            await append(cluster, later, b"two hops")
            (joined,) = await collect(consumer, 1)
            assert (joined.origin, joined.value) == ("C", b"two hops")
            assert consumer.topics == {topic, copy, later}
        await append(cluster, copy, b"remote 3")
        async with LogicalConsumer(properties, group=group, topic=topic) as consumer:
            (again,) = await collect(consumer, 1)
            assert again.value == b"remote 3"


async def test_what_was_not_committed_comes_again(kafka_pair: KafkaPair) -> None:
    topic, group = unique_name("orders"), unique_name("app")
    properties = kafka_pair.b.client_properties()
    async with open_cluster("b", properties) as cluster:
        await make(cluster, topic)
        await append(cluster, topic, b"1", b"2")
    async with LogicalConsumer(properties, group=group, topic=topic) as consumer:
        first = await eventually(lambda: consumer.poll(max_wait_seconds=0.5, max_records=1))
        await consumer.commit()
        second = await eventually(lambda: consumer.poll(max_wait_seconds=0.5, max_records=1))
    assert [record.value for record in (*first, *second)] == [b"1", b"2"]
    async with LogicalConsumer(properties, group=group, topic=topic) as consumer:
        assert [record.value for record in await collect(consumer, 1)] == [b"2"]


async def test_members_share_a_group_and_lose_nothing_when_one_joins_and_leaves(
    kafka_pair: KafkaPair,
) -> None:
    """The second joins while the first holds records that it has not committed."""
    topic, group = unique_name("orders"), unique_name("app")
    properties = kafka_pair.b.client_properties()
    seen: Counter[bytes | None] = Counter()
    async with open_cluster("b", properties) as cluster:
        await make(cluster, topic, f"A.{topic}", partitions=2)
        names = [f"{name}-{number}" for name in (topic, f"A.{topic}") for number in range(2)]

        async def fill(lap: int) -> set[bytes]:
            for name in names:
                where, number = name.rsplit("-", 1)
                await append(cluster, where, f"{name} {lap}".encode(), partition=int(number))
            return {f"{name} {lap}".encode() for name in names}

        async def take(*consumers: LogicalConsumer) -> None:
            for consumer in consumers:
                seen.update(record.value for record in await consumer.poll(max_wait_seconds=0.2))
                await consumer.commit()

        async def all_of(expected: set[bytes], *consumers: LogicalConsumer) -> bool:
            await take(*consumers)
            return seen.keys() >= expected

        expected = await fill(1)
        async with LogicalConsumer(properties, group=group, topic=topic) as first:
            held = await eventually(lambda: first.poll(max_wait_seconds=0.5, max_records=1))
            seen.update(record.value for record in held)
            async with LogicalConsumer(properties, group=group, topic=topic) as second:
                await take(first, second)
                expected |= await fill(2)
                await eventually(lambda: all_of(expected, first, second))
            expected |= await fill(3)
            await eventually(lambda: all_of(expected, first))
        async with LogicalConsumer(properties, group=group, topic=topic) as last:
            expected = await fill(4)
            found = await collect(last, 4)
            assert {record.value for record in found} == expected


async def test_a_topic_that_is_nowhere_is_named(kafka_pair: KafkaPair) -> None:
    name = unique_name("nowhere")
    with pytest.raises(NotFoundError, match=name):
        async with LogicalConsumer(kafka_pair.b.client_properties(), group="g", topic=name):
            pass


@pytest.mark.java
async def test_java_says_what_our_client_says(kafka_pair: KafkaPair) -> None:
    """MirrorClient and RemoteClusterUtils of Kafka 4, on the same topics, word for word."""
    alias, far = unique_name("east"), unique_name("north")
    group, other = unique_name("group"), unique_name("group")
    topic = f"{alias}.checkpoints.internal"
    properties = kafka_pair.b.client_properties()
    async with open_cluster("b", properties) as cluster:
        await make(cluster, topic, f"{alias}.heartbeats", f"{alias}.{far}.heartbeats", f"{alias}.orders")
        async with cluster.writer() as writer:
            await writer.append(TopicPartition(topic, 0), key=b"no", value=b"checkpoint")
            for name, number, downstream in ((group, 0, 41), (group, 1, 7), (other, 0, 3), (group, 0, 45)):
                key, value = encode_checkpoint(
                    Checkpoint(
                        group=name,
                        partition=TopicPartition(f"{alias}.orders", number),
                        upstream_offset=100,
                        downstream_offset=downstream,
                        metadata=f"at-{downstream}",
                    )
                )
                await writer.append(TopicPartition(topic, 0), key=key, value=value)
    aliases = (alias, far, "nowhere")
    async with MirrorClient(properties) as client:
        offsets = await client.remote_consumer_offsets(group, alias, timeout_seconds=TIMEOUT_SECONDS)
        matching = await client.remote_consumer_offsets_matching(
            "group-.*", alias, timeout_seconds=TIMEOUT_SECONDS
        )
        ours = {
            "group": words(offsets),
            **{f"matching {name}": words(found) for name, found in matching.items()},
            "heartbeats": sorted(await client.heartbeat_topics()),
            "checkpoints": sorted(await client.checkpoint_topics()),
            "upstream": sorted(await client.upstream_clusters()),
            "remote": sorted(await client.remote_topics()),
            "remote of source": sorted(await client.remote_topics(alias)),
            **{f"hops {name}": [str(await client.replication_hops(name) or -1)] for name in aliases},
        }
    assert [partition.partition for partition in sorted(offsets)] == [0, 1]
    assert matching.keys() == {group, other}
    assert ours == await asyncio.to_thread(
        java_answers, properties["bootstrap.servers"], alias, group, "group-.*", *aliases
    )
    assert offsets == await remote_cluster_utils.translate_offsets(
        properties, alias, group, timeout_seconds=TIMEOUT_SECONDS
    )
    assert await remote_cluster_utils.replication_hops(properties, far) == 2
    with pytest.raises(KafkaError) as unknown:
        await remote_cluster_utils.translate_offsets(properties, far, group, timeout_seconds=TIMEOUT_SECONDS)
    assert unknown.value.reason == "TOPIC_UNKNOWN"


def words(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[str]:
    return sorted(f"{partition}={at.next_offset}={at.metadata}" for partition, at in offsets.items())
