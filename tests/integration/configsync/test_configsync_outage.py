"""The target goes away while configsync works: what is known stays, and the rest is done when it is back."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.errors import TransientKafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.properties_text import render_properties
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess, run_service

LATER_TOPICS = 60
"""Enough for a broker to be killed while they are made."""


async def create(cluster: KafkaCluster, *names: str) -> None:
    topics = [NewTopic(name=name, partition_count=1, replication_factor=1) for name in names]
    assert await cluster.create_topics(topics) == dict.fromkeys(names)


async def states(service: ServiceProcess) -> dict[str, int]:
    answer = await ConfigSyncServiceStub(service.channel).ListTopics(
        pb2.ListTopicsRequest(), timeout=CALL_SECONDS
    )
    return {topic.source_topic: topic.state for topic in answer.topics}


async def flow(service: ServiceProcess) -> pb2.FlowStatus:
    answer = await ConfigSyncServiceStub(service.channel).ListFlows(
        pb2.ListFlowsRequest(), timeout=CALL_SECONDS
    )
    (status,) = answer.flows
    return status


async def test_a_target_that_dies_in_the_middle_of_applying_gets_the_rest_when_it_is_back(
    kafka_pair: KafkaPair, start_cluster: Callable[[ClusterSpec], BlockingCluster], tmp_path: Path
) -> None:
    target = start_cluster(ClusterSpec(name="mortal"))
    east = unique_name("east")
    first, later = f"{east}-first", [f"{east}-later-{number}" for number in range(LATER_TOPICS)]
    properties = render_properties(
        {
            "clusters": f"{east}, west",
            f"{east}.bootstrap.servers": kafka_pair.a.bootstrap_servers,
            "west.bootstrap.servers": target.bootstrap_servers,
            f"{east}->west.enabled": "true",
            "topics": f"{east}-.*",
            "replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "refresh.topics.interval.seconds": "0.5",
            "heartbeats.replication.enabled": "false",
            "twinlog.drain.seconds": "0",
        }
    )
    async with (
        open_cluster("A", kafka_pair.a.client_properties()) as source,
        open_cluster("B", target.client_properties()) as copies,
    ):
        await create(source, first)
        async with run_service("configsync", tmp_path, properties) as service:

            async def first_is_ready() -> bool:
                return await states(service) == {first: pb2.TOPIC_STATE_READY}

            await eventually(first_is_ready)
            await create(source, *later)

            async def some_are_made() -> bool:
                return len([name for name in await copies.list_topics() if name.startswith(east)]) > 1

            await eventually(some_are_made)
            await asyncio.to_thread(target.kill_broker, 1)

            async def degraded() -> bool:
                return (await flow(service)).state == pb2.FLOW_STATE_DEGRADED

            await eventually(degraded)
            told = {name for name, state in (await states(service)).items() if state == pb2.TOPIC_STATE_READY}
            assert first in told
            await asyncio.to_thread(target.restart_broker, 1)
            there = await eventually(lambda: _names(copies))
            assert {f"{east}.{name}" for name in told} <= there, "what is told is so"

            async def all_are_ready() -> bool:
                return await states(service) == dict.fromkeys((first, *later), pb2.TOPIC_STATE_READY)

            await eventually(all_are_ready)
            assert (await flow(service)).state == pb2.FLOW_STATE_SETTLED
            assert {f"{east}.{name}" for name in (first, *later)} <= set(await copies.list_topics())


async def _names(cluster: KafkaCluster) -> set[str] | None:
    """Of the cluster's topics; None while it is away."""
    try:
        return set(await cluster.list_topics())
    except TransientKafkaError:
        return None
