"""What becomes of topics: names, sizes, times, loops."""

import shlex
from dataclasses import replace
from typing import Any

import pytest

from twinlog.errors import TransientKafkaError
from twinlog.kafka.ports import ConfigSource
from twinlog.preflight.checks import judge
from twinlog.preflight.facts import ClusterFacts, GroupRights, Severity
from unit.preflight.facts_rig import (
    CREATED,
    EVERYTHING,
    IDENTITY,
    ITS_TOPIC,
    NO_GROUP,
    STAMPED,
    Configure,
    cluster,
    described,
    entry,
    facts_of,
    the_trouble,
    topic,
    troubles,
)


def test_a_cluster_that_is_away_is_named_and_nothing_is_said_about_its_flows(configure: Configure) -> None:
    away = ClusterFacts(alias="B", unreachable=TransientKafkaError("connection refused"))
    facts = facts_of(configure({}), clusters={"B": away})
    finding = the_trouble(facts)
    assert (finding.level, finding.about, finding.check) == (Severity.ERROR, "B", "reachable")
    assert "B.bootstrap.servers" in finding.remedy
    assert "loops" not in [each.check for each in judge(facts)], "whose topics nobody knows"


def test_a_flow_without_topics(configure: Configure) -> None:
    finding = the_trouble(facts_of(configure({}), topics={"A->B": ()}))
    assert (finding.level, finding.check) == (Severity.WARNING, "topics")


def test_a_message_size_that_was_raised_on_the_sources_brokers_does_not_come_along(
    configure: Configure,
) -> None:
    larger = topic(source_configs=(entry("max.message.bytes", "5000000"),))
    finding = the_trouble(facts_of(configure({}), topics={"A->B": (larger,)}))
    assert (finding.level, finding.check) == (Severity.WARNING, "message size")
    as_large = cluster("B", broker_configs={"message.max.bytes": "5000000"})
    assert troubles(facts_of(configure({}), topics={"A->B": (larger,)}, clusters={"B": as_large})) == []


def test_a_message_size_set_on_the_topic_comes_along_unless_it_is_excluded(configure: Configure) -> None:
    larger = topic(source_configs=(entry("max.message.bytes", "5000000", ConfigSource.TOPIC),))
    assert troubles(facts_of(configure({}), topics={"A->B": (larger,)})) == []
    excluding = configure({"config.properties.exclude": r"max\.message.*"})
    finding = the_trouble(facts_of(excluding, topics={"A->B": (larger,)}))
    assert finding.check == "message size"
    others = configure({"twinlog.sync.topic.configs.include": "retention.ms"})
    assert the_trouble(facts_of(others, topics={"A->B": (larger,)})).check == "message size"
    fixed = configure(
        {
            "config.properties.exclude": r"max\.message.*",
            "twinlog.sync.topic.configs.fixed": f"{larger.name} max.message.bytes=6000000",
        }
    )
    assert troubles(facts_of(fixed, topics={"A->B": (larger,)})) == []


def test_a_record_also_has_to_fit_into_a_segment_of_the_target(configure: Configure) -> None:
    source = entry("max.message.bytes", "1000000"), entry("segment.bytes", "2000000")
    small = topic(source_configs=source, target_configs=(entry("segment.bytes", "500000"),))
    finding = the_trouble(facts_of(configure({}), topics={"A->B": (small,)}))
    assert (finding.check, "500000" in finding.message) == ("message size", True)


@pytest.mark.parametrize(
    ("source", "target", "is_warned"),
    [("delete", "compact", True), ("delete", "compact,delete", True), ("compact", "compact", False)],
)
def test_a_copy_that_is_compacted_alone_refuses_records_without_a_key(
    configure: Configure, source: str, target: str, is_warned: bool
) -> None:
    one = topic(
        source_configs=(entry("cleanup.policy", source),), target_configs=(entry("cleanup.policy", target),)
    )
    found = troubles(facts_of(configure({}), topics={"A->B": (one,)}))
    assert [each.check for each in found] == ["keys"] * is_warned
    own = topic(
        source_configs=(entry("cleanup.policy", source, ConfigSource.TOPIC),),
        target_configs=(entry("cleanup.policy", target),),
    )
    assert not troubles(facts_of(configure({}), topics={"A->B": (own,)})), "config sync sets it"


