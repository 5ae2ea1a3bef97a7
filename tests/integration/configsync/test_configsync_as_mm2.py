"""The same clusters under the real MirrorMaker 2 and under configsync: the same topics, configs, ACLs."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import (
    AclBinding,
    ConfigChange,
    ConfigSource,
    KafkaCluster,
    NewTopic,
    TopicDescription,
)
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.model import Flow
from twinlog.testing.brokers import eventually, retry_admin, start_clusters, stop_clusters
from twinlog.testing.java.mm2 import mirror_maker_2, quick_mm2_properties
from twinlog.testing.service_process import run_service

pytestmark = pytest.mark.java

TOPICS: Mapping[str, tuple[int, dict[str, str]]] = {
    "orders": (3, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}),
    "users": (1, {"retention.ms": "3600000", "min.insync.replicas": "1", "max.message.bytes": "2000000"}),
    "plain": (2, {}),
    "orders.v1": (1, {"compression.type": "zstd"}),
    "C.carts": (1, {}),
    # Kept out by the rules of both:
    "B.loop": (1, {}),
    "C.B.loop": (1, {}),
    "secret.replica": (1, {}),
    "mm2-anything.internal": (1, {}),
    "Z.checkpoints.internal": (1, {}),
    "__own": (1, {}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AsMm2Rig:
    """One source; the target of MM2 and the target of Twinlog, both called B."""

    source: KafkaCluster
    by_mm2: KafkaCluster
    by_twinlog: KafkaCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    source: BlockingCluster
    by_mm2: BlockingCluster
    by_twinlog: BlockingCluster


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    security = Security(mechanisms=(SaslMechanism.PLAIN,), authorizer=True)
    clusters = start_clusters(
        *(ClusterSpec(name=name, security=security) for name in ("source", "by-mm2", "by-twinlog"))
    )
    yield Brokers(source=clusters[0], by_mm2=clusters[1], by_twinlog=clusters[2])
    stop_clusters(clusters)


@pytest.fixture
async def rig(brokers: Brokers) -> AsyncIterator[AsMm2Rig]:
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(open_cluster(cluster.spec.name, cluster.client_properties()))
            for cluster in (brokers.source, brokers.by_mm2, brokers.by_twinlog)
        ]
        yield AsMm2Rig(source=opened[0], by_mm2=opened[1], by_twinlog=opened[2])


def acl(operation: str, name: str, **changes: str) -> AclBinding:
    binding = AclBinding(
        resource_type="TOPIC",
        resource_name=name,
        pattern_type="LITERAL",
        principal="User:alice",
        host="*",
        operation=operation,
        permission="ALLOW",
    )
    return replace(binding, **changes)


ACLS = [
    acl("READ", "orders"),
    acl("WRITE", "orders"),
    acl("ALL", "orders", principal="User:admin"),
    acl("ALL", "orders", principal="User:eve", permission="DENY"),
    acl("WRITE", "users", principal="User:eve", permission="DENY"),
    *(acl(operation, "users", principal="User:ops") for operation in ("DESCRIBE", "ALTER", "CREATE")),
    acl("READ", "users", host="10.0.0.1"),
    acl("READ", "not-there-yet"),
    acl("READ", "*", principal="User:everything"),
    acl("READ", "or", pattern_type="PREFIXED"),
    acl("READ", "secret.replica"),
    acl("READ", "B.loop"),
    acl("READ", "group", resource_type="GROUP"),
    acl("WRITE", "tx", resource_type="TRANSACTIONAL_ID"),
    acl("DESCRIBE", "kafka-cluster", resource_type="CLUSTER"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """What came out on a target."""

    topics: Mapping[str, tuple[int, Mapping[str, str | None]]]
    """Partition count and overrides by name."""
    acls: frozenset[AclBinding]


async def copies(target: KafkaCluster) -> Copies:
    names = [name for name in await target.list_topics() if name.startswith("A.")]
    names = [name for name in names if not name.endswith("checkpoints.internal")]
    described = await target.describe_topics(names)
    configs = await target.describe_topic_configs(names)
    topics: dict[str, tuple[int, Mapping[str, str | None]]] = {}
    for name in names:
        topic, entries = described[name], configs[name]
        assert isinstance(topic, TopicDescription)
        assert not isinstance(entries, Exception)
        overrides = {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}
        topics[name] = (topic.partition_count, overrides)
    return Copies(topics=topics, acls=frozenset(await target.describe_acls() or ()))


async def change_the_source(source: KafkaCluster) -> None:
    """What a later day brings: other configs, more partitions, another topic, more and fewer rights."""
    altered = await source.alter_topic_configs(
        {
            "users": [
                ConfigChange(name="retention.ms", value=None),
                ConfigChange(name="segment.bytes", value="104857600"),
            ],
            "plain": [ConfigChange(name="cleanup.policy", value="compact,delete")],
        }
    )
    assert set(altered.values()) == {None}
    await retry_admin(lambda: source.create_partitions({"plain": 4}))
    carts = NewTopic(name="carts", partition_count=1, replication_factor=1)
    await retry_admin(lambda: source.create_topics([carts]))
    later = [acl("READ", "carts"), acl("ALL", "plain")]
    await retry_admin(lambda: source.create_acls(later))
    await retry_admin(lambda: source.delete_acls([acl("READ", "orders")]))


async def change_the_target(target: KafkaCluster) -> None:
    """What somebody changed there: one that is synced, one that is excluded, one the source has not set."""
    foreign = [
        ConfigChange(name="max.message.bytes", value="1000"),
        ConfigChange(name="min.insync.replicas", value="1"),
        ConfigChange(name="flush.ms", value="5"),
    ]

    async def taken() -> bool:
        return await target.alter_topic_configs({"A.users": foreign}) == {"A.users": None}

    await eventually(taken)


RULES = {
    # Heartbeats differ: MM2 runs all of its connectors, here only configsync runs.
    "topics.exclude": r"heartbeats, mm2.*\.internal, .*\.replica, __.*",
    "heartbeats.replication.enabled": "false",
    "sync.topic.acls.enabled": "true",
    "sync.topic.acls.interval.seconds": "1",
}


def twinlog_properties(source: BlockingCluster, target: BlockingCluster) -> str:
    clients = {"A": source.client_properties(), "B": target.client_properties()}
    mm2 = quick_mm2_properties(clients, [Flow("A", "B")], RULES)
    return f"{mm2}\ntwinlog.drain.seconds = 0\n"


async def test_topics_configs_and_acls_are_those_of_mm2(
    brokers: Brokers, rig: AsMm2Rig, tmp_path: Path
) -> None:
    wanted = [
        NewTopic(name=name, partition_count=partitions, replication_factor=1, configs=configs)
        for name, (partitions, configs) in TOPICS.items()
    ]
    await retry_admin(lambda: rig.source.create_topics(wanted))
    await retry_admin(lambda: rig.source.create_acls(ACLS))

    clients = {"A": brokers.source.client_properties(), "B": brokers.by_mm2.client_properties()}
    theirs = quick_mm2_properties(clients, [Flow("A", "B")], RULES)
    ours = twinlog_properties(brokers.source, brokers.by_twinlog)
    async with (
        mirror_maker_2(theirs, tmp_path),
        run_service("configsync", tmp_path / "configsync", ours),
    ):

        async def same() -> bool:
            by_mm2, by_twinlog = await copies(rig.by_mm2), await copies(rig.by_twinlog)
            assert by_twinlog.topics == by_mm2.topics
            assert by_twinlog.acls == by_mm2.acls
            return len(by_mm2.topics) >= 5 and len(by_mm2.acls) >= 10

        await eventually(same)

        await change_the_source(rig.source)
        for target in (rig.by_mm2, rig.by_twinlog):
            await change_the_target(target)

        async def same_again() -> bool:
            await same()
            after = await copies(rig.by_mm2)
            users = after.topics["A.users"][1]
            return (
                "A.carts" in after.topics
                and after.topics["A.plain"][0] == 4
                and users.get("max.message.bytes") == "2000000"
                and "flush.ms" not in users
                and acl("READ", "A.carts") in after.acls
            )

        await eventually(same_again)
        final = await copies(rig.by_twinlog)
    assert sorted(final.topics) == ["A.C.carts", "A.carts", "A.orders", "A.orders.v1", "A.plain", "A.users"]
    assert acl("READ", "A.orders") in final.acls, "mode mm2 never deletes"
