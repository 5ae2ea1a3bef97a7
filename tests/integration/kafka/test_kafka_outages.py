"""Real brokers that hang, die and come back under open clients."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from contract.cluster.cluster_rig import new_topic, read_all
from twinlog.errors import TransientKafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, make_topics

TIMEOUT_SECONDS = 5.0
SLACK_SECONDS = 15.0
"""For a busy machine; a client of its own accord would wait 40 s and more."""
CLOSE_SECONDS = 10.0
AWAY_REASONS = {"KAFKA_TIMEOUT", "KAFKA_UNAVAILABLE"}


@pytest.mark.parametrize("how", ["hangs", "stops"])
async def test_the_same_object_serves_again_after_an_outage(
    start_cluster: Callable[[ClusterSpec], BlockingCluster], how: str
) -> None:
    brokers = await asyncio.to_thread(start_cluster, ClusterSpec(name="outage"))
    loop = asyncio.get_running_loop()
    async with open_cluster("outage", brokers.client_properties()) as cluster:
        topic = await new_topic(cluster, "outage")
    properties = brokers.client_properties()
    async with open_cluster("outage", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        partition = TopicPartition(topic, 0)
        async with cluster.writer() as writer, cluster.reader() as reader:
            await writer.append(partition, key=b"k", value=b"before")
            await reader.fetch(partition, 0, max_wait_seconds=0)
            await asyncio.to_thread(brokers.pause_broker if how == "hangs" else brokers.kill_broker, 1)
            started = loop.time()
            async with asyncio.TaskGroup() as group:
                for name, call in {
                    "append": writer.append(partition, key=b"k", value=b"lost"),
                    "fetch": reader.fetch(partition, 1, max_wait_seconds=0.1),
                    "cluster_id": cluster.cluster_id(),
                    "list_topics": cluster.list_topics(),
                }.items():
                    group.create_task(_is_away(call), name=name)
            assert loop.time() - started < TIMEOUT_SECONDS + SLACK_SECONDS
            await asyncio.to_thread(brokers.resume_broker if how == "hangs" else brokers.restart_broker, 1)

            async def serves_again() -> bool:
                await writer.append(partition, key=b"k", value=b"after")
                await reader.fetch(partition, 1, max_wait_seconds=0.1)
                await cluster.describe_acls()
                return topic in await cluster.list_topics()

            assert await eventually(serves_again)
            await asyncio.to_thread(brokers.pause_broker, 1)
            started = loop.time()
        values = [b"before", b"after"]
    assert loop.time() - started < 2 * CLOSE_SECONDS
    await asyncio.to_thread(brokers.resume_broker, 1)
    async with open_cluster("outage", brokers.client_properties()) as cluster:
        read = [record.value for record in await read_all(cluster, partition)]
    # What was given up on while the broker hung may have arrived before that; never after.
    assert [value for value in dict.fromkeys(read) if value != b"lost"] == values
    assert b"lost" not in read[read.index(b"after") :]


async def test_one_hung_broker_of_three_does_not_stop_the_others(
    start_cluster: Callable[[ClusterSpec], BlockingCluster],
) -> None:
    spec = ClusterSpec(
        name="three",
        broker_count=3,
        properties={"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"},
    )
    brokers = await asyncio.to_thread(start_cluster, spec)
    async with (
        open_cluster("three", brokers.client_properties(), timeout_seconds=6.0) as cluster,
        cluster.writer() as writer,
        cluster.reader() as reader,
    ):
        await make_topics(cluster, NewTopic(name="t", partition_count=6, replication_factor=3))
        partitions = [TopicPartition("t", number) for number in range(6)]
        for partition in partitions:
            await writer.append(partition, key=b"k", value=b"before")
        assert await eventually(lambda: _all_succeed(cluster, partitions))
        await asyncio.to_thread(brokers.pause_broker, 2)

        async def serves() -> bool:
            for partition in partitions:
                await writer.append(partition, key=b"k", value=b"after")
                assert (await reader.fetch(partition, 1, max_wait_seconds=1)).records
            return await cluster.list_groups() == {"g": "classic"} and await _all_succeed(cluster, partitions)

        assert await eventually(serves)


async def _is_away(call: Awaitable[object]) -> None:
    with pytest.raises(TransientKafkaError) as raised:
        await call
    assert raised.value.reason in AWAY_REASONS


async def _all_succeed(cluster: KafkaCluster, partitions: Sequence[TopicPartition]) -> bool:
    """Calls that ask several brokers, or one that the client must choose."""
    ends = await cluster.list_offsets(OffsetSpec.LATEST, partitions)
    committed = await cluster.alter_group_offsets("g", {partitions[0]: CommittedOffset(next_offset=1)})
    assert all(isinstance(end, int) and end > 0 for end in ends.values()), ends
    assert not any(committed.values()), committed
    return len(await cluster.cluster_id()) > 0
