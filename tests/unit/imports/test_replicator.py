"""Confluent Replicator's connector becomes a flow that keeps names and continues where its group stood."""

import json

import pytest

from twinlog.imports import Fate, Format
from twinlog.policy.rename import parse_renames
from twinlog.selection_configured import topic_selector
from unit.imports.estates import imported, read_back, texts

CONFIG = {
    "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
    "src.kafka.bootstrap.servers": "a:9092",
    "src.kafka.security.protocol": "PLAINTEXT",
    "dest.kafka.bootstrap.servers": "b:9092",
    "topic.whitelist": "orders,pay.ments",
    "topic.regex": "app-.*",
    "topic.blacklist": "app-test",
    "topic.config.sync": "false",
    "tasks.max": "4",
    "src.consumer.fetch.max.bytes": "1000",
    "src.key.converter": "io.confluent.connect.replicator.util.ByteArrayConverter",
    "confluent.topic.replication.factor": "1",
}
ALIASES = {"source": "A", "target": "B"}


def as_rest(**more: str) -> str:
    return json.dumps([{"name": "replicator", "config": {**CONFIG, **more}}])


def test_it_becomes_a_flow_that_keeps_names() -> None:
    found = imported(as_rest(), **ALIASES)

    assert found.format is Format.CONNECT
    assert found.complete
    [flow] = read_back(found).flows
    assert str(flow.flow) == "A->B"
    assert flow.enabled
    assert flow.configsync.topics.include == ("orders", r"pay\.ments", "app-.*")
    assert flow.configsync.topics.exclude == ("app-test",)
    assert flow.policy_config["replication.policy.class"].endswith("IdentityReplicationPolicy")
    assert flow.source.start_group == "replicator", "by default the connector's name"
    assert flow.source.max_slots == 4
    assert not flow.configsync.sync_configs_enabled
    assert not flow.configsync.sync_acls_enabled
    assert flow.clients.source_consumer.properties["fetch.max.bytes"] == "1000"
    assert flow.clients.data_producer.bootstrap_servers == ("b:9092",)


def test_the_group_may_have_a_name_of_its_own() -> None:
    [flow] = read_back(imported(as_rest(**{"src.consumer.group.id": "own"}), **ALIASES)).flows
    assert flow.source.start_group == "own"


@pytest.mark.parametrize(
    ("more", "fate", "word"),
    [
        ({"topic.rename.format": "all"}, Fate.IMPOSSIBLE, "twinlog.topic.rename"),
        ({"topic.preserve.partitions": "false"}, Fate.IMPOSSIBLE, "partitions by their keys"),
        ({"schema.subject.translator.class": "x"}, Fate.IMPOSSIBLE, "changes records"),
        ({"src.consumer.group.id": " "}, Fate.TO_DO, "twinlog.start.group"),
        ({"src.value.converter": "org.example.AvroConverter"}, Fate.IMPOSSIBLE, "changes records"),
        ({"topic.regex": "a{1,3}"}, Fate.IMPOSSIBLE, "a comma"),
        ({"offset.topic.commit": "false"}, Fate.TO_DO, "twinlog.start.time"),
    ],
)
def test_a_flow_that_would_copy_something_else_is_switched_off(
    more: dict[str, str], fate: Fate, word: str
) -> None:
    found = imported(as_rest(**more), **ALIASES)

    assert word in texts(found, fate)
    assert "A->B.enabled=false" in found.properties


@pytest.mark.parametrize(
    ("format_", "copy"), [("${topic}.replica", "a.b.replica"), ("dc1_${topic}", "dc1_a.b")]
)
def test_a_format_of_names_is_a_rule_that_gives_the_same_names(format_: str, copy: str) -> None:
    found = imported(as_rest(**{"topic.rename.format": format_}), **ALIASES)

    assert found.complete
    [flow] = read_back(found).flows
    assert flow.enabled
    assert parse_renames(flow.policy_config["twinlog.topic.rename"]).apply("a.b") == copy


def test_every_topic_that_it_lists_is_copied_and_an_internal_one_is_told() -> None:
    found = imported(
        as_rest(**{"topic.whitelist": "orders.replica, mm2x.internal, __consumer_offsets"}), **ALIASES
    )

    [flow] = read_back(found).flows
    assert topic_selector(flow).selects("orders.replica")
    assert "mm2x.internal, __consumer_offsets: internal topics" in texts(found, Fate.IMPOSSIBLE)
