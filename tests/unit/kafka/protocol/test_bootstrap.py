"""How a session learns of brokers and leaders: also where brokers answer and have nobody to name."""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any

import aiokafka.errors
import pytest
from aiokafka.protocol.metadata import MetadataRequest_v5, MetadataResponse_v1

from twinlog.errors import TransientKafkaError
from twinlog.kafka.deadline import pause
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient, _with_brokers, close_client
from twinlog.kafka.security.jaas import KerberosError
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from unit.testing.broker.broker_rig import pool

ONE_BROKER = [(1, "one", 9092, None)]
NONE_UP: list[tuple[int, str, int, None]] = []


class _Client(DataClient):
    """Gets the next of the given lists of brokers at each bootstrap."""

    told: Sequence[Sequence[tuple[int, str, int, None]]] = ()
    bootstraps = 0

    async def _ask_host(self, host: str, port: int) -> Any:
        brokers = _Client.told[_Client.bootstraps]
        _Client.bootstraps += 1
        return _with_brokers(MetadataResponse_v1(list(brokers), -1, []))


def _session(*told: Sequence[tuple[int, str, int, None]]) -> DataClientPool:
    _Client.told, _Client.bootstraps = told, 0
    return DataClientPool("B", {"bootstrap_servers": "one:9092"}, timeout_seconds=1.0, new_client=_Client)


async def test_a_session_that_met_a_fenced_broker_bootstraps_again() -> None:
    session = _session(NONE_UP, ONE_BROKER)
    try:
        with pytest.raises(TransientKafkaError, match="none that is up") as refused:
            await session.client("look")
        assert refused.value.reason == "KAFKA_UNAVAILABLE"
        assert (await session.client("look")).get_random_node() == 1
    finally:
        await session.close()


async def test_another_host_is_asked_when_one_knows_of_no_broker() -> None:
    _Client.told, _Client.bootstraps = (NONE_UP, ONE_BROKER), 0
    client = _Client(bootstrap_servers=["one:9092", "two:9092"])
    try:
        async with asyncio.timeout(30):
            await client.bootstrap()
        assert client.get_random_node() == 1
    finally:
        await close_client(client)


class _Broker:
    """Answers requests for metadata, and keeps them."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str] | None, bool]] = []

    async def send(self, request: Any) -> Any:
        built = request.build(MetadataRequest_v5)
        self.asked.append((built.topics, built.allow_auto_topic_creation))
        return MetadataResponse_v1(ONE_BROKER, -1, [])


class _ConnectedClient(_Client):
    broker: _Broker

    async def _connected(self, node_id: int, group: int = 0) -> Any:
        return self.broker


async def test_metadata_is_asked_for_known_topics_only_and_creates_none() -> None:
    _Client.told, _Client.bootstraps = (ONE_BROKER,), 0
    client = _ConnectedClient(bootstrap_servers=["one:9092"])
    client.broker = _Broker()
    try:
        async with asyncio.timeout(30):
            await client.bootstrap()
            assert await client.refreshed()
            client._topics = {"orders"}
            assert await client.refreshed()
    finally:
        await close_client(client)
    assert client.broker.asked == [([], False), (["orders"], False)]


async def test_a_topic_that_was_deleted_is_not_asked_for_again_until_somebody_wants_it() -> None:
    async with FakeKafka() as kafka, pool(kafka) as session:
        partitions = [TopicPartition("orders", 0), TopicPartition("gone", 0)]
        for partition in partitions:
            kafka.cluster.create_topic(partition.topic)
        client = await session.client("look")
        assert await client.leaders(partitions, "look", alias="A") == dict.fromkeys(partitions, 1)
        kafka.cluster.delete_topic("gone")
        assert await client.refreshed()
        assert client._topics == {"orders"}
        kafka.cluster.create_topic("gone")
        assert await session.leader(partitions[1], "look") == 1


@pytest.mark.parametrize("asked", ["later", "meanwhile"])
async def test_a_look_of_every_few_minutes_holds_nobody_up(asked: str) -> None:
    """It finds that a topic was deleted; or somebody asks for another topic while it is on its way."""
    async with FakeKafka() as kafka, pool(kafka) as session:
        gone, wanted = TopicPartition("gone", 0), TopicPartition("orders", 0)
        for partition in (gone, wanted):
            kafka.cluster.create_topic(partition.topic)
        client = await session.client("look")
        assert await client.leaders([gone], "look", alias="A") == {gone: 1}
        if asked == "later":
            kafka.cluster.delete_topic("gone")
            await pause(client._metadata_max_age_ms / 1000 + 1)
        else:
            while client._md_update_fut is None:
                await pause(0.01)
        async with asyncio.timeout(10):
            assert await client.leaders([wanted], "look", alias="A") == {wanted: 1}


@pytest.mark.parametrize("host", ["kafka-0..svc", "a" * 64 + ".svc"])
async def test_a_broker_that_advertises_no_host_name_is_one_that_cannot_be_reached(host: str) -> None:
    """The resolver raises UnicodeError for it, which no caller expects: it would end the service."""
    _Client.told, _Client.bootstraps = ([(1, host, 9092, None)],), 0
    client = _Client(bootstrap_servers=["one:9092"])
    try:
        await client.bootstrap()
        assert await client._get_conn(1) is None
    finally:
        await close_client(client)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KerberosError("no KDC answers"), aiokafka.errors.AuthenticationFailedError),
        (KeyError("v"), aiokafka.errors.AuthenticationFailedError),
        (AssertionError(), aiokafka.errors.AuthenticationFailedError),
        # It is a ValueError, too.
        (ssl.SSLCertVerificationError("expired"), ssl.SSLCertVerificationError),
    ],
)
async def test_a_connection_that_fails_later_is_an_error_of_kafka_with_its_cause(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: type[Exception]
) -> None:
    async def connect(*_: object, **__: object) -> None:
        raise error

    async def resolve(*_: object, **__: object) -> list[Any]:
        return [(0, 0, 0, "", ("10.0.0.1", 9092))]

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connect)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    _Client.told, _Client.bootstraps = (ONE_BROKER,), 0
    client = _Client(bootstrap_servers=["one:9092"])
    try:
        await client.bootstrap()
        assert await client._get_conn(1) is None
        with pytest.raises(told):
            await DataClient._ask_host(client, "one", 9092)
    finally:
        await close_client(client)
