"""What is refused, with file, line, key, what was expected and what was found."""

import pytest

from twinlog.errors import ConfigError
from twinlog.model import Flow
from unit.cases import about
from unit.config.config_files import FILE, TWO_CLUSTERS, load_more, load_text, problems

A_TO_B = Flow("A", "B")
B_TO_A = Flow("B", "A")
SECRET = "p4ssw0rd-of-nobody"


def problem(*lines: str) -> str:
    """The one thing that is wrong with a good file and these lines behind it."""
    (only,) = problems(TWO_CLUSTERS + "\n".join(lines))
    return only


LIST = "a comma-separated list without empty elements"
PROTOCOL = "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
ADDRESS = "HOST:PORT with a port from 0 to 65535"
MM2 = "org.apache.kafka.connect.mirror"
ELSE = "; or delete the line and write what your class selects into topics and topics.exclude"
POLICIES = (
    f"one of {MM2}.DefaultReplicationPolicy, {MM2}.IdentityReplicationPolicy or that of an installed package"
    "; for LegacyReplicationPolicy take the second"
)


@pytest.mark.parametrize("key", ["twinlog.weight", "A->B.twinlog.weight"])
@pytest.mark.parametrize(
    "weight", ["logs:0", "logs:-1", "logs:nan", "logs:inf", "logs", ":2", "(logs:2", "logs:"]
)
def test_a_weight_that_is_none_is_refused_with_what_to_do(key: str, weight: str) -> None:
    said = problem(f"{key} = orders:5, {weight}")
    assert f"{key}: '{weight}' is not a pattern of topics, a colon and a weight larger than 0" in said
    assert "topics.exclude" in said


def test_wrong_value() -> None:
    for key, value, expected in [
        ("tasks.max", "0", "a whole number of at least 1"),
        ("A->B.tasks.max", "four", "a whole number of at least 1"),
        ("A->B.refresh.topics.enabled", "yes", "true or false"),
        ("B->A.enabled", "yes", "true or false"),
        ("A->B.topics", "a,,b", LIST),
        ("groups", "a,", LIST),
        ("offset-syncs.topic.location", "here", "one of source, target"),
        ("offset.lag.max", "-1", "a whole number of at least 0 (records)"),
        ("refresh.topics.interval.seconds", "0", "a number of at least 0.1 (s); negative = off"),
        ("emit.heartbeats.interval.seconds", "soon", "a number of at least 0 (s); negative = off"),
        ("twinlog.verify.interval.seconds", "-1", "a number of at least 0 (s)"),
        ("replication.policy.class", "com.example.Mine", POLICIES),
        (
            "topic.filter.class",
            "com.example.Mine",
            f"one of {MM2}.DefaultTopicFilter{ELSE}",
        ),
        ("B.exactly.once.source.support", "yes", "one of disabled, preparing, enabled"),
        ("A.consumer.isolation.level", "committed", "one of read_committed, read_uncommitted"),
        ("A.consumer.auto.offset.reset", "now", "one of earliest, latest, none, by_duration:PT1H"),
        ("A.consumer.auto.offset.reset", "by_duration", "one of earliest, latest, none, by_duration:PT1H"),
        (
            "A.consumer.auto.offset.reset",
            "by_duration:-PT1H",
            "one of earliest, latest, none, by_duration:PT1H",
        ),
        ("A.consumer.auto.offset.reset", "by_duration:PT", "one of earliest, latest, none, by_duration:PT1H"),
        ("A.consumer.auto.offset.reset", "latest:PT1H", "one of earliest, latest, none, by_duration:PT1H"),
        ("security.protocol", "abc", PROTOCOL),
        ("B.producer.security.protocol", "abc", PROTOCOL),
        ("twinlog.source.listen", "17401", ADDRESS),
        ("twinlog.source.listen", "localhost:65536", ADDRESS),
        ("twinlog.log.format", "xml", "one of auto, json, console"),
        ("A->B.source.cluster.alias", "dc1", "A (as in A->B) or no such key"),
    ]:
        with about(key, value, expected):
            assert problem(f"{key} = {value}") == f"{FILE}:5: {key}: expected {expected}, found {value!r}"


def test_a_comment_behind_a_value_is_found_out() -> None:
    found = problem("tasks.max = 4 # four")
    assert found.endswith("found '4 # four'; a comment has to be on a line of its own")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("A->C.enabled = true", "A->C.enabled: no such cluster: 'C'; clusters: A, B"),
        ("C->D.enabled = true", "C->D.enabled: no such cluster: 'C', 'D'; clusters: A, B"),
        ("A->eu.west.enabled = true", "A->eu.west.enabled: no such cluster: 'eu.west'; clusters: A, B"),
        ("A->C.enabled = ${env:C}", "A->C.enabled: no such cluster: 'C'; clusters: A, B"),
        ("A->A.enabled = true", "A->A.enabled: a cluster is never replicated into itself"),
        (
            "A->B.exactly.once.support = required\nA.consumer.isolation.level = read_uncommitted",
            "A->B.exactly.once.support: required, but A.consumer.isolation.level is not read_committed",
        ),
        (
            "A->B.exactly.once.support = required\nB.exactly.once.source.support = disabled",
            "A->B.exactly.once.support: required, but B.exactly.once.source.support is not enabled",
        ),
    ],
)
def test_refused(lines: str, expected: str) -> None:
    assert problem(lines) == f"{FILE}:5: {expected}"


