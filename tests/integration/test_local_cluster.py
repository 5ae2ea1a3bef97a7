"""Embedded clusters: they start, serve, break on demand, and end."""

import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from twinlog.local.cluster import LocalCluster
from twinlog.local.spec import ClusterSpec
from twinlog.testing.brokers import KafkaPair


async def _round_trip(bootstrap_servers: str, topic: str, **security: object) -> bytes:
    """Create a topic, write one record, read it back."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers, **security)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    finally:
        await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", **security)
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"here")
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", **security
    )
    await consumer.start()
    try:
        record = await consumer.getone()
    finally:
        await consumer.stop()
    return bytes(record.value)


async def test_pair_serves_both_clusters(kafka_pair: KafkaPair, unique_topic: str) -> None:
    for cluster in (kafka_pair.a, kafka_pair.b):
        assert await _round_trip(cluster.bootstrap_servers, unique_topic) == b"here"
    assert kafka_pair.a.cluster_id != kafka_pair.b.cluster_id


async def test_stop_leaves_no_process_and_no_files() -> None:
    cluster = LocalCluster(ClusterSpec(name="brief"))
    async with cluster:
        pid = cluster.blocking.broker_pid(1)
        directory = cluster.blocking.log_file(1).parent
        assert pid is not None
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)
    assert not directory.exists()
