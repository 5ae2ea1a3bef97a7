"""Which setting wins: against MM2's own MirrorMakerConfig, and the vectors of its MirrorMakerConfigTest and
MirrorConnectorConfigTest.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from twinlog.config.values import precedence as precedence
from twinlog.config.values.precedence import ClusterSide, Connector, Settings
from twinlog.model import Flow
from twinlog.properties import Property

Golden = Callable[[str], list[dict[str, Any]]]
A_TO_B = Flow("a", "b")


def settings(values: dict[str, str]) -> dict[str, Property]:
    return {key: Property(key=key, value=value, line=1) for key, value in values.items()}


def plain(properties: Settings) -> dict[str, str]:
    return {key: prop.value for key, prop in properties.items()}


def unresolved(prop: Property) -> Property:
    return prop


def connector(**values: str) -> dict[str, Property]:
    """A connector's config as MirrorConnectorConfigTest makes it; `__` stands for a dot."""
    names = {key.replace("__", "."): value for key, value in values.items()}
    return settings({"name": "ConnectorName", **names})


def test_every_setting_is_mm2s(golden: Golden) -> None:
    for vector in golden("config_precedence"):
        raw = settings(vector["properties"])
        flows = precedence.herder_flows(vector["properties"], ["A", "B"])
        assert sorted(str(flow) for flow in flows) == vector["flows"]
        for flow in flows:
            expected = vector["by_flow"][str(flow)]
            base = precedence.connector_properties(raw, flow, Connector.SOURCE)
            assert plain(base) == expected["connector"]
            assert plain(precedence.worker_properties(raw, flow, unresolved)) == expected["worker"]
            aliases = Flow(base["source.cluster.alias"].value, base["target.cluster.alias"].value)
            clients = {
                f"{side}_{kind}": plain(properties(base, side))
                for side in ClusterSide
                for kind, properties in (
                    ("consumer", precedence.consumer_properties),
                    ("producer", precedence.producer_properties),
                    ("admin", precedence.admin_properties),
                )
            }
            for name, client in clients.items():
                user = client.get("client.id")
                client["client.id"] = precedence.client_id(aliases, base["name"].value, "role", user=user)
                assert client == expected[name], name
        for alias, by_client in vector["mirror_clients"].items():
            for client_name, given in by_client.items():
                assert plain(precedence.mirror_client_properties(raw, alias, client_name)) == given


@pytest.mark.parametrize(
    ("clusters", "switches", "count"),
    [
        ("abc", {}, 6),
        ("abc", {"emit.heartbeats.enabled": "false"}, 0),
        ("abc", {"a->b.emit.heartbeats.enabled": "false", "a->c.emit.heartbeats.enabled": "false"}, 4),
        (
            "abcdef",
            {
                "emit.heartbeats.enabled": "false",
                "a->b.enabled": "true",
                "a->c.enabled": "true",
                "a->d.enabled": "true",
                "a->e.enabled": "false",
                "a->f.enabled": "false",
            },
            3,
        ),
        (
            ["central", "local_one", "local_two", "beats_emitter"],
            {
                "emit.heartbeats.enabled": "false",
                "central->local_one.enabled": "true",
                "central->local_two.enabled": "true",
                "beats_emitter->central.emit.heartbeats.enabled": "true",
            },
            3,
        ),
    ],
)
def test_cluster_pairs(clusters: Iterable[str], switches: dict[str, str], count: int) -> None:
    assert len(precedence.herder_flows(switches, clusters)) == count


@pytest.mark.parametrize(
    ("value", "runs"), [("true", True), ("TRUE", True), ("true ", False), ("yes", False), ("false", False)]
)
def test_flows_are_found_with_javas_parse_boolean(value: str, runs: bool) -> None:
    flows = precedence.herder_flows({"emit.heartbeats.enabled": "false", "a->b.enabled": value}, ["a", "b"])
    assert (A_TO_B in flows) is runs


def test_cluster_properties_reach_the_connector() -> None:
    raw = settings(
        {
            "a.bootstrap.servers": "servers-one",
            "b.bootstrap.servers": "servers-two",
            "security.protocol": "SSL",
            "replication.factor": "4",
            "xxx": "yyy",
        }
    )
    found = plain(precedence.connector_properties(raw, A_TO_B, Connector.SOURCE))
    assert found["source.cluster.bootstrap.servers"] == "servers-one"
    assert found["target.cluster.bootstrap.servers"] == "servers-two"
    assert found["security.protocol"] == "SSL"
    assert found["replication.factor"] == "4"
    assert found["enabled"] == "false"
    assert "xxx" not in found


def test_a_flows_own_properties_win() -> None:
    raw = settings({"tasks.max": "1", "a->b.tasks.max": "123", "b->a.tasks.max": "9", "a->b.anything": "x"})
    found = plain(precedence.connector_properties(raw, A_TO_B, Connector.CHECKPOINT))
    assert found["tasks.max"] == "123"
    assert found["anything"] == "x"
    assert found["connector.class"] == "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"


