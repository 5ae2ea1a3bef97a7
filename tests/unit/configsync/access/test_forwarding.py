"""A class of another package makes topics, settings and ACLs on the target, in place of Kafka's requests."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from twinlog.config import load
from twinlog.errors import ConfigError
from twinlog.kafka.ports import AclBinding, ConfigChange, KafkaCluster, NewTopic
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_configsync.app import forwarded
from twinlog_configsync.config import configsync_flows

MODULE = '''
made = []

class Platform:
    """Orders what is wanted from another system."""

    def __init__(self, config):
        made.append(("by", config["bootstrap.servers"]))

    def create_topic(self, name, partition_count, replication_factor, configs):
        if name == "A.refused":
            raise PermissionError("no budget")
        made.append(("topic", name, partition_count, dict(configs)))

    def alter_topic(self, name, configs):
        made.append(("settings", name, dict(configs)))

    def create_acl(self, resource_type, resource_name, pattern_type, principal, host, operation, permission):
        made.append(("acl", principal, operation, resource_name))

class Nothing:
    def __init__(self, config):
        pass

class Fails:
    def __init__(self, config):
        raise LookupError("planted")
'''
PACKAGE = "acme_forwarding_of_tests"


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A properties file that names a class, beside an installed package that has some."""
    about = tmp_path / "packages" / "acme_forwarding-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-forwarding\nVersion: 1.0\n")
    entries = [f"com.acme.{name} = {PACKAGE}:{name}" for name in ("Platform", "Nothing", "Fails")]
    (about / "entry_points.txt").write_text("\n".join(["[twinlog.policies]", *entries]) + "\n")
    (about.parent / f"{PACKAGE}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(about.parent)
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)

    def written(class_name: str) -> Path:
        file = tmp_path / "mm2.properties"
        file.write_text(
            "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\n"
            f"A->B.enabled = true\nforwarding.admin.class = {class_name}\n"
        )
        return file

    return written


def target_of(file: Path, cluster: FakeCluster) -> KafkaCluster:
    (flow,) = configsync_flows(load(file, environ={}))
    return forwarded(cluster, flow.forwarding_class, flow.target_client.properties)


def done() -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = sys.modules[PACKAGE].made
    return found


async def test_what_the_class_has_a_method_for_is_asked_of_it_and_the_rest_of_kafka(
    text: Callable[[str], Path],
) -> None:
    cluster = FakeCluster("B", authorizer=True)
    target = target_of(text("com.acme.Platform"), cluster)
    orders = NewTopic(name="A.orders", partition_count=3, replication_factor=1, configs={"a": "b"})
    assert await target.create_topics([orders]) == {"A.orders": None}
    changes = {
        "A.orders": [
            ConfigChange(name="retention.ms", value="1"),
            ConfigChange(name="cleanup.policy", value=None),
        ]
    }
    assert await target.alter_topic_configs(changes) == {"A.orders": None}
    binding = AclBinding(
        resource_type="TOPIC",
        resource_name="A.orders",
        pattern_type="LITERAL",
        principal="User:app",
        host="*",
        operation="READ",
        permission="ALLOW",
    )
    assert await target.create_acls([binding]) == {binding: None}
    assert done() == [
        ("by", "b:9092"),
        ("topic", "A.orders", 3, {"a": "b"}),
        ("settings", "A.orders", {"retention.ms": "1", "cleanup.policy": None}),
        ("acl", "User:app", "READ", "A.orders"),
    ]
    assert cluster.acls == set()
    assert "A.orders" not in await target.list_topics(), "questions are Kafka's"
    cluster.add_topic("A.orders")
    assert await target.create_partitions({"A.orders": 5}) == {"A.orders": None}
    description = (await target.describe_topics(["A.orders"]))["A.orders"]
    assert getattr(description, "partition_count", None) == 5, "it has no grow_topic"


async def test_what_it_refuses_is_said_and_the_others_are_made(text: Callable[[str], Path]) -> None:
    target = target_of(text("com.acme.Platform"), FakeCluster("B"))
    topics = [
        NewTopic(name=name, partition_count=1, replication_factor=1) for name in ("A.refused", "A.orders")
    ]
    answers = await target.create_topics(topics)
    assert answers["A.orders"] is None
    refusal = answers["A.refused"]
    assert refusal is not None
    assert refusal.reason == "FORWARDING_FAILED"
    assert "com.acme.Platform.create_topic: PermissionError: no budget" in str(refusal)


@pytest.mark.parametrize(
    ("name", "words"), [("Nothing", "has none of create_topic"), ("Fails", "LookupError: planted")]
)
def test_a_class_that_can_do_nothing_is_refused_at_the_start(
    text: Callable[[str], Path], name: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        target_of(text(f"com.acme.{name}"), FakeCluster("B"))


def test_kafkas_own_class_is_kafka_itself(text: Callable[[str], Path]) -> None:
    cluster = FakeCluster("B")
    assert target_of(text("org.apache.kafka.clients.admin.ForwardingAdmin"), cluster) is cluster
