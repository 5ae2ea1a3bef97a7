"""uReplicator's and Brooklin's topics become flows that keep names, of these topics and no others."""

import json

import pytest

from twinlog.errors import ConfigError
from twinlog.imports import Fate, Format
from twinlog.selection_configured import topic_selector
from unit.imports.estates import imported, read_back, texts
from unit.name_lists import topic_lists

PLACES = {"source": "A=a:9092", "target": "B=b:9092", "group": "ureplicator"}


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        ("Current serving topics: [orders, pay.ments]", "auto"),
        ("# all\norders\npay.ments pay.ments\n\n", "ureplicator"),
        ('["orders", "pay.ments"]', "auto"),
        ('[{"topic": "orders", "numPartitions": "8"}, {"topic": "pay.ments", "numPartitions": "1"}]', "auto"),
    ],
)
def test_every_form_of_ureplicators_topics_is_read(text: str, format_: str) -> None:
    found = imported(text, format=Format(format_), **PLACES)

    assert found.format is Format.UREPLICATOR
    [flow] = read_back(found).flows
    assert str(flow.flow) == "A->B"
    assert flow.enabled
    chosen = topic_lists(",".join(flow.configsync.topics.include))
    names = ("orders", "pay.ments", "payXments", "orders2")
    assert [name for name in names if chosen.takes(name)] == ["orders", "pay.ments"]
    assert flow.policy_config["replication.policy.class"].endswith(".IdentityReplicationPolicy")
    assert flow.clients.source_consumer.bootstrap_servers == ("a:9092",)
    assert flow.source.start_group == "ureplicator"
    assert not flow.checkpoint.enabled
    assert not flow.heartbeat.enabled


def test_without_the_group_of_its_positions_a_flow_does_not_begin_again_from_the_start() -> None:
    found = imported("Current serving topics: [orders]", source="A=a:9092", target="B=b:9092")

    assert found.complete
    assert "A->B.enabled=false" in found.properties
    assert "--group" in texts(found, Fate.TO_DO)


def test_where_the_clusters_are_is_a_named_placeholder_if_nobody_says_it() -> None:
    found = imported("Current serving topics: [orders]")

    assert "source.bootstrap.servers=${env:SOURCE_BOOTSTRAP_SERVERS}" in found.properties
    assert "set the variable TARGET_BOOTSTRAP_SERVERS" in texts(found, Fate.TO_DO)


def _stream(name: str, source: str, **metadata: str) -> dict[str, object]:
    return {
        "name": name,
        "connectorName": "kafkaMirroringConnector",
        "transportProviderName": "kafkaTransportProvider",
        "source": {"connectionString": source},
        "Status": "READY",
        "metadata": {"owner": "ops", **metadata},
    }


def test_datastreams_of_brooklin_become_a_flow_for_each_source() -> None:
    streams = [
        _stream("one", "kafka://a1:9092,a2:9092/^(first|second)-topic$"),
        _stream("two", "kafka://a1:9092,a2:9092/^third$"),
        _stream("other", "kafka://c:9092/^x.*$", **{"group.id": "brooklin-x"}),
    ]

    streams[0]["metadata"] = streams[1]["metadata"] = {"group.id": "brooklin"}
    found = imported(json.dumps({"elements": streams}), target="B=b:9092")

    assert found.format is Format.BROOKLIN
    flows = {str(each.flow): each for each in read_back(found).flows}
    assert flows["source1->B"].configsync.topics.include == ("(first|second)-topic", "third")
    assert flows["source1->B"].clients.source_consumer.bootstrap_servers == ("a1:9092", "a2:9092")
    assert flows["source2->B"].configsync.topics.include == ("x.*",)
    assert [flow.source.start_group for flow in flows.values()] == ["brooklin", "brooklin-x"]


def test_a_pattern_with_a_comma_and_a_prefix_are_impossible() -> None:
    comma = imported(json.dumps(_stream("one", "kafka://a:9092/^t{1,3}$")), **PLACES)
    assert "a comma ends a pattern" in texts(comma, Fate.IMPOSSIBLE)

    prefix = {"system.destination.destinationTopicPrefix": "copy-"}
    streams = [_stream("one", "kafka://a:9092/^t$"), _stream("two", "kafka://a:9092/^u$", **prefix)]
    found = imported(json.dumps(streams), **PLACES)
    assert "puts a prefix before names" in texts(found, Fate.IMPOSSIBLE)
    [flow] = read_back(found).flows
    assert flow.configsync.topics.include == ("t",)


def test_what_is_no_topic_is_told_with_its_line() -> None:
    found = imported('[{"topic": "a"},\n {"topc": "b"},\n null]', format=Format.UREPLICATOR, **PLACES)

    assert not found.complete
    assert [(each.line, each.place) for each in found.lines if each.fate is Fate.IMPOSSIBLE] == [
        (2, "[1]"),
        (3, "[2]"),
    ]


def test_a_plain_list_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match="--format"):
        imported("orders\npayments\n")


def test_an_import_changes_nothing_on_the_target_but_what_was_copied() -> None:
    """The old tool synced no configs: a first sync would set the retention of an archive back."""
    found = imported("orders\norders.replica\n__consumer_offsets\n", format=Format.UREPLICATOR, **PLACES)

    [flow] = read_back(found).flows
    assert not flow.configsync.sync_configs_enabled
    assert not flow.configsync.sync_acls_enabled
    rules = topic_selector(flow)
    names = ("orders", "orders.replica", "heartbeats", "__consumer_offsets")
    assert [name for name in names if rules.selects(name)] == ["orders", "orders.replica"]
    assert "__consumer_offsets is an internal topic" in texts(found, Fate.IMPOSSIBLE)
