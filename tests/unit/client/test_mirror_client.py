"""MM2's MirrorClientTest vectors, on a fake cluster."""

from collections.abc import Mapping

import pytest

from twinlog.client import MirrorClient
from twinlog.client.mirror_client import client_properties, consumer_properties
from twinlog.errors import ConfigError, KafkaError, StateError
from twinlog.kafka.ports import CommittedOffset, KafkaCluster
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.wire import Checkpoint, encode_checkpoint

CHECKPOINTS = TopicPartition("A.checkpoints.internal", 0)


def client(cluster: FakeCluster, properties: Mapping[str, str] | None = None) -> MirrorClient:
    def open_fake(alias: str, given: Mapping[str, str]) -> KafkaCluster:
        return cluster

    return MirrorClient(properties or {}, open_cluster=open_fake)


def with_topics(*topics: str) -> FakeCluster:
    cluster = FakeCluster()
    for topic in topics:
        cluster.add_topic(topic)
    return cluster


HOPS = with_topics(
    "topic1", "topic2", "heartbeats", "source1.heartbeats", "source1.source2.heartbeats", "source3.heartbeats"
)


@pytest.mark.parametrize(
    ("upstream", "hops"), [("source1", 1), ("source2", 2), ("source3", 1), ("source4", None)]
)
async def test_hops(upstream: str, hops: int | None) -> None:
    async with client(HOPS) as mirror:
        assert await mirror.replication_hops(upstream) == hops


async def test_upstream_clusters() -> None:
    async with client(HOPS) as mirror:
        assert await mirror.upstream_clusters() == {"source1", "source2", "source3"}
        assert await mirror.heartbeat_topics() == {
            "heartbeats",
            "source1.heartbeats",
            "source1.source2.heartbeats",
            "source3.heartbeats",
        }


async def test_remote_topics() -> None:
    cluster = with_topics(
        "topic1", "topic3", "source1.topic4", "source1.source2.topic5", "source3.topic6", "heartbeats",
        "source1.heartbeats", "source1.checkpoints.internal", "__x.y",
    )  # fmt: skip
    async with client(cluster) as mirror:
        assert await mirror.remote_topics() == {
            "source1.topic4",
            "source1.source2.topic5",
            "source3.topic6",
            "source1.heartbeats",
        }
        assert await mirror.remote_topics("source3") == {"source3.topic6"}
        assert await mirror.checkpoint_topics() == {"source1.checkpoints.internal"}


async def test_names_are_kept_with_identity() -> None:
    identity = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}
    async with client(with_topics("topic1", "backup.heartbeats"), identity) as mirror:
        assert await mirror.remote_topics() == {"backup.heartbeats"}
        assert await mirror.upstream_clusters() == {"backup"}


async def test_offsets_are_those_of_the_latest_checkpoints() -> None:
    cluster = with_topics(CHECKPOINTS.topic)
    async with cluster.writer() as writer:
        await writer.append(CHECKPOINTS, key=b"not", value=b"a checkpoint")
        for group, partition, downstream in [("g1", 0, 5), ("g2", 0, 7), ("g1", 1, 6), ("g1", 0, 9)]:
            key, value = encode_checkpoint(
                Checkpoint(
                    group=group,
                    partition=TopicPartition("A.t", partition),
                    upstream_offset=1,
                    downstream_offset=downstream,
                    metadata="m",
                )
            )
            await writer.append(CHECKPOINTS, key=key, value=value)
    g1 = {
        TopicPartition("A.t", 0): CommittedOffset(next_offset=9, metadata="m"),
        TopicPartition("A.t", 1): CommittedOffset(next_offset=6, metadata="m"),
    }
    g2 = {TopicPartition("A.t", 0): CommittedOffset(next_offset=7, metadata="m")}
    async with client(cluster) as mirror:
        assert await mirror.remote_consumer_offsets("g1", "A", timeout_seconds=5) == g1
        assert await mirror.remote_consumer_offsets("g", "A", timeout_seconds=5) == {}
        matching = await mirror.remote_consumer_offsets_matching(r"g\d", "A", timeout_seconds=5)
        assert matching == {"g1": g1, "g2": g2}
        assert await mirror.remote_consumer_offsets_matching("g", "A", timeout_seconds=5) == {}
        assert await mirror.remote_consumer_offsets("g1", "A", timeout_seconds=0) == {}


async def test_a_cluster_that_is_not_replicated_here_is_an_error() -> None:
    async with client(with_topics("t")) as mirror:
        with pytest.raises(KafkaError) as unknown:
            await mirror.remote_consumer_offsets("g", "nowhere", timeout_seconds=1)
    assert unknown.value.reason == "TOPIC_UNKNOWN"


async def test_it_must_be_opened_and_configured() -> None:
    with pytest.raises(StateError, match="async with"):
        await client(HOPS).upstream_clusters()
    with pytest.raises(ConfigError, match="policy"):
        client(HOPS, {"replication.policy.class": "com.example.Mine"})


def test_settings_of_one_client_win_and_others_are_left_out() -> None:
    properties = {
        "bootstrap.servers": "b:1",
        "consumer.bootstrap.servers": "c:1",
        "security.protocol": "SSL",
        "consumer.client.id": "mine",
        "fetch.max.bytes": "1",
        "replication.policy.separator": "_",
    }
    assert client_properties(properties, "consumer") == {
        "bootstrap.servers": "c:1",
        "security.protocol": "SSL",
    }
    assert client_properties(properties, "admin") == {"bootstrap.servers": "b:1", "security.protocol": "SSL"}


def test_a_logical_consumer_keeps_the_settings_of_its_client() -> None:
    properties = {"bootstrap.servers": "b:1", "consumer.client.id": "mine", "auto.offset.reset": "earliest"}
    found = consumer_properties(properties)
    assert (found["bootstrap.servers"], found["client.id"]) == ("b:1", "mine")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auto.offset.reset", "latest"),
        ("consumer.enable.auto.commit", "true"),
        ("isolation.level", "read_uncommitted"),
    ],
)
def test_a_setting_that_a_logical_consumer_cannot_obey_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key.removeprefix("consumer.")):
        consumer_properties({"bootstrap.servers": "b:1", key: value})
