"""What preflight says of facts: every check, in order and out of order."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from twinlog.config import Address, Configuration, load
from twinlog.errors import FatalKafkaError, TransientKafkaError
from twinlog.kafka.admin.inspector import release_of
from twinlog.kafka.ports import ConfigEntry, ConfigSource, TopicDescription
from twinlog.preflight.checks import judge
from twinlog.preflight.facts import ClusterFacts, Facts, FlowFacts, GroupRights, InternalTopic, TopicFacts
from twinlog.preflight.findings import Finding, Level
from twinlog.preflight.group_rights import FAILING_OVER
from twinlog.preflight.own_topics import own_topics
from twinlog.preflight.report import needed_acl_commands
from twinlog.preflight.right import ELECTIONS
from twinlog.selection_configured import topic_selector

ABSENT = FatalKafkaError("no such topic", reason="TOPIC_UNKNOWN", code=3)
NO_GROUP = FatalKafkaError("an ACL for the group is missing", reason="GROUP_UNAUTHORIZED", code=30)
AWAY = TransientKafkaError("no answer in time", reason="KAFKA_TIMEOUT")
FORBIDDEN = FatalKafkaError("an ACL for the topic is missing", reason="TOPIC_UNAUTHORIZED", code=29)
EVERYTHING = frozenset(
    {
        "ALTER",
        "ALTER_CONFIGS",
        "CREATE",
        "DELETE",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "IDEMPOTENT_WRITE",
        "READ",
        "WRITE",
    }
)
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"

Configure = Callable[[Mapping[str, str]], Configuration]


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    def make(properties: Mapping[str, str]) -> Configuration:
        settings = {
            "clusters": "A, B, C",
            **{f"{alias}.bootstrap.servers": f"{alias.lower()}:9092" for alias in "ABC"},
            "A->B.enabled": "true",
            **properties,
        }
        file = tmp_path / "mm2.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        return load(file, environ={})

    return make


def cluster(alias: str, **changes: object) -> ClusterFacts:
    facts = ClusterFacts(
        alias=alias,
        cluster_id=f"id-{alias}",
        release="4.0",
        broker_count=3,
        broker_configs={"default.replication.factor": "3", "min.insync.replicas": "1"},
        topics=frozenset({"orders"}),
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def described(name: str) -> TopicDescription:
    return TopicDescription(name=name, topic_id="id", partition_count=1, replication_factor=1, internal=False)


def topic(name: str = "orders", *, target_name: str | None = None, **changes: object) -> TopicFacts:
    facts = TopicFacts(
        name=name,
        target_name=target_name or f"A.{name}",
        source=described(name),
        target=ABSENT,
        source_operations=EVERYTHING,
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def facts_of(
    configuration: Configuration,
    topics: Mapping[str, Sequence[TopicFacts]] | None = None,
    clusters: Mapping[str, ClusterFacts] | None = None,
    **changes: object,
) -> Facts:
    """`topics` by flow; one topic `orders` in every flow when left out."""
    flows = [
        FlowFacts(
            config=config,
            selector=topic_selector(config),
            topics=(topics or {}).get(str(config.flow), () if topics else (topic(),)),
            source_operations=EVERYTHING,
            target_operations=EVERYTHING,
        )
        for config in configuration.enabled_flows
    ]
    return Facts(
        clusters={alias: (clusters or {}).get(alias, cluster(alias)) for alias in "ABC"},
        flows=[replace(flow, **changes) for flow in flows],  # type: ignore[arg-type]
    )


def troubles(facts: Facts) -> list[Finding]:
    return [finding for finding in judge(facts) if finding.level is not Level.OK]


def the_trouble(facts: Facts) -> Finding:
    (finding,) = troubles(facts)
    return finding


def test_nothing_stands_in_the_way(configure: Configure) -> None:
    assert troubles(facts_of(configure({}))) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1", "localhost", "[::1]"])
def test_an_address_that_only_this_machine_reaches_is_fine(configure: Configure, host: str) -> None:
    facts = replace(facts_of(configure({})), listens={"source": Address(host=host, port=1)})
    assert troubles(facts) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.7", "source.internal"])
@pytest.mark.parametrize(("insecure", "level"), [("false", Level.ERROR), ("true", Level.WARNING)])
def test_an_address_that_others_reach_needs_security_or_a_word_that_it_goes_without(
    configure: Configure, host: str, insecure: str, level: Level
) -> None:
    configuration = configure({"twinlog.source.insecure": insecure})
    facts = replace(
        facts_of(configuration),
        listens={"source": Address(host=host, port=1)},
        security=configuration.security,
    )
    found = the_trouble(facts)
    assert found.level is level
    assert "no authentication" in found.message
    assert "twinlog.source.listen" in found.remedy


def test_a_misspelt_key_is_a_warning_with_its_place_and_the_key_that_was_meant(configure: Configure) -> None:
    configuration = configure({"A->B.topcis": "orders"})
    facts = replace(facts_of(configuration), file="mm2.properties", notices=configuration.notices)
    found = the_trouble(facts)
    assert (found.level, found.check) == (Level.WARNING, "configuration")
    assert found.about == "mm2.properties:6"
    assert found.message == "A->B.topcis: unknown key; did you mean A->B.topics?"


def test_a_key_without_effect_is_mentioned_and_no_trouble(configure: Configure) -> None:
    configuration = configure({"tasks.max.enforce": "true"})
    facts = replace(facts_of(configuration), notices=configuration.notices)
    assert troubles(facts) == []
    assert any(found.message.startswith("tasks.max.enforce") for found in judge(facts))


def test_a_cluster_that_is_away_is_named_and_nothing_is_said_about_its_flows(configure: Configure) -> None:
    away = ClusterFacts(alias="B", unreachable=TransientKafkaError("connection refused"))
    finding = the_trouble(facts_of(configure({}), clusters={"B": away}))
    assert (finding.level, finding.about, finding.check) == (Level.ERROR, "B", "reachable")
    assert "B.bootstrap.servers" in finding.remedy


def test_refused_credentials_do_not_send_anybody_to_the_addresses(configure: Configure) -> None:
    refused = FatalKafkaError("the broker refused the credentials", reason="AUTHENTICATION_FAILED")
    locked = ClusterFacts(alias="B", unreachable=refused)
    finding = the_trouble(facts_of(configure({}), clusters={"B": locked}))
    assert "B.sasl.jaas.config" in finding.remedy
    assert "bootstrap.servers" not in finding.remedy


def test_a_release_that_is_too_old(configure: Configure) -> None:
    finding = the_trouble(facts_of(configure({}), clusters={"B": cluster("B", release="2.3")}))
    assert (finding.level, finding.check) == (Level.ERROR, "version")


def test_one_cluster_on_both_ends(configure: Configure) -> None:
    finding = the_trouble(facts_of(configure({}), clusters={"B": cluster("B", cluster_id="id-A")}))
    assert (finding.level, finding.check, finding.about) == (Level.ERROR, "two clusters", "A->B")


def test_a_flow_without_topics(configure: Configure) -> None:
    finding = the_trouble(facts_of(configure({}), topics={"A->B": ()}))
    assert (finding.level, finding.check) == (Level.WARNING, "topics")


def test_too_few_brokers_for_a_replication_factor(configure: Configure) -> None:
    facts = facts_of(
        configure({"replication.factor": "2"}),
        clusters={"B": cluster("B", broker_count=1), "A": cluster("A", broker_count=1)},
    )
    assert {(finding.level, finding.check) for finding in troubles(facts)} == {
        (Level.ERROR, key)
        for key in (
            "replication.factor",
            "offset.storage.replication.factor",
            "offset-syncs.topic.replication.factor",
            "checkpoints.topic.replication.factor",
            "heartbeats.topic.replication.factor",
        )
    }


def test_min_isr_above_the_replication_factor(configure: Configure) -> None:
    strict = cluster("B", broker_configs={"min.insync.replicas": "2"})
    facts = facts_of(configure({"replication.factor": "1"}), clusters={"B": strict})
    finding = the_trouble(facts)
    assert (finding.level, finding.check) == (Level.ERROR, "replication.factor")
    assert "2 in sync" in finding.message


def test_minus_one_is_judged_by_the_brokers_default(configure: Configure) -> None:
    few = cluster("B", broker_count=2, broker_configs={"default.replication.factor": "3"})
    facts = facts_of(configure({"replication.factor": "-1"}), clusters={"B": few})
    assert "replication.factor" in {finding.check for finding in troubles(facts)}


def entry(name: str, value: str, source: ConfigSource = ConfigSource.STATIC_BROKER) -> ConfigEntry:
    return ConfigEntry(name=name, value=value, source=source)


def test_a_message_size_that_was_raised_on_the_sources_brokers_does_not_come_along(
    configure: Configure,
) -> None:
    larger = topic(source_configs=(entry("max.message.bytes", "5000000"),))
    finding = the_trouble(facts_of(configure({}), topics={"A->B": (larger,)}))
    assert (finding.level, finding.check) == (Level.WARNING, "message size")
    as_large = cluster("B", broker_configs={"message.max.bytes": "5000000"})
    assert troubles(facts_of(configure({}), topics={"A->B": (larger,)}, clusters={"B": as_large})) == []


def test_a_message_size_set_on_the_topic_comes_along_unless_it_is_excluded(configure: Configure) -> None:
    larger = topic(source_configs=(entry("max.message.bytes", "5000000", ConfigSource.TOPIC),))
    assert troubles(facts_of(configure({}), topics={"A->B": (larger,)})) == []
    excluding = configure({"config.properties.exclude": r"max\.message.*"})
    finding = the_trouble(facts_of(excluding, topics={"A->B": (larger,)}))
    assert finding.check == "message size"


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
    assert (finding.level, finding.check) == (Level.WARNING, "timestamps")
    assert name in finding.remedy


STAMPED = entry("message.timestamp.type", "LogAppendTime")
CREATED = entry("message.timestamp.type", "CreateTime", ConfigSource.DEFAULT)
ITS_TOPIC = replace(STAMPED, source=ConfigSource.TOPIC)


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
    assert all(finding.level is Level.WARNING for finding in found)
    assert len(found) == len(words)
    assert all(word in finding.message for word, finding in zip(words, found, strict=True))


def test_a_name_that_becomes_too_long(configure: Configure) -> None:
    long = topic("x" * 249)
    finding = the_trouble(facts_of(configure({}), topics={"A->B": (long,)}))
    assert (finding.level, finding.check) == (Level.ERROR, "name")


def test_a_topic_of_the_targets_own_under_identity_names(configure: Configure) -> None:
    configuration = configure({"replication.policy.class": IDENTITY})
    present = topic(target_name="orders", target=described("orders"), target_operations=EVERYTHING)
    finding = the_trouble(facts_of(configuration, topics={"A->B": (present,)}))
    assert (finding.level, finding.check) == (Level.WARNING, "name")


def test_identity_names_there_and_back_go_round_for_ever(configure: Configure) -> None:
    properties = {"replication.policy.class": IDENTITY, "B->A.enabled": "true"}
    round_trip = {"A->B": (topic(target_name="orders"),), "B->A": (topic(target_name="orders"),)}
    finding = the_trouble(facts_of(configure(properties), topics=round_trip))
    assert (finding.level, finding.check, finding.about) == (Level.ERROR, "loops", "A->B and B->A")
    excluding = configure({**properties, "B->A.topics.exclude": "orders"})
    assert troubles(facts_of(excluding, topics={"A->B": round_trip["A->B"], "B->A": ()}))[0].check == "topics"
    assert troubles(facts_of(configure({"B->A.enabled": "true"}))) == []


def test_identity_names_round_three_clusters(configure: Configure) -> None:
    properties = {"replication.policy.class": IDENTITY, "B->C.enabled": "true", "C->A.enabled": "true"}
    around = {flow: (topic(target_name="orders"),) for flow in ("A->B", "B->C", "C->A")}
    findings = troubles(facts_of(configure(properties), topics=around))
    assert [(finding.check, finding.about) for finding in findings] == [("loops", "A->B and B->C and C->A")]


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


def test_missing_rights_come_with_the_command_that_grants_them(configure: Configure) -> None:
    blind = topic(source_operations=frozenset({"DESCRIBE"}), creation=FORBIDDEN)
    facts = facts_of(configure({}), topics={"A->B": (blind,)}, source_principal="User:mirror")
    source, target = troubles(facts)
    assert source.remedy == (
        "kafka-acls.sh --bootstrap-server a:9092 --command-config admin.properties --add "
        "--allow-principal 'User:mirror' --operation Read --operation DescribeConfigs --topic 'orders'"
    )
    assert target.remedy.endswith("--operation Create --topic 'A.orders'")
    assert {source.level, target.level} == {Level.ERROR}


def test_rights_that_a_flow_can_go_on_without_are_warnings(configure: Configure) -> None:
    facts = facts_of(configure({}), source_operations=frozenset(), target_operations=frozenset())
    assert {finding.level for finding in troubles(facts)} == {Level.WARNING}
    without_acls = configure({"sync.topic.acls.enabled": "false", "emit.checkpoints.enabled": "false"})
    assert troubles(facts_of(without_acls, source_operations=frozenset())) == []


def test_fencing_is_named_as_what_alter_on_the_source_is_needed_for(configure: Configure) -> None:
    configuration = configure({"sync.topic.acls.enabled": "false"})
    found = the_trouble(facts_of(configuration, source_operations=EVERYTHING - {"ALTER"}))
    assert found.level is Level.WARNING
    assert found.message.endswith("lacks ALTER on --cluster of A: needed only for failover --fence")


def test_a_right_on_transactional_ids_that_is_missing_is_an_error(configure: Configure) -> None:
    found = the_trouble(facts_of(configure({}), transactions=False, target_principal="User:mirror"))
    assert found.level is Level.ERROR
    assert found.message == (
        "User:mirror lacks WRITE on --transactional-id 'twinlog-A-B-' --resource-pattern-type prefixed of B"
    )


def test_rights_on_groups_are_missing_where_they_are_needed(configure: Configure) -> None:
    groups = GroupRights(
        elections={"twinlog-source-A-B": NO_GROUP},
        on_source={"billing": frozenset({"DESCRIBE"})},
        on_target={"billing": NO_GROUP},
    )
    found = troubles(facts_of(configure({"twinlog.sync.group.deletes.enabled": "true"}), groups=groups))
    assert [(each.level, each.message.partition("lacks ")[2]) for each in found] == [
        (
            Level.WARNING,
            f"READ on {ELECTIONS} of B: a second process with this flow does not stand by without it",
        ),
        (
            Level.WARNING,
            "READ on --group 'billing' of A: needed only for failback, which commits offsets of groups there",
        ),
        (
            Level.WARNING,
            "READ on --group 'billing' of B: needed only for failover, which commits offsets of groups there",
        ),
        (Level.ERROR, "DELETE on --group 'billing' of B"),
    ]
    syncing = facts_of(configure({"sync.group.offsets.enabled": "true"}), groups=groups)
    errors = [each.message for each in troubles(syncing) if each.level is Level.ERROR]
    assert [each.partition("lacks ")[2] for each in errors] == ["READ on --group 'billing' of B"]


def test_many_groups_without_a_right_are_one_finding(configure: Configure) -> None:
    groups = GroupRights(on_source={f"g{number}": NO_GROUP for number in range(40)})
    found = [each for each in troubles(facts_of(configure({}), groups=groups)) if each.level is Level.ERROR]
    assert [each.message.partition("lacks ")[2] for each in found] == ["DESCRIBE on --group '*' of A"]


def test_the_name_of_a_group_ends_no_quotation_of_a_command(configure: Configure) -> None:
    groups = GroupRights(on_source={"x'; rm -rf ~; '": NO_GROUP})
    (command,) = {
        each.remedy for each in troubles(facts_of(configure({}), groups=groups)) if each.level is Level.ERROR
    }
    assert shlex.split(command)[-1] == "x'; rm -rf ~; '"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source_operations": AWAY}, "rights on the cluster A itself: "),
        ({"target_operations": AWAY}, "rights on the cluster B itself: "),
        ({"transactions": AWAY}, "the right to WRITE on --transactional-id 'twinlog-A-B-'"),
        ({"groups": GroupRights(unlisted=AWAY)}, "the groups of A cannot be listed"),
        ({"groups": GroupRights(sees_all=False)}, "A does not list them, so they are not translated"),
        ({"groups": GroupRights(not_asked=7)}, "rights on 7 more groups"),
        ({"groups": GroupRights(elections={"twinlog-source-A-B": AWAY})}, "group twinlog-source-A-B of B"),
        ({"other_principals": {"B producer": "User:writer"}}, "User:writer, as whom the B producer logs in"),
        (
            {"internal": (InternalTopic(cluster="B", name="mm2-failover.A.internal", operations=AWAY),)},
            "rights on mm2-failover.A.internal of B",
        ),
    ],
)
def test_what_cannot_be_checked_is_said(configure: Configure, changes: dict[str, Any], words: str) -> None:
    found = the_trouble(facts_of(configure({}), **changes))
    assert (found.level, found.check) == (Level.WARNING, "not checked")
    assert words in found.message


def test_deleting_topics_takes_the_right_to(configure: Configure) -> None:
    present = topic(target=described("A.orders"), target_operations=EVERYTHING - {"DELETE"})
    assert troubles(facts_of(configure({}), topics={"A->B": (present,)})) == []
    deleting = configure({"twinlog.sync.topic.deletes.enabled": "true"})
    found = the_trouble(facts_of(deleting, topics={"A->B": (present,)}))
    assert found.message.endswith("lacks DELETE on --topic 'A.orders' of B")


@pytest.mark.parametrize(("release", "needed"), [("2.7", True), ("2.8", False), ("4.0", False)])
def test_idempotent_writers_need_a_right_of_their_own_on_old_brokers(
    configure: Configure, release: str, needed: bool
) -> None:
    facts = facts_of(
        configure({}),
        clusters={"B": cluster("B", release=release)},
        target_operations=EVERYTHING - {"IDEMPOTENT_WRITE"},
    )
    assert bool(troubles(facts)) is needed


def test_every_topic_of_the_mirrors_own_is_looked_at_and_granted(configure: Configure) -> None:
    configuration = configure({"offset.storage.topic": "positions"})
    (config,) = configuration.enabled_flows
    names = {
        "positions",
        "mm2-configsync.A.internal",
        "mm2-offset-syncs.B.internal",
        "A.checkpoints.internal",
        "mm2-failover.A.internal",
        "mm2-sync-history.A.internal",
        "heartbeats",
    }
    assert {own.name for own in own_topics(config, topic_selector(config).policy)} == names
    commands = needed_acl_commands(configuration)
    for name in names:
        (command,) = {each for each in commands if f"--topic '{name}'" in each and "server b" in each} or {
            each for each in commands if f"--topic '{name}'" in each
        }
        assert "--operation Create --operation Describe --operation Read --operation Write" in command


def test_rights_for_one_purpose_stand_below_it_in_a_comment(configure: Configure) -> None:
    lines = needed_acl_commands(configure({"sync.topic.acls.enabled": "false"}))
    fencing = lines.index("# needed only for failover --fence:")
    assert lines[fencing + 1].endswith("--operation Describe --operation Alter --cluster")
    assert "--bootstrap-server a:9092" in lines[fencing + 1]
    assert not any(line.startswith("#") for line in lines[: lines.index(f"# {FAILING_OVER}:")])


def test_internal_topics_need_rights_too(configure: Configure) -> None:
    internal = (
        InternalTopic(cluster="B", name="mm2-offsets.A.internal", operations=ABSENT, creation=FORBIDDEN),
        InternalTopic(
            cluster="A", name="mm2-offset-syncs.B.internal", operations=frozenset({"DESCRIBE", "READ"})
        ),
    )
    messages = [finding.message for finding in troubles(facts_of(configure({}), internal=internal))]
    assert any("CREATE on --topic 'mm2-offsets.A.internal' of B" in message for message in messages)
    assert any("WRITE on --topic 'mm2-offset-syncs.B.internal' of A" in message for message in messages)


def test_who_may_not_see_a_topic_lacks_every_right_on_it(configure: Configure) -> None:
    hidden = InternalTopic(
        cluster="B", name="mm2-offsets.A.internal", operations=FORBIDDEN, creation=FORBIDDEN
    )
    facts = facts_of(
        configure({}), topics={"A->B": (topic(target=FORBIDDEN, creation=None),)}, internal=(hidden,)
    )
    messages = [finding.message for finding in troubles(facts)]
    assert any(
        "CREATE, DESCRIBE, READ, WRITE on --topic 'mm2-offsets.A.internal'" in each for each in messages
    )
    assert any("lacks DESCRIBE, READ, WRITE on --topic 'A.orders' of B" in each for each in messages)


def test_the_commands_for_all_rights_name_each_resource_once(configure: Configure) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="mirror" password="x";'
    commands = needed_acl_commands(configure({"B.sasl.jaas.config": jaas}))
    assert len(commands) == len(set(commands))
    copies = next(command for command in commands if "--topic 'A.'" in command)
    assert "--allow-principal 'User:mirror'" in copies
    assert "--resource-pattern-type prefixed" in copies
    assert not any("password" in command for command in commands)


@pytest.mark.parametrize(
    ("versions", "release"),
    [
        ({1: (4, 18), 80: (0, 0)}, "4.0"),
        ({1: (0, 17), 80: (0, 0), 75: (0, 0)}, "3.9"),
        ({1: (0, 17), 75: (0, 0)}, "3.8"),
        ({1: (0, 12), 60: (0, 0), 48: (0, 0)}, "2.8"),
        ({1: (0, 11)}, "2.2"),
    ],
)
def test_a_release_is_told_by_its_requests(versions: dict[int, tuple[int, int]], release: str) -> None:
    assert release_of(versions) == release
