"""Clients find the fake cluster's brokers, topics and versions, in memory and over sockets."""

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.releases import KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, Release


async def _names_after_creating(kafka: FakeKafka, name: str) -> list[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
        return list(await admin.list_topics())
    finally:
        await admin.close()


@pytest.mark.parametrize("release", [KAFKA_2_8, KAFKA_3_9, KAFKA_4_3], ids=lambda each: each.name)
async def test_a_client_creates_a_topic_and_sees_it(release: Release) -> None:
    async with FakeKafka(node_count=3, release=release) as kafka:
        assert await _names_after_creating(kafka, "orders") == ["orders"]
        assert len(kafka.cluster.topics["orders"].partitions) == 2


def test_the_same_over_sockets() -> None:
    async def scenario() -> list[str]:
        async with FakeKafka(node_count=2) as kafka:
            return await _names_after_creating(kafka, "orders")

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        assert runner.run(scenario()) == ["orders"]


async def test_ids_repeat_with_the_seed() -> None:
    ids = []
    for seed in (1, 1, 2):
        async with FakeKafka(seed=seed) as kafka:
            ids.append((kafka.cluster.cluster_id, kafka.cluster.create_topic("orders").topic_id))
    assert ids[0] == ids[1]
    assert ids[0] != ids[2]