def test_a_copy_that_the_file_compacts_is_mended_in_the_file(configure: Configure) -> None:
    """On the target it would be set again."""
    fixed = {"A->B.twinlog.sync.topic.configs.fixed": "orders cleanup.policy=compact"}
    one = topic(source_configs=(entry("cleanup.policy", "delete"),))
    finding = the_trouble(facts_of(configure(fixed), topics={"A->B": (one,)}))
    told = "take cleanup.policy out of twinlog.sync.topic.configs.fixed, unless every record has a key"
    assert (finding.check, finding.remedy) == ("keys", told)


def test_records_without_a_key_from_before_the_topic_was_compacted(configure: Configure) -> None:
    compacted = (entry("cleanup.policy", "compact", ConfigSource.TOPIC),)
    old = topic(source_configs=compacted, keyless={1: 7, 2: 0})
    finding = the_trouble(facts_of(configure({}), topics={"A->B": (old,)}))
    assert (finding.check, f"record 7 of {old.name}-1" in finding.message) == ("keys", True)
    assert "1 more" in finding.message


@pytest.mark.parametrize(
    ("name", "value", "broker"),
    [
        ("message.timestamp.before.max.ms", str(2**63 - 1), {"log.message.timestamp.before.max.ms": "1000"}),
        ("message.timestamp.after.max.ms", str(2**63 - 1), {}),
    ],
)
def test_timestamps_that_the_target_would_refuse(
    configure: Configure, name: str, value: str, broker: dict[str, str]
) -> None:
    old = topic(source_configs=(entry(name, value, ConfigSource.DEFAULT),))
    facts = facts_of(
        configure({}), topics={"A->B": (old,)}, clusters={"B": cluster("B", broker_configs=broker)}
    )
    finding = the_trouble(facts)
    assert (finding.level, finding.check) == (Severity.WARNING, "timestamps")
    assert name in finding.remedy


@pytest.mark.parametrize(
    ("changes", "broker", "properties", "words"),
    [
        ({"source_configs": (STAMPED,)}, {}, {}, ["the source stamps records itself"]),
        ({"source_configs": (CREATED,)}, {}, {}, []),
        (
            {"source_configs": (CREATED,)},
            {"log.message.timestamp.type": "LogAppendTime"},
            {},
            ["B stamps the copies itself"],
        ),
        (
            {"source_configs": (CREATED,), "target": described("A.orders"), "target_configs": (ITS_TOPIC,)},
            {},
            {},
            ["B stamps the copies itself"],
        ),
        (
            {"source_configs": (CREATED,), "target": described("A.orders"), "target_configs": (CREATED,)},
            {"log.message.timestamp.type": "LogAppendTime"},
            {},
            [],
        ),
        ({"source_configs": (ITS_TOPIC,)}, {}, {}, ["the source stamps records itself"]),
        (
            {"source_configs": (ITS_TOPIC,)},
            {},
            {"config.properties.exclude": "min.insync.replicas"},
            ["the source stamps records itself", "B stamps the copies itself"],
        ),
    ],
)
def test_times_that_a_broker_makes_itself(
    configure: Configure,
    changes: dict[str, Any],
    broker: dict[str, str],
    properties: dict[str, str],
    words: list[str],
) -> None:
    facts = facts_of(
        configure(properties),
        topics={"A->B": (replace(topic(), **changes),)},
        clusters={"B": cluster("B", broker_configs=broker)},
    )
    found = [finding for finding in troubles(facts) if finding.check == "timestamps"]
    assert all(finding.level is Severity.WARNING for finding in found)
    assert len(found) == len(words)
    assert all(word in finding.message for word, finding in zip(words, found, strict=True))


