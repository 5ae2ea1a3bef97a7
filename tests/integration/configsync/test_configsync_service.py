"""configsync as a process of its own against two real clusters, asked over gRPC."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import ConfigChange, ConfigSource, KafkaCluster, NewTopic, TopicDescription
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name
from twinlog.testing.service_process import CALL_SECONDS, run_service


@asynccontextmanager
async def configsync(directory: Path, properties: Mapping[str, str]) -> AsyncIterator[ConfigSyncServiceStub]:
    text = "".join(f"{key} = {value}\n" for key, value in properties.items())
    async with run_service("configsync", directory, text) as service:
        yield ConfigSyncServiceStub(service.channel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """Two clusters under aliases of this test alone, so that its registry is its own."""

    source: KafkaCluster
    target: KafkaCluster
    properties: Mapping[str, str]
    source_alias: str
    target_alias: str

    @property
    def flow(self) -> types_pb2.Flow:
        return types_pb2.Flow(source=self.source_alias, target=self.target_alias)

    def remote(self, topic: str) -> str:
        return f"{self.source_alias}.{topic}"


def settings(
    source_alias: str, source_servers: str, target_alias: str, target_servers: str, topics: str
) -> dict[str, str]:
    return {
        "clusters": f"{source_alias}, {target_alias}",
        f"{source_alias}.bootstrap.servers": source_servers,
        f"{target_alias}.bootstrap.servers": target_servers,
        f"{source_alias}->{target_alias}.enabled": "true",
        f"{target_alias}->{source_alias}.emit.heartbeats.enabled": "false",
        "topics": topics,
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "refresh.topics.interval.seconds": "0.5",
        "sync.topic.configs.interval.seconds": "0.5",
        "heartbeats.replication.enabled": "false",
        "twinlog.drain.seconds": "0",
    }


@pytest.fixture
async def rig(kafka_pair: KafkaPair) -> AsyncIterator[Rig]:
    source_alias, target_alias = unique_name("east"), unique_name("west")

    def client(cluster: BlockingCluster) -> KafkaCluster:
        return open_cluster("test", {"bootstrap.servers": cluster.bootstrap_servers}, timeout_seconds=15.0)

    async with AsyncExitStack() as stack:
        yield Rig(
            source=await stack.enter_async_context(client(kafka_pair.a)),
            target=await stack.enter_async_context(client(kafka_pair.b)),
            properties=settings(
                source_alias,
                kafka_pair.a.bootstrap_servers,
                target_alias,
                kafka_pair.b.bootstrap_servers,
                topics=f"{source_alias}-.*",
            ),
            source_alias=source_alias,
            target_alias=target_alias,
        )


async def create(
    cluster: KafkaCluster, name: str, *, partitions: int = 3, configs: Mapping[str, str] | None = None
) -> None:
    topic = NewTopic(name=name, partition_count=partitions, replication_factor=1, configs=dict(configs or {}))
    await retry_admin(lambda: cluster.create_topics([topic]))


async def describe(cluster: KafkaCluster, name: str) -> TopicDescription | None:
    found = (await cluster.describe_topics([name]))[name]
    return found if isinstance(found, TopicDescription) else None


async def overrides(cluster: KafkaCluster, name: str) -> dict[str, str | None]:
    entries = (await cluster.describe_topic_configs([name]))[name]
    assert not isinstance(entries, Exception)
    return {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}


async def the_topic(
    stub: ConfigSyncServiceStub, name: str, matches: Callable[[pb2.ReplicatedTopic], bool]
) -> pb2.ReplicatedTopic:
    """The topic as ListTopics tells it, once it `matches`."""

    async def look() -> pb2.ReplicatedTopic | None:
        answer = await stub.ListTopics(pb2.ListTopicsRequest(), timeout=CALL_SECONDS)
        return next((each for each in answer.topics if each.source_topic == name and matches(each)), None)

    return await eventually(look)


async def flow_status(
    stub: ConfigSyncServiceStub, matches: Callable[[pb2.FlowStatus], bool]
) -> pb2.FlowStatus:
    async def look() -> pb2.FlowStatus | None:
        answer = await stub.ListFlows(pb2.ListFlowsRequest(), timeout=CALL_SECONDS)
        return next((each for each in answer.flows if matches(each)), None)

    return await eventually(look)


def is_ready(topic: pb2.ReplicatedTopic) -> bool:
    return topic.state == pb2.TOPIC_STATE_READY


async def test_topics_are_created_grown_recreated_and_remembered(rig: Rig, tmp_path: Path) -> None:
    orders, later = f"{rig.source_alias}-orders", f"{rig.source_alias}-later"
    await create(rig.source, orders, configs={"retention.ms": "3600000", "cleanup.policy": "compact"})
    async with configsync(tmp_path, rig.properties) as stub:
        first = await the_topic(stub, orders, is_ready)
        assert (first.target_topic, first.partition_count, first.target_partition_count) == (
            rig.remote(orders),
            3,
            3,
        )
        assert (first.generation, first.created_after_start) == (1, False)
        assert (first.source_cleanup_policy, first.target_compression_type) == ("compact", "producer")
        assert await overrides(rig.target, rig.remote(orders)) == {
            "retention.ms": "3600000",
            "cleanup.policy": "compact",
        }

        await create(rig.source, later, partitions=1)
        assert (await the_topic(stub, later, is_ready)).created_after_start

        await retry_admin(lambda: rig.source.create_partitions({orders: 5}))
        grown = await the_topic(stub, orders, lambda topic: topic.partition_count == 5)
        assert grown.target_partition_count == 5
        described = await describe(rig.target, rig.remote(orders))
        assert described is not None
        assert described.partition_count == 5

    async with configsync(tmp_path, rig.properties) as stub:
        answer = await stub.ListTopics(pb2.ListTopicsRequest(), timeout=CALL_SECONDS)
        remembered = await the_topic(stub, later, is_ready)
        assert remembered.created_after_start
        assert {topic.source_topic for topic in answer.topics} <= {orders, later}

        await retry_admin(lambda: rig.source.delete_topics([orders]))
        gone = await the_topic(stub, orders, lambda topic: topic.state == pb2.TOPIC_STATE_DELETED_AT_SOURCE)
        assert gone.reason == "DELETED_AT_SOURCE"
        assert await describe(rig.target, rig.remote(orders)) is not None
        await create(rig.source, orders)
        again = await the_topic(stub, orders, is_ready)
        assert (again.generation, again.source_topic_id != first.source_topic_id) == (2, True)
        assert again.target_topic_id == first.target_topic_id


async def test_a_watch_tells_what_is_new_and_resumes_without_a_gap(rig: Rig, tmp_path: Path) -> None:
    names = [f"{rig.source_alias}-{number}" for number in range(3)]
    await create(rig.source, names[0], partitions=1)
    async with configsync(tmp_path, rig.properties) as stub:
        await flow_status(stub, lambda flow: flow.state == pb2.FLOW_STATE_SETTLED)
        seen: list[str] = []
        watch = stub.WatchTopics(pb2.WatchTopicsRequest(flow=rig.flow), timeout=30)
        async for response in watch:
            if response.WhichOneof("event") == "snapshot_item":
                seen.append(response.snapshot_item.source_topic)
            if response.WhichOneof("event") == "snapshot_end":
                assert list(response.snapshot_end.settled_flows) == [rig.flow]
                token = response.resume_token
                break
        watch.cancel()
        assert seen == [names[0]]

        for name in names[1:]:
            await create(rig.source, name, partitions=1)
            await the_topic(stub, name, is_ready)
        resumed = stub.WatchTopics(pb2.WatchTopicsRequest(resume_token=token), timeout=30)
        changed: list[str] = []
        async for response in resumed:
            assert response.WhichOneof("event") == "changed"
            changed.append(response.changed.source_topic)
            if changed == names[1:]:
                break
        resumed.cancel()


async def test_configs_follow_the_source_and_drift_is_reverted(rig: Rig, tmp_path: Path) -> None:
    orders = f"{rig.source_alias}-orders"
    remote = rig.remote(orders)
    await create(rig.source, orders, configs={"retention.ms": "3600000", "min.insync.replicas": "1"})
    async with configsync(tmp_path, rig.properties) as stub:
        await the_topic(stub, orders, is_ready)
        assert await overrides(rig.target, remote) == {"retention.ms": "3600000"}

        foreign = [
            ConfigChange(name="retention.ms", value="5"),
            ConfigChange(name="segment.bytes", value="1048576"),
            ConfigChange(name="min.insync.replicas", value="1"),
        ]
        await retry_admin(lambda: rig.target.alter_topic_configs({remote: foreign}))

        async def reverted() -> bool:
            return await overrides(rig.target, remote) == {
                "retention.ms": "3600000",
                "min.insync.replicas": "1",
            }

        await eventually(reverted)

        larger = [
            ConfigChange(name="max.message.bytes", value="2097152"),
            ConfigChange(name="retention.ms", value=None),
        ]
        await retry_admin(lambda: rig.source.alter_topic_configs({orders: larger}))
        told = await the_topic(stub, orders, lambda topic: topic.target_max_message_bytes == 2_097_152)
        assert is_ready(told)
        assert await overrides(rig.target, remote) == {
            "max.message.bytes": "2097152",
            "min.insync.replicas": "1",
        }


async def test_a_flow_without_topics_settles_and_says_so(rig: Rig, tmp_path: Path) -> None:
    async with configsync(tmp_path, rig.properties) as stub:
        status = await flow_status(stub, lambda flow: flow.state == pb2.FLOW_STATE_SETTLED)
        assert status.reason == "NO_TOPICS_SELECTED"
        assert "topics.exclude" in status.message
    assert (tmp_path / "configsync.log").read_text().count("NO_TOPICS_SELECTED") == 1


async def test_one_topic_that_cannot_be_created_stops_no_other(rig: Rig, tmp_path: Path) -> None:
    good = f"{rig.source_alias}-good"
    # The source takes a name of 244 characters; with the alias in front the target does not.
    bad = f"{rig.source_alias}-{'x' * 230}"
    await create(rig.source, bad, partitions=1)
    await create(rig.source, good, partitions=1)
    async with configsync(tmp_path, rig.properties) as stub:
        await the_topic(stub, good, is_ready)
        refused = await the_topic(stub, bad, lambda topic: topic.state == pb2.TOPIC_STATE_WAITING)
        assert refused.reason == "TOPIC_INVALID"


PLATFORM = """
import asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

