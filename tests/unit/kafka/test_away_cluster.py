"""A cluster that is away: every call ends in time with an error that says so, and closing is quick.

That the same object serves again later: tests/integration/kafka/test_kafka_outages.py.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

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
from twinlog.testing.broker import FakeKafka

TIMEOUT_SECONDS = 5.0
CLOSE_SECONDS = 1.0
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
    "presence": lambda cluster: cluster.presence(),
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
    "append": lambda cluster: _append(cluster),
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


async def _append(cluster: KafkaCluster) -> object:
    async with cluster.writer() as writer:
        return await writer.append(PARTITION, key=None, value=b"v")


@pytest.fixture(params=["refuses", "hangs", "has no broker up yet"])
async def away(request: pytest.FixtureRequest) -> AsyncIterator[dict[str, str]]:
    """How to connect to it."""
    async with FakeKafka() as kafka:
        properties = {"bootstrap.servers": kafka.bootstrap}
        match request.param:
            case "refuses":
                await kafka.stop_node(1)
            case "hangs":
                kafka.faults.begin(hangs=True)
            case _:
                kafka.cluster.node_down(1)  # It answers, and metadata names no broker.
        yield properties


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("name", CALLS)
async def test_every_call_ends_in_time(away: Mapping[str, str], name: str) -> None:
    async with open_cluster("away", away, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        error = await _error(CALLS[name], cluster)
        assert now() <= TIMEOUT_SECONDS
    assert isinstance(error, TransientKafkaError), error
    assert error.reason in AWAY_REASONS
    assert "away" in str(error)


async def test_many_groups_end_in_time_too(away: Mapping[str, str]) -> None:
    group_ids = [f"group-{number}" for number in range(50)]
    async with open_cluster("away", away, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        answers = await cluster.group_offsets(group_ids)
        assert now() <= TIMEOUT_SECONDS
    assert answers.keys() == set(group_ids)
    for error in answers.values():
        assert isinstance(error, TransientKafkaError)
        assert error.reason in AWAY_REASONS


async def test_closing_does_not_wait_for_calls_on_their_way(away: Mapping[str, str]) -> None:
    async with asyncio.TaskGroup() as group:
        async with open_cluster("away", away, timeout_seconds=30) as cluster:
            calls = [
                group.create_task(_error(CALLS[name], cluster), name=name)
                for name in ("cluster_id", "list_topics", "fetch", "append", "describe_acls")
            ]
            await asyncio.wait(calls, timeout=0.3)
            for call in calls:
                call.cancel()
            started = now()
        assert now() - started < CLOSE_SECONDS


async def test_that_a_cluster_is_away_is_an_error_of_each_topic_that_is_described(
    away: Mapping[str, str],
) -> None:
    """It is not raised: whoever describes topics has to tell a topic that is gone from one that is not
    known."""
    async with open_cluster("away", away, timeout_seconds=TIMEOUT_SECONDS) as cluster:
        described = await cluster.describe_topics(["one", "another"])
        assert await cluster.describe_topics([]) == {}
    assert described.keys() == {"one", "another"}
    for error in described.values():
        assert isinstance(error, TransientKafkaError)
        assert error.reason in AWAY_REASONS


async def test_a_broker_that_is_away_is_an_error_of_the_groups_that_it_coordinates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a quorum of controllers it stays in the metadata. That groups do not exist is told by those
    that coordinate them."""
    async with FakeKafka(node_count=3) as kafka:
        monkeypatch.setattr(kafka.cluster, "node_down", lambda _node_id: None)
        homes: dict[str, int] = {}
        for group_id in (f"group-{number}" for number in range(9)):
            node = kafka.cluster.coordinator(0, group_id)
            assert node is not None
            homes[group_id] = node.node_id
        gone = homes["group-0"]
        properties = {"bootstrap.servers": kafka.bootstrap}
        async with open_cluster("B", properties, timeout_seconds=TIMEOUT_SECONDS) as cluster:
            assert not any(
                isinstance(each, KafkaError) for each in (await cluster.describe_groups(homes)).values()
            )
            await kafka.stop_node(gone)
            described = await cluster.describe_groups(homes)
    unread = {group_id: each for group_id, each in described.items() if isinstance(each, KafkaError)}
    assert unread.keys() == {group_id for group_id, home in homes.items() if home == gone} < homes.keys()
    for error in unread.values():
        assert f"broker {gone} cannot be reached" in str(error)
    assert {each.state for each in described.values() if not isinstance(each, KafkaError)} == {"DEAD"}
