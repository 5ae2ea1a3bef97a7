"""What preflight finds of the file, the clusters and their releases."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from twinlog.config import Address
from twinlog.errors import FatalKafkaError, StateError
from twinlog.kafka.admin.topics import release_of
from twinlog.kafka.errors import translate
from twinlog.kafka.outage import Outage, of_file
from twinlog.preflight.checks import judge
from twinlog.preflight.facts import ClusterFacts, GroupRights, InternalTopic, Severity
from twinlog.preflight.gather import gather_facts
from unit.preflight.facts_rig import (
    ABSENT,
    AWAY,
    EVERYTHING,
    Configure,
    cluster,
    described,
    facts_of,
    the_trouble,
    topic,
    troubles,
)


def test_nothing_stands_in_the_way(configure: Configure) -> None:
    assert troubles(facts_of(configure({}))) == []


@pytest.mark.parametrize(
    "changed", [{"A->B.enabled": "false"}, {"A->B.enabled": "false", "A->B.enable": "true"}]
)
def test_a_file_that_enables_no_flow_is_an_error(configure: Configure, changed: dict[str, str]) -> None:
    facts = replace(facts_of(configure(changed)), clusters={}, aliases=["west", "east"])
    found = the_trouble(facts)
    assert (found.level, found.message) == (Severity.ERROR, "no flow is enabled: nothing would be copied")
    assert found.remedy == "write west->east.enabled = true"


def test_up_to_ten_of_the_selected_topics_are_named(configure: Configure) -> None:
    topics = [topic(f"t{number:02}") for number in range(12)]
    (told,) = [each for each in judge(facts_of(configure({}), {"A->B": topics})) if each.check == "topics"]
    assert told.message.endswith("t00, t01, t02, t03, t04, t05, t06, t07, t08, t09 and 2 more")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1", "localhost", "[::1]"])
def test_an_address_that_only_this_machine_reaches_is_fine(configure: Configure, host: str) -> None:
    facts = replace(facts_of(configure({})), listens={"source": Address(host=host, port=1)})
    assert troubles(facts) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.7", "source.internal"])
@pytest.mark.parametrize(("insecure", "level"), [("false", Severity.ERROR), ("true", Severity.WARNING)])
def test_an_address_that_others_reach_needs_security_or_a_word_that_it_goes_without(
    configure: Configure, host: str, insecure: str, level: Severity
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
    assert ("insecure = true" in found.remedy) == (level is Severity.ERROR)


@pytest.mark.parametrize(
    ("key", "level"), [("A->B.topcis", Severity.ERROR), ("A->B.topsic", Severity.WARNING)]
)
def test_a_misspelt_key_of_a_flow_is_told_with_its_place_and_the_key_that_was_meant(
    configure: Configure, key: str, level: Severity
) -> None:
    configuration = configure({key: "orders"})
    facts = replace(facts_of(configuration), file="mm2.properties", notices=configuration.notices)
    found = the_trouble(facts)
    assert (found.level, found.check) == (level, "configuration")
    assert found.about == "mm2.properties:6"
    assert found.message == f"{key}: unknown key; did you mean A->B.topics?"


def test_a_key_without_effect_is_mentioned_and_no_trouble(configure: Configure) -> None:
    configuration = configure({"tasks.max.enforce": "true"})
    facts = replace(facts_of(configuration), notices=configuration.notices)
    assert troubles(facts) == []
    assert any(found.message.startswith("tasks.max.enforce") for found in judge(facts))


def test_rules_that_were_changed_live_are_named_and_unknown_ones_are_an_error(configure: Configure) -> None:
    facts = facts_of(configure({}))
    [flow] = facts.flows
    ruled = replace(facts, flows=[replace(flow, rules=("topics: the file has 'acct'",))])
    found = the_trouble(ruled)
    assert (found.level, found.check) == (Severity.WARNING, "live rules")
    assert found.message == "topics: the file has 'acct'"
    unknown = replace(facts, flows=[replace(flow, rules_unknown=StateError("allow READ"))])
    found = the_trouble(unknown)
    assert (found.level, found.check) == (Severity.ERROR, "live rules")
    assert "allow READ" in found.message
    forbidden = StateError("allow READ", reason="TOPIC_UNAUTHORIZED")
    assert the_trouble(replace(facts, flows=[replace(flow, rules_unknown=forbidden)])).check == "rights"


def test_refused_credentials_do_not_send_anybody_to_the_addresses(configure: Configure) -> None:
    refused = FatalKafkaError("the broker refused the credentials", reason="AUTHENTICATION_FAILED")
    locked = ClusterFacts(alias="B", unreachable=refused)
    finding = the_trouble(facts_of(configure({}), clusters={"B": locked}))
    assert "B.sasl.jaas.config" in finding.remedy
    assert "bootstrap.servers" not in finding.remedy


@pytest.mark.parametrize("retried", [False, True])
def test_a_refused_connection_says_which_brokers_to_start(configure: Configure, retried: bool) -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 29122)")
    failure = translate(
        OSError(f"Multiple exceptions: {refused}, {refused}") if retried else refused, "connect", alias="B"
    )
    places = of_file(("b1:29122", "b2:29123"))
    away = ClusterFacts(alias="B", unreachable=failure, outage=Outage(reason=failure.reason, brokers=places))
    finding = the_trouble(facts_of(configure({}), clusters={"B": away}))
    assert finding.remedy == "start the brokers at b1:29122, b2:29123, or correct B.bootstrap.servers"


async def test_the_brokers_to_start_are_those_of_the_file(configure: Configure) -> None:
    file = configure({"A.bootstrap.servers": "127.0.0.1:1", "B.bootstrap.servers": "127.0.0.1:1,127.0.0.1:2"})
    found = judge(await gather_facts(file, timeout_seconds=1.0))
    assert [each.remedy for each in found if each.check == "reachable"] == [
        "start the brokers at 127.0.0.1:1, or correct A.bootstrap.servers",
        "start the brokers at 127.0.0.1:1, 127.0.0.1:2, or correct B.bootstrap.servers",
    ]


async def test_secrets_that_are_not_mounted_are_named_with_their_keys_and_the_other_cluster_is_looked_at(
    configure: Configure, tmp_path: Path
) -> None:
    at = tmp_path / "secrets"
    file = configure(
        {
            "config.providers": "dir",
            "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
            "A.security.protocol": "SSL",
            "A.ssl.truststore.location": f"{at}/ca.p12",
            "A.ssl.truststore.password": f"${{dir:{at}:ca.password}}",
            "B.bootstrap.servers": "127.0.0.1:1",
        }
    )
    found = [
        each for each in judge(await gather_facts(file, timeout_seconds=1.0)) if each.level is Severity.ERROR
    ]
    told = {each.about.partition(":")[0]: (each.level, each.message, each.remedy) for each in found}
    level, message, _ = told[file.file]
    assert level is Severity.ERROR
    assert message.startswith("A.ssl.truststore.password: ")
    assert f"there is no {at}/ca.password" in message
    _, message, remedy = told["A"]
    assert f"cannot read {at}/ca.p12" in message
    assert remedy == "correct A.ssl.truststore.location"
    assert told["B"][2].startswith("start the brokers at ")


def test_another_failure_to_connect_sends_to_the_addresses_and_tls(configure: Configure) -> None:
    failure = translate(OSError(errno.EHOSTUNREACH, "no route"), "connect", alias="B")
    away = ClusterFacts(alias="B", unreachable=failure)
    finding = the_trouble(facts_of(configure({}), clusters={"B": away}))
    assert finding.remedy == "check B.bootstrap.servers, and B.security.protocol and B.ssl.*"


@pytest.mark.parametrize(
    ("without_leader", "min_isr", "level"),
    [(0, "1", Severity.WARNING), (1, "1", Severity.ERROR), (0, "2", Severity.ERROR)],
)
def test_a_broker_that_does_not_answer_is_an_error_where_it_stops_reads_or_writes(
    configure: Configure, without_leader: int, min_isr: str, level: Severity
) -> None:
    """Of three brokers two answer, and three partitions have one replica in sync."""
    outage = Outage(brokers={2: "kafka-2:9092"}, without_leader=without_leader, in_sync={1: 3, 2: 4})
    there = cluster("B", outage=outage, broker_configs={"min.insync.replicas": min_isr})
    facts = facts_of(configure({"replication.factor": "3"}), clusters={"B": there})
    finding = the_trouble(facts)
    assert (finding.level, finding.about) == (level, "B")
    assert "broker 2 of B does not answer; the others do" in finding.message
    refusing = "; that take no writes, which need 2 in sync: 3"
    assert finding.message.endswith(refusing) == (min_isr == "2")
    assert finding.remedy == "start broker 2 at kafka-2:9092"
    (reachable,) = [each for each in judge(facts) if (each.about, each.check) == ("B", "reachable")]
    assert reachable.message == "2 of 3 brokers, cluster id id-B"


def test_a_release_that_is_too_old(configure: Configure) -> None:
    finding = the_trouble(facts_of(configure({}), clusters={"B": cluster("B", release="2.3")}))
    assert (finding.level, finding.check) == (Severity.ERROR, "version")


def test_one_cluster_on_both_ends(configure: Configure) -> None:
    finding = the_trouble(facts_of(configure({}), clusters={"B": cluster("B", cluster_id="id-A")}))
    assert (finding.level, finding.check, finding.about) == (Severity.ERROR, "two clusters", "A->B")


def test_too_few_brokers_for_a_replication_factor(configure: Configure) -> None:
    facts = facts_of(
        configure({"replication.factor": "2"}),
        clusters={"B": cluster("B", broker_count=1), "A": cluster("A", broker_count=1)},
    )
    assert {(finding.level, finding.check) for finding in troubles(facts)} == {
        (Severity.ERROR, key)
        for key in (
            "replication.factor",
            "offset.storage.replication.factor",
            "offset-syncs.topic.replication.factor",
            "checkpoints.topic.replication.factor",
            "heartbeats.topic.replication.factor",
        )
    }


CHANGED = {"twinlog.transform.topics": "orders", "twinlog.transform.value": "value"}


def test_a_factor_is_held_against_the_cluster_where_the_topic_is_created(configure: Configure) -> None:
    """`heartbeats` is created on both, offset syncs on the source."""
    few = {"A": cluster("A", broker_count=1)}
    facts = facts_of(configure({}), clusters=few)
    assert {(each.level, each.check, each.message) for each in troubles(facts)} == {
        (Severity.ERROR, key, "3 replicas on A, which has 1 broker")
        for key in ("offset-syncs.topic.replication.factor", "heartbeats.topic.replication.factor")
    }
    assert {each.remedy.partition(", or ")[2] for each in troubles(facts)} == {"add brokers to A"}
    there = InternalTopic(cluster="A", name="heartbeats", operations=EVERYTHING)
    found = the_trouble(facts_of(configure({}), clusters=few, internal=(there,)))
    assert found.check == "offset-syncs.topic.replication.factor", "a topic that exists is not created"
    letters = configure({"twinlog.dead.letter.topic": "letters", **CHANGED})
    few = {"B": cluster("B", broker_configs={"default.replication.factor": "4"})}
    assert the_trouble(facts_of(letters, clusters=few)).check == "default.replication.factor"


def test_min_isr_above_the_replication_factor(configure: Configure) -> None:
    strict = cluster("B", broker_configs={"min.insync.replicas": "2"}, release="3.0")
    facts = facts_of(configure({"replication.factor": "1"}), clusters={"B": strict})
    finding = the_trouble(facts)
    assert (finding.level, finding.check) == (Severity.ERROR, "replication.factor")
    assert "2 in sync" in finding.message
    for bounded in (
        cluster("B", broker_configs={"min.insync.replicas": "2"}, release="3.9"),
        cluster("B", broker_configs={"min.insync.replicas": "2", "telemetry.max.bytes": "1"}, release="3.0"),
    ):
        facts = facts_of(configure({"replication.factor": "1"}), clusters={"B": bounded})
        assert not troubles(facts), "brokers since Kafka 3.7 ask for no more replicas than there are"


def test_minus_one_is_judged_by_the_brokers_default(configure: Configure) -> None:
    few = cluster("B", broker_count=2, broker_configs={"default.replication.factor": "3"})
    facts = facts_of(configure({"replication.factor": "-1"}), clusters={"B": few})
    assert "replication.factor" in {finding.check for finding in troubles(facts)}


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
        ({"other_principals": {"B producer": "User:writer"}}, "User:writer, the principal of the B producer"),
        ({"rules_unknown": AWAY}, "rules that were changed live; the file was checked without them"),
        ({"topics": {"A->B": [topic(unread=AWAY)]}}, "which offsets the copies of orders will have"),
        ({"topics": {"A->B": [topic(creation=AWAY)]}}, "whether A.orders can be created on B"),
        (
            {"internal": (InternalTopic(cluster="A", name="heartbeats", operations=ABSENT, creation=AWAY),)},
            "whether heartbeats can be created on A",
        ),
        (
            {"internal": (InternalTopic(cluster="B", name="mm2-failover.A.internal", operations=AWAY),)},
            "rights on mm2-failover.A.internal of B",
        ),
    ],
)
def test_what_cannot_be_checked_is_said(configure: Configure, changes: dict[str, Any], words: str) -> None:
    found = the_trouble(facts_of(configure({}), **changes))
    assert (found.level, found.check) == (Severity.WARNING, "not checked")
    assert words in found.message


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


@pytest.mark.parametrize(
    ("settings", "key"),
    [(CHANGED, "twinlog.transform.topics"), ({"twinlog.offsets": "translated"}, "twinlog.offsets"), ({}, "")],
)
def test_copies_that_have_the_sources_offsets_and_may_no_longer_are_named(
    configure: Configure, settings: dict[str, str], key: str
) -> None:
    there = described("A.orders")
    topics = topic(target=there, is_preserved=True), topic("translated", target=there), topic("new")
    found = troubles(facts_of(configure(settings), {"A->B": topics}))
    told = [(each.check, each.message.partition(":")[0]) for each in found if "for good" in each.message]
    assert told == ([(key, "orders")] if key else [])


@pytest.mark.parametrize(
    ("said", "level"),
    [
        (StateError("twinlog.transform.value: no", reason="TRANSFORM_REFUSED"), Severity.ERROR),
        (StateError("there is no Java", reason="SPARK_UNAVAILABLE"), Severity.WARNING),
    ],
)
def test_what_spark_says_against_expressions_is_told(
    configure: Configure, said: StateError, level: Severity
) -> None:
    facts = facts_of(configure({}))
    facts = replace(facts, flows=[replace(flow, transform=said) for flow in facts.flows])
    found = the_trouble(facts)
    assert found.level is level
    assert str(said) in found.message
    assert found.remedy