def test_a_name_that_becomes_too_long(configure: Configure) -> None:
    long = topic("x" * 249)
    finding = the_trouble(facts_of(configure({}), topics={"A->B": (long,)}))
    assert (finding.level, finding.check) == (Severity.ERROR, "name")
    assert long.name not in finding.message, "it stands in front"


def test_a_topic_of_the_targets_own_under_identity_names(configure: Configure) -> None:
    configuration = configure({"replication.policy.class": IDENTITY})
    present = topic(target_name="orders", target=described("orders"), target_operations=EVERYTHING)
    finding = the_trouble(facts_of(configuration, topics={"A->B": (present,)}))
    assert (finding.level, finding.check) == (Severity.WARNING, "name")


def test_identity_names_there_and_back_are_no_loop(configure: Configure) -> None:
    properties = {"replication.policy.class": IDENTITY, "B->A.enabled": "true"}
    present = topic(target_name="orders", target=described("orders"), target_operations=EVERYTHING)
    round_trip = {"A->B": (present,), "B->A": (present,)}
    assert troubles(facts_of(configure(properties), topics=round_trip)) == []
    excluding = configure({**properties, "B->A.topics.exclude": "orders"})
    found = troubles(facts_of(excluding, topics={"A->B": round_trip["A->B"], "B->A": ()}))
    assert [each.check for each in found] == ["name", "topics"]
    assert troubles(facts_of(configure({"B->A.enabled": "true"}))) == []


def test_identity_names_round_three_clusters(configure: Configure) -> None:
    properties = {"replication.policy.class": IDENTITY, "B->C.enabled": "true", "C->A.enabled": "true"}
    around = {flow: (topic(target_name="orders"),) for flow in ("A->B", "B->C", "C->A")}
    findings = troubles(facts_of(configure(properties), topics=around))
    assert [(finding.check, finding.about) for finding in findings] == [("loops", "A->B and B->C and C->A")]


@pytest.mark.parametrize(("policy", "has_back"), [(IDENTITY, False), (IDENTITY, True), ("", False)])
def test_a_flow_back_that_is_not_in_the_file_is_named_with_how_to_end_it(
    configure: Configure, policy: str, *, has_back: bool
) -> None:
    clusters = {"A": cluster("A", topics=frozenset({"orders", "mm2-offsets.B.internal"}))}
    properties = {"B->A.enabled": str(has_back).lower()}
    properties |= {"replication.policy.class": policy} if policy else {}
    found = [
        each.message
        for each in judge(facts_of(configure(properties), clusters=clusters))
        if each.check == "both ways"
    ]
    assert len(found) == (policy == IDENTITY and not has_back)
    assert all("delete mm2-offsets.B.internal" in each for each in found)


@pytest.mark.parametrize(("policy", "name"), [(IDENTITY, "orders"), ("", None)])
def test_a_mesh_with_a_file_for_each_source_is_told_what_will_wait(
    configure: Configure, policy: str, name: str | None
) -> None:
    tables = {"A": "BC", "B": "AC", "C": "AB"}
    clusters = {
        alias: cluster(alias, topics=frozenset({"orders", *(f"mm2-offsets.{each}.internal" for each in of)}))
        for alias, of in tables.items()
    }
    properties = {"A->C.enabled": "true"} | ({"replication.policy.class": policy} if policy else {})
    flows = {each: (topic(target_name=name),) for each in ("A->B", "A->C")}
    found = [
        each for each in troubles(facts_of(configure(properties), flows, clusters)) if each.check == "mesh"
    ]
    assert [each.about for each in found] == (["A->B", "A->C"] if policy else [])
    assert all("into one file" in each.remedy for each in found)


