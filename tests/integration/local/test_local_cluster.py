"""Embedded clusters: they start, serve, break on demand, and end."""

import asyncio
from typing import Any

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAuthorizationFailedError
from aiokafka.helpers import create_ssl_context

from twinlog.local.blocking_cluster import BlockingCluster, start_in_thread
from twinlog.local.processes.process import ProcessError
from twinlog.local.spec import ClusterSpec, KafkaVersion, SaslMechanism, Security


async def _create_topic(
    bootstrap_servers: str, topic: str, replication_factor: int = 1, **security: Any
) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers, **security)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, replication_factor)])
    finally:
        await admin.close()


async def _write(bootstrap_servers: str, topic: str, value: bytes, **security: Any) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", **security)
    await producer.start()
    try:
        await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()


async def _read(bootstrap_servers: str, topic: str, **security: Any) -> bytes:
    """The value of the first record."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", **security
    )
    await consumer.start()
    try:
        async with asyncio.timeout(60):
            record = await consumer.getone()
    finally:
        await consumer.stop()
    return bytes(record.value)


def _python_client(cluster: BlockingCluster, user: str, mechanism: SaslMechanism) -> dict[str, Any]:
    security = cluster.spec.security
    properties = cluster.client_properties(user, mechanism)
    settings: dict[str, Any] = {
        "security_protocol": properties["security.protocol"],
        "sasl_mechanism": properties["sasl.mechanism"],
        "sasl_plain_username": user,
        "sasl_plain_password": security.passwords[user],
    }
    if security.tls:
        settings["ssl_context"] = create_ssl_context(cafile=properties["ssl.truststore.location"])
    return settings


async def test_cancelled_start_leaves_nothing_running() -> None:
    cluster = BlockingCluster(ClusterSpec(name="unwanted"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await start_in_thread([cluster])
    assert all(cluster.broker_pid(broker_id) is None for broker_id in cluster.broker_ids)


async def test_broker_that_cannot_start_is_explained() -> None:
    cluster = BlockingCluster(ClusterSpec(name="wrong", properties={"log.segment.bytes": "many"}))
    with pytest.raises(ProcessError, match=r"broker 1 ended with 1 while starting(.|\n)*log\.segment\.bytes"):
        await start_in_thread([cluster])


async def test_a_broker_pauses_dies_comes_back_with_its_data_and_ends_without_a_trace(
    unique_topic: str,
) -> None:
    cluster = BlockingCluster(ClusterSpec(name="tried"))
    with cluster:
        servers, directory = cluster.bootstrap_servers, cluster.log_file(1).parent
        await _create_topic(servers, unique_topic)
        producer = AIOKafkaProducer(bootstrap_servers=servers)
        await producer.start()
        try:
            await producer.send_and_wait(unique_topic, b"kept")
            cluster.pause_broker(1)
            acknowledged = await producer.send(unique_topic, b"during")
            done, _ = await asyncio.wait([acknowledged], timeout=1)
            assert not done
            cluster.resume_broker(1)
            assert (await acknowledged).offset == 1
        finally:
            await producer.stop()

        cluster.kill_broker(1)
        assert cluster.broker_pid(1) is None
        cluster.restart_broker(1)
        assert cluster.bootstrap_servers == servers
        assert await _read(servers, unique_topic) == b"kept"

        pid = cluster.broker_pid(1)
        assert pid is not None
        assert psutil.pid_exists(pid)
        assert directory.exists()
    assert not psutil.pid_exists(pid)
    assert not directory.exists()
    cluster.stop()


async def test_kafka_3_9_with_tls_scram_and_an_authorizer(unique_topic: str) -> None:
    """The newer Kafka with the same: test_kafka_security.py."""
    security = Security(
        tls=True,
        mechanisms=(SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512, SaslMechanism.PLAIN),
        users={"alice": "it's, [a] = \\secret"},
        authorizer=True,
    )
    spec = ClusterSpec(name="older", version=KafkaVersion.V3_9, security=security)
    with BlockingCluster(spec) as cluster:
        servers = cluster.bootstrap_servers
        boss = _python_client(cluster, "super", SaslMechanism.SCRAM_SHA_512)
        await _create_topic(servers, unique_topic, **boss)
        for mechanism in security.mechanisms:
            alice = _python_client(cluster, "alice", mechanism)
            with pytest.raises(TopicAuthorizationFailedError):
                await _write(servers, unique_topic, b"not allowed", **alice)
        await _write(servers, unique_topic, b"allowed", **boss)
        consumer = _python_client(cluster, "super", SaslMechanism.PLAIN)
        assert await _read(servers, unique_topic, **consumer) == b"allowed"
