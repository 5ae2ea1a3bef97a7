"""A cluster that is away: every call ends in time with an error that says so, closing is quick, and the same
object serves again when the cluster is back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from contract.workbench import append_values, failure, new_topic, read_all
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import (
    AclBinding,
    CommittedOffset,
    ConfigChange,
    KafkaCluster,
    NewTopic,
    OffsetSpec,
)
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually

TIMEOUT_SECONDS = 1.0
SLACK_SECONDS = 0.5
CLOSE_SECONDS = 2.0
PARTITION = TopicPartition("topic", 0)
BINDING = AclBinding(
    resource_type="TOPIC",
    resource_name="topic",
    pattern_type="LITERAL",
    principal="User:alice",
    host="*",
    operation="READ",
    permission="ALLOW",
)
AWAY_REASONS = {"KAFKA_TIMEOUT", "KAFKA_UNAVAILABLE"}

CALLS: Mapping[str, Callable[[KafkaCluster], Awaitable[object]]] = {
    "cluster_id": lambda cluster: cluster.cluster_id(),
    "brokers": lambda cluster: cluster.brokers(),
    "list_topics": lambda cluster: cluster.list_topics(),
    "describe_topics": lambda cluster: cluster.describe_topics(["topic"]),
    "create_topics": lambda cluster: cluster.create_topics(
        [NewTopic(name="topic", partition_count=1, replication_factor=1)]
    ),
    "create_partitions": lambda cluster: cluster.create_partitions({"topic": 2}),
    "delete_topics": lambda cluster: cluster.delete_topics(["topic"]),
    "describe_topic_configs": lambda cluster: cluster.describe_topic_configs(["topic"]),
    "describe_broker_configs": lambda cluster: cluster.describe_broker_configs(1),
    "alter_topic_configs": lambda cluster: cluster.alter_topic_configs(
        {"topic": [ConfigChange(name="retention.ms", value="1")]}
    ),
    "describe_acls": lambda cluster: cluster.describe_acls(),
    "create_acls": lambda cluster: cluster.create_acls([BINDING]),
    "delete_acls": lambda cluster: cluster.delete_acls([BINDING]),
    "list_groups": lambda cluster: cluster.list_groups(),
    "describe_groups": lambda cluster: cluster.describe_groups(["group"]),
    "group_offsets": lambda cluster: cluster.group_offsets(["group"]),
    "alter_group_offsets": lambda cluster: cluster.alter_group_offsets(
        "group", {PARTITION: CommittedOffset(next_offset=1)}
    ),
    "delete_groups": lambda cluster: cluster.delete_groups(["group"]),
    "list_offsets": lambda cluster: cluster.list_offsets(OffsetSpec.LATEST, [PARTITION]),
    "offsets_for_times": lambda cluster: cluster.offsets_for_times({PARTITION: 0}),
    "delete_records": lambda cluster: cluster.delete_records({PARTITION: 1}),
    "fetch": lambda cluster: _fetch(cluster),
    "append": lambda cluster: append_values(cluster, PARTITION, [b"v"]),
}


async def _fetch(cluster: KafkaCluster) -> object:
    async with cluster.reader() as reader:
        return await reader.fetch(PARTITION, 0, max_wait_seconds=0)


async def _error(call: Callable[[KafkaCluster], Awaitable[object]], cluster: KafkaCluster) -> KafkaError:
    """What a call raised, or the error of its one resource."""
    try:
        answer = await call(cluster)
    except KafkaError as error:
        return error
    assert isinstance(answer, Mapping), f"an answer from nowhere: {answer!r}"
    (only,) = answer.values()
    assert isinstance(only, KafkaError), f"an answer from nowhere: {answer!r}"
    return only


@pytest.fixture(params=["refuses", "hangs"])
async def away(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """host:port of nothing that listens, or of what accepts and never answers."""
    opened: list[asyncio.StreamWriter] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if request.param == "refuses":
        server.close()
    yield f"127.0.0.1:{port}"
    server.close()
    for writer in opened:
        writer.transport.abort()


async def test_every_call_ends_in_time(away: str) -> None:
    loop = asyncio.get_running_loop()
    properties = {"bootstrap.servers": away}

    async def timed(name: str) -> tuple[str, KafkaError, float]:
        async with open_cluster("away", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
            started = loop.time()
            error = await _error(CALLS[name], cluster)
            return name, error, loop.time() - started

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(timed(name), name=name) for name in CALLS]
    for name, error, seconds in (task.result() for task in tasks):
        assert isinstance(error, TransientKafkaError), (name, error)
        assert error.reason in AWAY_REASONS, (name, error)
        assert "away" in str(error), name
        assert seconds < TIMEOUT_SECONDS + SLACK_SECONDS, (name, seconds)


async def test_many_groups_end_in_time_too(away: str) -> None:
    group_ids = [f"group-{number}" for number in range(50)]
    loop = asyncio.get_running_loop()
    properties = {"bootstrap.servers": away}
    async with open_cluster("away", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        started = loop.time()
        answers = await cluster.group_offsets(group_ids)
        assert loop.time() - started < TIMEOUT_SECONDS + SLACK_SECONDS
    assert {failure(answers[group_id]).reason for group_id in group_ids} <= AWAY_REASONS


async def test_closing_does_not_wait_for_calls_on_their_way(away: str) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        async with open_cluster("away", {"bootstrap.servers": away}, timeout_seconds=30) as cluster:
            calls = [
                group.create_task(_error(CALLS[name], cluster), name=name)
                for name in ("cluster_id", "list_topics", "fetch", "append", "describe_acls")
            ]
            await asyncio.wait(calls, timeout=0.3)
            for call in calls:
                call.cancel()
            started = loop.time()
        assert loop.time() - started < CLOSE_SECONDS


@pytest.mark.parametrize("how", ["hangs", "stops"])
async def test_the_same_object_serves_again_after_an_outage(
    start_cluster: Callable[[ClusterSpec], BlockingCluster], how: str
) -> None:
    brokers = await asyncio.to_thread(start_cluster, ClusterSpec(name="outage"))
    loop = asyncio.get_running_loop()
    async with open_cluster("outage", brokers.client_properties(), timeout_seconds=2.0) as cluster:
        topic = await new_topic(cluster, "outage")
        partition = TopicPartition(topic, 0)
        async with cluster.writer() as writer, cluster.reader() as reader:
            await writer.append(partition, key=b"k", value=b"before")
            await reader.fetch(partition, 0, max_wait_seconds=0)
            await asyncio.to_thread(brokers.pause_broker if how == "hangs" else brokers.kill_broker, 1)
            for call in (
                lambda: writer.append(partition, key=b"k", value=b"lost"),
                lambda: reader.fetch(partition, 1, max_wait_seconds=0.1),
                cluster.cluster_id,
                cluster.list_topics,
            ):
                started = loop.time()
                with pytest.raises(TransientKafkaError) as raised:
                    await call()
                assert raised.value.reason in AWAY_REASONS
                assert loop.time() - started < 2.1 + SLACK_SECONDS
            await asyncio.to_thread(brokers.resume_broker if how == "hangs" else brokers.restart_broker, 1)

            async def serves_again() -> bool:
                try:
                    await writer.append(partition, key=b"k", value=b"after")
                    await reader.fetch(partition, 1, max_wait_seconds=0.1)
                    await cluster.describe_acls()
                    return topic in await cluster.list_topics()
                except TransientKafkaError as error:
                    raise AssertionError(f"still away: {error}") from error

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