class Platform:
    def __init__(self, config):
        self.servers = config["bootstrap.servers"]

    async def made(self, topic):
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        await admin.create_topics([topic])
        await admin.close()

    def create_topic(self, name, partition_count, replication_factor, configs):
        if name.endswith("-refused"):
            raise PermissionError("no budget")
        topic = NewTopic(name, partition_count, 1, topic_configs={"retention.ms": "3599999"})
        asyncio.run(self.made(topic))
"""


async def test_a_class_of_another_package_makes_the_copies_and_what_it_refuses_is_said(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "packages" / "acme_platform-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-platform\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[twinlog.policies]\ncom.acme.Admin = acme_platform:Platform\n")
    (about.parent / "acme_platform.py").write_text(PLATFORM)
    monkeypatch.setenv("PYTHONPATH", str(about.parent))
    made, refused = f"{rig.source_alias}-made", f"{rig.source_alias}-refused"
    for name in (made, refused):
        await create(rig.source, name, partitions=2)
    forwarding = {"forwarding.admin.class": "com.acme.Admin", "sync.topic.configs.enabled": "false"}
    async with configsync(tmp_path, {**rig.properties, **forwarding}) as stub:
        await the_topic(stub, made, is_ready)
        waits = await the_topic(stub, refused, lambda topic: topic.state == pb2.TOPIC_STATE_WAITING)
        assert waits.reason == "FORWARDING_FAILED"
        assert "no budget" in waits.message
    assert await overrides(rig.target, rig.remote(made)) == {"retention.ms": "3599999"}
    assert await describe(rig.target, rig.remote(refused)) is None


async def test_a_flow_from_a_cluster_to_itself_is_refused(
    rig: Rig, kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    servers = kafka_pair.a.bootstrap_servers
    properties = settings(rig.source_alias, servers, rig.target_alias, servers, topics=".*")
    async with configsync(tmp_path, properties) as stub:
        status = await flow_status(stub, lambda flow: flow.state == pb2.FLOW_STATE_REFUSED)
        assert status.reason == "SAME_CLUSTER"
        assert f"{rig.source_alias}.bootstrap.servers" in status.message
    created = [name for name in await rig.source.list_topics() if rig.source_alias in name]
    assert created == []


async def test_it_starts_and_stops_with_both_clusters_away(tmp_path: Path) -> None:
    properties = settings("A", "127.0.0.1:1", "B", "127.0.0.1:2", topics=".*")
    async with configsync(tmp_path, properties) as stub:
        status = await flow_status(stub, lambda flow: flow.reason != "STARTING")
        assert status.state == pb2.FLOW_STATE_STARTING
        assert status.reason == "KAFKA_UNAVAILABLE"
        assert "B.bootstrap.servers" in status.message
        assert {cluster.alias for cluster in status.clusters} == {"A", "B"}
        answer = await stub.ListTopics(pb2.ListTopicsRequest(), timeout=CALL_SECONDS)
        assert not answer.topics
        assert not answer.settled_flows