def test_identity_names_there_and_back_over_two_aliases_of_one_cluster_are_no_loop(
    configure: Configure,
) -> None:
    properties = {"replication.policy.class": IDENTITY, "B->C.enabled": "true"}
    there_and_back = {flow: (topic(target_name="orders"),) for flow in ("A->B", "B->C")}
    facts = facts_of(
        configure(properties), topics=there_and_back, clusters={"C": cluster("C", cluster_id="id-A")}
    )
    assert troubles(facts) == []


@pytest.mark.parametrize(
    ("ours", "of_brokers", "is_refused"),
    [("0.10.2-IV0", {}, True), ("2.3-IV1", {"log.message.format.version": "0.10.0"}, False)]
    + [("", {"log.message.format.version": "0.10.0", "inter.broker.protocol.version": each}, refused)
       for each, refused in (("2.8-IV1", True), ("3.0-IV1", False))],
)  # fmt: skip
def test_nothing_is_copied_to_topics_in_a_format_without_producer_ids(
    configure: Configure, ours: str, of_brokers: dict[str, str], is_refused: bool
) -> None:
    configs = (entry("message.format.version", ours, ConfigSource.TOPIC),) if ours else ()
    copied = replace(topic(target_configs=configs), target_operations=EVERYTHING)
    old = cluster("B", release="2.5", broker_configs={**cluster("B").broker_configs, **of_brokers})
    facts = facts_of(configure({}), topics={"A->B": (copied,)}, clusters={"B": old})
    found = [each.about for each in troubles(facts) if each.check == "message format"]
    assert found == (["B A.orders"] if is_refused else [])


def test_two_sources_in_one_target_topic(configure: Configure) -> None:
    properties = {
        "replication.policy.class": IDENTITY,
        "A->B.enabled": "false",
        "A->C.enabled": "true",
        "B->C.enabled": "true",
    }
    both = {flow: (topic(target_name="orders"),) for flow in ("A->C", "B->C")}
    finding = the_trouble(facts_of(configure(properties), topics=both))
    assert (finding.check, finding.about) == ("name collision", "C orders")


def test_the_name_of_a_group_ends_no_quotation_of_a_command(configure: Configure) -> None:
    groups = GroupRights(on_source={"x'; rm -rf ~; '": NO_GROUP})
    (command,) = {
        each.remedy
        for each in troubles(facts_of(configure({}), groups=groups))
        if each.level is Severity.ERROR
    }
    assert shlex.split(command)[-1] == "x'; rm -rf ~; '"


def test_a_topic_that_another_one_is_renamed_onto_is_an_error(configure: Configure) -> None:
    configuration = configure({"twinlog.topic.rename": "legacy -> orders", "topics": ".*"})
    source = cluster("A", topics=("legacy", "orders", "others"))
    finding = the_trouble(facts_of(configuration, clusters={"A": source}))
    assert (finding.level, finding.check, finding.about) == (Severity.ERROR, "rename", "A->B orders")
    assert "legacy" in finding.message


@pytest.mark.parametrize(
    ("there", "copies"),
    [
        (("A_orders.v1",), ("orders_v1",)),
        ((), ("orders.v1", "orders_v1")),
        (("A.orders_v1", "A.orders-v1", "other"), ("orders_v1", "paid")),
    ],
)
def test_a_copy_that_kafka_does_not_create_beside_a_topic_of_nearly_its_name_is_named(
    configure: Configure, there: tuple[str, ...], copies: tuple[str, ...]
) -> None:
    facts = facts_of(
        configure({}),
        topics={"A->B": [topic(name) for name in copies]},
        clusters={"B": cluster("B", topics=frozenset(there))},
    )
    found = [finding for finding in troubles(facts) if finding.check == "name collision"]
    collides = "A.orders_v1" not in there
    assert [finding.level for finding in found] == [Severity.ERROR] * collides
    assert all("A.orders_v1" in finding.message for finding in found)
    assert all("twinlog.topic.rename" in (finding.remedy or "") for finding in found)
