"""Changes of a cluster find its controller, whoever is silent or was elected meanwhile."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from contract.cluster.cluster_rig import failure
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.kafka.protocol.requests import API_KEYS
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.calls import Call
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.handlers import HANDLERS

TIMEOUT_SECONDS = 30.0
CREATE_TOPICS = API_KEYS["create_topics"]


def _opened(kafka: FakeKafka) -> KafkaCluster:
    return open_cluster("A", {"bootstrap.servers": kafka.bootstrap}, timeout_seconds=TIMEOUT_SECONDS)


async def _made(cluster: KafkaCluster, name: str) -> Mapping[str, KafkaError | None]:
    return await cluster.create_topics([NewTopic(name=name, partition_count=1, replication_factor=1)])


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _by_the_controller_alone(call: Call) -> Fields:
    """As with ZooKeeper."""
    if call.node.node_id == call.cluster.controller_id:
        answer: Any = await HANDLERS[CREATE_TOPICS](call)
        return {**answer}
    refused = [
        {"name": each.name, "error_code": ErrorCode.not_controller, "error_message": None, "configs": ()}
        for each in call.body.topics
    ]
    return {"topics": refused}


ZOOKEEPER = {**HANDLERS, CREATE_TOPICS: _by_the_controller_alone}


async def test_a_controller_that_falls_silent_costs_a_third_of_the_time_out() -> None:
    async with FakeKafka(node_count=3) as kafka, _opened(kafka) as cluster:
        assert await _made(cluster, "first") == {"first": None}
        begun_at = _now()
        with kafka.faults.during(node_id=kafka.cluster.controller_id, hangs=True):
            assert await _made(cluster, "second") == {"second": None}
            assert _now() - begun_at < TIMEOUT_SECONDS / 2
            begun_at = _now()
            assert await _made(cluster, "third") == {"third": None}
            assert _now() - begun_at < 1, "the silent one is known"


async def test_a_controller_that_is_silent_from_the_start_costs_a_moment() -> None:
    async with FakeKafka(node_count=3) as kafka, _opened(kafka) as cluster:
        with kafka.faults.during(node_id=kafka.cluster.controller_id, hangs=True):
            assert await _made(cluster, "orders") == {"orders": None}
            assert _now() < TIMEOUT_SECONDS / 10


@pytest.mark.parametrize("connect_seconds", [0.0, 2.0])
async def test_another_controller_is_looked_up(connect_seconds: float) -> None:
    """Also where it takes longer to meet than any other broker."""
    async with FakeKafka(node_count=3, handlers=ZOOKEEPER) as kafka, _opened(kafka) as cluster:
        assert await _made(cluster, "first") == {"first": None}
        elected = kafka.cluster.controller_id = kafka.cluster.controller_id % 3 + 1
        with kafka.faults.during(node_id=elected, api="api_versions", answer_seconds=connect_seconds):
            assert await _made(cluster, "second") == {"second": None}


async def test_a_cluster_that_is_silent_is_an_error_of_each_topic() -> None:
    async with FakeKafka(node_count=3) as kafka, _opened(kafka) as cluster:
        with kafka.faults.during(api="delete_topics", hangs=True):
            deleted = await cluster.delete_topics(["one", "two"])
            assert {failure(each).reason for each in deleted.values()} == {"KAFKA_TIMEOUT"}
            assert deleted.keys() == {"one", "two"}
            assert TIMEOUT_SECONDS <= _now() < TIMEOUT_SECONDS + 1


async def test_a_broker_that_does_not_know_the_request_is_an_error_of_each_topic() -> None:
    handlers = {key: handler for key, handler in HANDLERS.items() if key != CREATE_TOPICS}
    async with FakeKafka(handlers=handlers) as kafka, _opened(kafka) as cluster:
        assert failure((await _made(cluster, "orders"))["orders"]).reason == "UNSUPPORTED_VERSION"


async def test_a_throttle_of_the_controller_is_waited_for() -> None:
    async with FakeKafka() as kafka, _opened(kafka) as cluster:
        kafka.faults.begin(api="create_topics", throttle_ms=5_000, times=1)
        assert await _made(cluster, "first") == {"first": None}
        assert await _made(cluster, "second") == {"second": None}
        assert 5 <= _now() < 6


@pytest.mark.parametrize(
    "topic",
    [
        NewTopic(name="many", partition_count=1 << 40, replication_factor=1),
        NewTopic(
            name="long", partition_count=1, replication_factor=1, configs={"retention.ms": "9" * 40_000}
        ),
    ],
    ids=lambda topic: topic.name,
)
async def test_what_kafkas_protocol_cannot_say_is_refused(topic: NewTopic) -> None:
    async with FakeKafka() as kafka, _opened(kafka) as cluster:
        with pytest.raises(KafkaError) as raised:
            await cluster.create_topics([topic])
        assert (raised.value.reason, raised.value.retriable) == ("KAFKA_REFUSED", False)
