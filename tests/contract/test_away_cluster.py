"""A cluster that is away: every call ends in time with an error that says so, and closing is quick.

That the same object serves again later: tests/integration/kafka/test_kafka_outages.py.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from contract.cluster.cluster_rig import append_values, failure
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
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster

TIMEOUT_SECONDS = 1.0
SLACK_SECONDS = 15.0
"""For a busy machine; a client of its own accord would wait 40 s and more."""
CLOSE_SECONDS = 15.0
"""Less than what the calls may take."""
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
_METADATA, _API_VERSIONS = 3, 18
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
    "describe_broker_configs": lambda cluster: cluster.describe_broker_configs(),
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


@pytest.mark.parametrize("is_fake", [False, True])
async def test_that_a_cluster_is_away_is_an_error_of_each_topic_that_is_described(
    away: str, is_fake: bool
) -> None:
    """It is not raised: whoever describes topics has to tell a topic that is gone from one that is not
    known."""
    fake = FakeCluster("away")
    fake.take_away()
    properties = {"bootstrap.servers": away}
    opening = fake if is_fake else open_cluster("away", properties, timeout_seconds=TIMEOUT_SECONDS)
    async with opening as cluster:
        described = await cluster.describe_topics(["one", "another"])
        assert await cluster.describe_topics([]) == {}
    assert described.keys() == {"one", "another"}
    for error in described.values():
        assert isinstance(error, TransientKafkaError)
        assert error.reason in AWAY_REASONS


async def _serve_without_brokers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that is starting: it answers, and in the controller's eyes no broker is up yet."""
    with (
        contextlib.closing(writer.transport),
        contextlib.suppress(asyncio.IncompleteReadError, ConnectionError),
    ):
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            api_key, _version, correlation_id = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
            if api_key == _API_VERSIONS:
                body = struct.pack(">hi3h3h", 0, 2, _API_VERSIONS, 0, 0, _METADATA, 0, 5)
            else:
                body = struct.pack(">iih5sii", 0, 0, 5, b"an-id", -1, 0)
            writer.write(struct.pack(">ii", len(body) + 4, correlation_id) + body)


async def test_a_cluster_that_has_no_broker_up_yet_is_an_error_and_ends_nothing() -> None:
    server = await asyncio.start_server(_serve_without_brokers, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    properties = {"bootstrap.servers": f"{host}:{port}"}
    async with server, open_cluster("away", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        for name in ("cluster_id", "brokers", "list_topics", "describe_topics"):
            error = await _error(CALLS[name], cluster)
            assert isinstance(error, TransientKafkaError), name
            assert error.reason in AWAY_REASONS, name
