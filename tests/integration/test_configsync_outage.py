"""The target goes away while configsync works: what is known stays, and the rest is done when it is back."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.properties_text import render_properties
from twinlog.local.spec import ClusterSpec
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.service_process import ServiceProcess, run_service

CALL_SECONDS = 5.0


async def create(cluster: KafkaCluster, name: str) -> None:
    topic = NewTopic(name=name, partition_count=1, replication_factor=1)
    assert await cluster.create_topics([topic]) == {name: None}


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


async def test_a_target_that_comes_back_gets_what_it_missed(
    kafka_pair: KafkaPair, start_cluster: Callable[[ClusterSpec], BlockingCluster], tmp_path: Path
) -> None:
    target = start_cluster(ClusterSpec(name="mortal"))
    east = unique_name("east")
    first, later = f"{east}-first", f"{east}-later"
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
    async with open_cluster("A", kafka_pair.a.client_properties()) as source:
        await create(source, first)
        async with run_service("configsync", tmp_path, properties) as service:

            async def first_is_ready() -> bool:
                return await states(service) == {first: pb2.TOPIC_STATE_READY}

            await eventually(first_is_ready)
            await asyncio.to_thread(target.kill_broker, 1)
            await create(source, later)

            async def degraded() -> bool:
                return (await flow(service)).state == pb2.FLOW_STATE_DEGRADED

            await eventually(degraded, 60)
            assert await states(service) == {first: pb2.TOPIC_STATE_READY}
            await asyncio.to_thread(target.restart_broker, 1)

            async def both_are_ready() -> bool:
                return await states(service) == dict.fromkeys((first, later), pb2.TOPIC_STATE_READY)

            await eventually(both_are_ready, 60)
            assert (await flow(service)).state == pb2.FLOW_STATE_SETTLED