def test_references_stay_as_written_in_connectors_and_are_resolved_for_workers() -> None:
    raw = settings({"ssl.key.password": "${fake:secret:password}", "config.providers": "${fake:x:y}"})

    def resolved(prop: Property) -> Property:
        return Property(key=prop.key, value="secret2")

    base = plain(precedence.connector_properties(raw, A_TO_B, Connector.SOURCE))
    worker = plain(precedence.worker_properties(raw, A_TO_B, resolved))
    assert base["ssl.key.password"] == base["source.producer.ssl.key.password"] == "${fake:secret:password}"
    assert worker["ssl.key.password"] == worker["producer.ssl.key.password"] == "secret2"
    assert worker["config.providers"] == "${fake:x:y}"


def test_worker_settings_of_the_target_and_of_the_top_level() -> None:
    raw = settings(
        {
            "replication.policy.separator": "__",
            "offset.storage.replication.factor": "123",
            "b.status.storage.replication.factor": "456",
            "b.producer.client.id": "client-one",
            "b.security.protocol": "PLAINTEXT",
            "b.producer.security.protocol": "SASL",
            "exactly.once.source.support": "enabled",
            "b.offset.flush.interval.ms": "1",
            "a->b.group.id": "never",
        }
    )
    into_b = plain(precedence.worker_properties(raw, A_TO_B, unresolved))
    assert into_b["offset.storage.replication.factor"] == "123"
    assert into_b["status.storage.replication.factor"] == "456"
    assert into_b["producer.client.id"] == "client-one"
    assert into_b["producer.security.protocol"] == "SASL"
    assert into_b["consumer.security.protocol"] == "PLAINTEXT"
    assert into_b["replication.policy.separator"] == "__"
    assert into_b["offset.flush.interval.ms"] == "1"
    assert into_b["offset.storage.topic"] == "mm2-offsets.a.internal"
    assert into_b["group.id"] == "a-mm2"
    assert "exactly.once.source.support" not in into_b


@pytest.mark.parametrize("prefix", ["consumer__", "source__consumer__"])
def test_source_consumer(prefix: str) -> None:
    name = f"{prefix}auto__offset__reset"
    config = connector(source__cluster__bootstrap__servers="localhost:2345", **{name: "latest"})
    assert plain(precedence.consumer_properties(config, ClusterSide.SOURCE)) == {
        "bootstrap.servers": "localhost:2345",
        "enable.auto.commit": "false",
        "auto.offset.reset": "latest",
    }
    assert (
        plain(precedence.consumer_properties(connector(), ClusterSide.SOURCE))["auto.offset.reset"]
        == "earliest"
    )


def test_the_most_specific_client_prefix_wins() -> None:
    config = connector(
        source__cluster__security__protocol="SSL",
        source__cluster__linger__ms="1",
        producer__security__protocol="SASL_SSL",
        producer__acks="1",
        source__producer__acks="all",
        target__producer__acks="0",
    )
    source = plain(precedence.producer_properties(config, ClusterSide.SOURCE))
    assert source == {"security.protocol": "SASL_SSL", "acks": "all"}
    assert plain(precedence.producer_properties(config, ClusterSide.TARGET))["acks"] == "0"


def test_auto_commit_is_never_on() -> None:
    config = connector(source__consumer__enable__auto__commit="true")
    assert plain(precedence.consumer_properties(config, ClusterSide.SOURCE))["enable.auto.commit"] == "false"


def test_the_data_producer_takes_the_targets_settings_and_the_flows_overrides() -> None:
    raw = settings(
        {
            "b.bootstrap.servers": "b:1",
            "b.producer.linger.ms": "5",
            "b.producer.batch.size": "1",
            "a->b.producer.override.batch.size": "2",
            "a->b.producer.compression.type": "lz4",
            "ssl.key.password": "x",
        }
    )
    worker = precedence.worker_properties(raw, A_TO_B, unresolved)
    base = precedence.connector_properties(raw, A_TO_B, Connector.SOURCE)
    assert plain(precedence.data_producer_properties(worker, base)) == {
        "bootstrap.servers": "b:1",
        "linger.ms": "5",
        "batch.size": "2",
        "ssl.key.password": "x",
    }


def test_mirror_client_takes_client_keys_only() -> None:
    raw = settings(
        {
            "ssl.truststore.password": "secret1",
            "security.protocol": "SSL",
            "a.security.protocol": "PLAINTEXT",
            "a.producer.security.protocol": "SSL",
            "a.bootstrap.servers": "one:9092, two:9092",
            "a.xxx": "yyy",
            "a.consumer.client.id": "ignored",
            "xxx": "zzz",
        }
    )
    common = {"ssl.truststore.password": "secret1", "bootstrap.servers": "one:9092, two:9092"}
    for client, protocol in (("admin", "PLAINTEXT"), ("consumer", "PLAINTEXT"), ("producer", "SSL")):
        found = plain(precedence.mirror_client_properties(raw, "a", client))
        assert found == {**common, "security.protocol": protocol}


@pytest.mark.parametrize(
    ("role", "user", "task", "expected"),
    [
        ("replication-consumer", None, 0, "A->B|MirrorSourceConnector-0|replication-consumer"),
        (
            "offset-syncs-source-admin",
            "mine",
            None,
            "mine|A->B|MirrorSourceConnector|offset-syncs-source-admin",
        ),
        (None, None, None, "A->B|MirrorSourceConnector"),
    ],
)
def test_client_id(role: str | None, user: str | None, task: int | None, expected: str) -> None:
    found = precedence.client_id(Flow("A", "B"), Connector.SOURCE, role, user=user, task_index=task)
    assert found == expected
