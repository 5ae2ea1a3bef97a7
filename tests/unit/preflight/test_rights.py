"""Rights that are missing, and the commands that grant them."""

from dataclasses import replace

import pytest

from twinlog.policy.replication import DefaultReplicationPolicy
from twinlog.preflight.checks import judge
from twinlog.preflight.facts import GroupRights, InternalTopic, Severity, own_topics
from twinlog.preflight.report import needed_acl_commands, needed_rights
from twinlog.preflight.rights import ELECTIONS, FAILING_OVER
from twinlog.selection_configured import topic_selector
from unit.preflight.facts_rig import (
    ABSENT,
    AWAY,
    EVERYTHING,
    FORBIDDEN,
    NO_GROUP,
    Configure,
    cluster,
    described,
    facts_of,
    the_trouble,
    topic,
    troubles,
)


class Suffix(DefaultReplicationPolicy):
    """orders of A is orders.from-A."""

    def format_remote_topic(self, source: str, topic: str) -> str:
        return f"{topic}.from-{source}"


def test_missing_rights_come_with_the_command_that_grants_them(configure: Configure) -> None:
    blind = topic(source_operations=frozenset({"DESCRIBE"}), creation=FORBIDDEN)
    facts = facts_of(configure({}), topics={"A->B": (blind,)}, source_principal="User:mirror")
    source, target = troubles(facts)
    assert source.remedy == (
        "kafka-acls.sh --bootstrap-server a:9092 --command-config admin.properties --add "
        "--allow-principal 'User:mirror' --operation Read --operation DescribeConfigs --topic 'orders'"
    )
    assert target.remedy.endswith("--operation Create --topic 'A.orders'")
    assert {source.level, target.level} == {Severity.ERROR}


def test_a_topic_that_the_file_names_and_the_user_may_not_see_is_named_with_the_rights(
    configure: Configure,
) -> None:
    facts = facts_of(
        configure({"topics": "orders, payments, later"}),
        unseen={"payments": FORBIDDEN, "later": ABSENT, "away": AWAY},
        source_principal="User:mirror",
    )
    missing, unknown = troubles(facts)
    assert missing.level is Severity.ERROR
    assert missing.message == "User:mirror lacks DESCRIBE, READ, DESCRIBE_CONFIGS on --topic 'payments' of A"
    assert missing.remedy.endswith(
        "--operation Describe --operation Read --operation DescribeConfigs --topic 'payments'"
    )
    assert (unknown.level, "whether away of A exists" in unknown.message) == (Severity.WARNING, True)
    (note,) = [each for each in judge(facts) if "names later" in each.message]
    assert note.level is Severity.OK
    assert note.message == "topics names later, which A does not have: copied once it has"


def test_rights_that_a_flow_can_go_on_without_are_warnings(configure: Configure) -> None:
    facts = facts_of(configure({}), source_operations=frozenset(), target_operations=frozenset())
    assert {finding.level for finding in troubles(facts)} == {Severity.WARNING}
    without_acls = configure({"sync.topic.acls.enabled": "false", "emit.checkpoints.enabled": "false"})
    assert troubles(facts_of(without_acls, source_operations=frozenset())) == []


def test_fencing_is_named_as_what_alter_on_the_source_is_needed_for(configure: Configure) -> None:
    configuration = configure({"sync.topic.acls.enabled": "false"})
    found = the_trouble(facts_of(configuration, source_operations=EVERYTHING - {"ALTER"}))
    assert found.level is Severity.WARNING
    assert found.message.endswith("lacks ALTER on --cluster of A: needed only for failover --fence")


def test_a_right_on_transactional_ids_that_is_missing_is_an_error(configure: Configure) -> None:
    found = the_trouble(facts_of(configure({}), transactions=False, target_principal="User:mirror"))
    assert found.level is Severity.ERROR
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
            Severity.WARNING,
            f"READ on {ELECTIONS} of B: without it a second process with this flow cannot stand by",
        ),
        (
            Severity.WARNING,
            "READ on --group 'billing' of A: needed only for failback, which commits offsets of groups there",
        ),
        (
            Severity.WARNING,
            "READ on --group 'billing' of B: needed only for failover, which commits offsets of groups there",
        ),
        (Severity.ERROR, "DELETE on --group 'billing' of B"),
    ]
    syncing = facts_of(configure({"sync.group.offsets.enabled": "true"}), groups=groups)
    errors = [each.message for each in troubles(syncing) if each.level is Severity.ERROR]
    assert [each.partition("lacks ")[2] for each in errors] == ["READ on --group 'billing' of B"]


def test_many_groups_without_a_right_are_one_finding(configure: Configure) -> None:
    groups = GroupRights(on_source={f"g{number}": NO_GROUP for number in range(40)})
    found = [
        each for each in troubles(facts_of(configure({}), groups=groups)) if each.level is Severity.ERROR
    ]
    assert [each.message.partition("lacks ")[2] for each in found] == ["DESCRIBE on --group '*' of A"]


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


def test_who_reads_ids_only_needs_no_other_right_on_them(configure: Configure) -> None:
    ids = InternalTopic(cluster="A", name="mm2-offsets.B.internal", operations=FORBIDDEN, is_written=False)
    found = the_trouble(facts_of(configure({}), internal=(replace(ids, creation=FORBIDDEN),)))
    assert "lacks DESCRIBE, READ on --topic 'mm2-offsets.B.internal' of A" in found.message
    assert found.level is Severity.ERROR
    found = the_trouble(facts_of(configure({}), internal=(replace(ids, purpose="why"),)))
    assert found.level is Severity.WARNING
    assert found.remedy.endswith("--operation Describe --operation Read --topic 'mm2-offsets.B.internal'")
    assert troubles(facts_of(configure({}), internal=(replace(ids, operations=ABSENT),))) == []


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


def test_who_does_not_log_in_is_granted_rights_as_kafka_names_it(configure: Configure) -> None:
    commands = needed_acl_commands(configure({}))
    assert all("--allow-principal 'User:ANONYMOUS'" in each for each in commands if not each.startswith("#"))
    store = {"ssl.keystore.location": "/a.p12", "ssl.keystore.password": "x"}
    commands = needed_acl_commands(
        configure({f"B.{key}": value for key, value in {"security.protocol": "SSL", **store}.items()})
    )
    of_b = [each for each in commands if "--bootstrap-server b" in each]
    assert of_b
    assert all("'User:<the principal of your properties>'" in each for each in of_b)


def test_copies_without_a_common_beginning_are_granted_without_a_prefix(
    configure: Configure,
) -> None:
    facts = facts_of(configure({}))
    (flow,) = facts.flows
    suffixed = replace(flow, selector=replace(flow.selector, policy=Suffix()))
    on_target = [right.resource for right in needed_rights(suffixed) if right.cluster == "B"]
    assert "--topic '*'" in on_target
    assert not any(".from-A" in each for each in on_target)