def test_every_line_of_an_enabled_flow_without_its_cluster_is_refused() -> None:
    found = problems(TWO_CLUSTERS + "A->C.topics = orders\nA->C.enabled = true")
    assert found == [
        f"{FILE}:5: A->C.topics: no such cluster: 'C'; clusters: A, B",
        f"{FILE}:6: A->C.enabled: no such cluster: 'C'; clusters: A, B",
    ]


def test_a_pattern_that_does_not_compile_names_its_line() -> None:
    assert problem("A->B.topics = orders, pay(").startswith(f"{FILE}:5: A->B.topics: ")


def test_everything_that_is_wrong_is_said_at_once_in_file_order() -> None:
    found = problems("clusters = A, B\nA.bootstrap.servers = a:1\ntasks.max = x\ngroups = a,,\n")
    assert [line.split(": ")[:2] for line in found] == [
        [FILE, "B.bootstrap.servers"],
        [f"{FILE}:3", "tasks.max"],
        [f"{FILE}:4", "groups"],
    ]


def test_the_error_says_where_in_its_metadata() -> None:
    with pytest.raises(ConfigError) as caught:
        load_more("tasks.max = x")
    assert caught.value.metadata == {"file": FILE, "line": "5", "key": "tasks.max", "problems": "1"}


@pytest.mark.parametrize("servers", ["a", "a:", "a:9092,b", "a:99999", "a;9092"])
def test_a_broker_without_a_port_names_its_line(servers: str) -> None:
    (said,) = problems(f"clusters = A, B\nA.bootstrap.servers = {servers}\nB.bootstrap.servers = b:1\n")
    expected = "host:port of each broker, as a:9092,b:9092"
    assert said == f"{FILE}:2: A.bootstrap.servers: expected {expected}, found {servers!r}"


def test_what_java_takes_for_a_broker_is_one() -> None:
    load_more("A.bootstrap.servers = SSL://a.example:9093, [::1]:9092,")


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaMirrorMaker2\nspec:\n  clusters: []\n",
        "---\nkind: KafkaMirrorMaker2\nclusters: A, B\n",
        '{"mirror-source": {"info": {}}}',
        ' [{"name": "mirror-source"}]',
    ],
)
def test_a_file_of_another_replicator_is_told_to_be_converted(text: str) -> None:
    (said,) = problems(text)
    assert said == f"{FILE}: this is YAML or JSON, not a properties file: `twinlog convert` makes one of it"


@pytest.mark.parametrize("text", ["", "clusters = ", "A.bootstrap.servers = a:1"])
def test_clusters_are_required(text: str) -> None:
    assert "clusters: missing: the aliases of the clusters, as A, B" in problems(text)[0]


def test_no_alias_is_empty_and_what_follows_from_that_is_not_said() -> None:
    (found,) = problems("clusters = A, B,\nA->B.enabled = true\nA->B.topics = t")
    assert found.startswith(f"{FILE}:1: clusters: expected {LIST}, found ")


def test_values_from_providers_are_not_repeated_in_errors() -> None:
    text = TWO_CLUSTERS + (
        "config.providers = env\n"
        "config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "tasks.max = ${env:TASKS}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_text(text, environ={"TASKS": SECRET})
    assert str(caught.value) == (
        f"{FILE}:7: tasks.max: expected a whole number of at least 1, found ${{env:TASKS}} (resolved)"
    )
    assert load_text(text, environ={"TASKS": "3"}).flow(A_TO_B).source.max_slots == 3


def test_offset_syncs_cannot_be_set_up_while_they_are_off() -> None:
    found = problem("emit.offset-syncs.enabled = false", "offset-syncs.topic.location = target")
    assert found == (
        f"{FILE}:6: offset-syncs.topic.location: offset syncs cannot be set up while "
        "emit.offset-syncs.enabled is false: remove one of the two"
    )


@pytest.mark.parametrize("key", ["emit.offset-syncs.enabled", "A->B.emit.checkpoints.enabled"])
def test_without_syncs_or_checkpoints_the_flow_runs_and_groups_are_not_translated(key: str) -> None:
    configuration = load_more(f"{key} = false")
    flow = configuration.flow(A_TO_B)
    assert flow.enabled
    assert not flow.checkpoint.enabled
    assert [str(notice) for notice in configuration.notices] == [
        f"line 5: {key}: consumer groups of A->B are not translated"
    ]


@pytest.mark.parametrize("key", ["emit.offset-syncs.enabled", "emit.checkpoints.enabled"])
def test_group_offsets_need_both(key: str) -> None:
    found = problem(f"{key} = false", "sync.group.offsets.enabled = true")
    assert found == f"{FILE}:6: sync.group.offsets.enabled: needs {key}=true, but {key} is false"


def test_group_offsets_need_checkpoints_whose_interval_is_not_negative() -> None:
    found = problem("emit.checkpoints.interval.seconds = -1", "sync.group.offsets.enabled = true")
    assert found == (
        f"{FILE}:6: sync.group.offsets.enabled: needs emit.checkpoints.enabled=true, but "
        "emit.checkpoints.interval.seconds is negative"
    )


def test_a_flow_that_is_not_enabled_has_no_checkpoints() -> None:
    assert not load_text(TWO_CLUSTERS).flow(B_TO_A).checkpoint.enabled
