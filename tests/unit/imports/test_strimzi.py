"""Strimzi's resources become properties files with exactly the meaning that their connectors had."""

import pytest

from twinlog.config import OffsetSyncsLocation
from twinlog.errors import ConfigError
from twinlog.imports import Fate, Format
from unit.imports.estates import STRIMZI_V1, imported, places, read_back, texts

SECRETS = "/etc/twinlog/secrets"
FILES = {
    f"{SECRETS}/mirror-east/password": "s3cret",
    f"{SECRETS}/west-user/user.crt": "CERTIFICATE",
    f"{SECRETS}/west-user/user.key": "KEY",
    f"{SECRETS}/west-cluster-ca-cert/ca.crt": "CA-NEW",
    f"{SECRETS}/old-ca/old.crt": "CA-OLD",
    f"{SECRETS}/east-cluster-ca-cert/ca.crt": "CA-EAST",
}


def test_every_key_of_a_v1_resource_arrives_where_it_is_read() -> None:
    found = imported(STRIMZI_V1)

    assert found.format is Format.STRIMZI
    assert found.complete
    [flow] = read_back(found, files=FILES).flows
    assert str(flow.flow) == "east->west"
    assert flow.enabled
    assert flow.configsync.topics.include == ("orders", r"payments\..*")
    assert flow.configsync.topics.exclude == (r"payments\.test",)
    assert flow.checkpoint.groups.include == ("app-.*",)
    assert flow.checkpoint.sync_group_offsets_enabled
    assert flow.checkpoint.topic_replication_factor == -1
    assert flow.configsync.replication_factor == -1
    assert flow.configsync.refresh_topics_interval_seconds == 60
    assert not flow.configsync.sync_acls_enabled
    assert flow.source.offset_syncs.location is OffsetSyncsLocation.TARGET
    assert flow.source.offset_syncs.replication_factor == -1
    assert flow.source.max_slots == 5
    assert flow.policy_config["replication.policy.class"].endswith(".IdentityReplicationPolicy")
    assert not flow.heartbeat.enabled, "v1 has no heartbeat connector"


def test_clients_get_what_the_connectors_and_their_worker_got() -> None:
    [flow] = read_back(imported(STRIMZI_V1), files=FILES).flows

    consumer, producer = flow.clients.source_consumer.properties, flow.clients.data_producer.properties
    assert consumer["security.protocol"] == "SASL_SSL"
    assert consumer["sasl.mechanism"] == "SCRAM-SHA-512"
    assert 'username="mirror" password="s3cret"' in consumer["sasl.jaas.config"]
    assert consumer["client.rack"] == "zone-1"
    assert producer["security.protocol"] == "SSL"
    assert producer["ssl.keystore.certificate.chain"] == "CERTIFICATE"
    assert producer["ssl.keystore.key"] == "KEY"
    assert producer["ssl.truststore.certificates"] == "CA-NEW\nCA-OLD"
    assert producer["max.request.size"] == "2000000"
    assert producer["linger.ms"] == "20"


def test_no_secret_is_made_up_and_each_is_a_line_to_do() -> None:
    found = imported(STRIMZI_V1, secrets_dir="/mnt/s/")

    assert "${secrets:/mnt/s/mirror-east:password}" in found.properties
    to_do = texts(found, Fate.TO_DO)
    for secret in ("mirror-east", "west-user", "west-cluster-ca-cert", "old-ca", "east-cluster-ca-cert"):
        assert f"/mnt/s/{secret}" in to_do
    assert "a pattern names no file" in to_do


@pytest.mark.parametrize("field", ["sourceCluster", "targetCluster"])
def test_a_mirror_of_a_cluster_that_is_not_there_names_it(field: str) -> None:
    wrong = V1BETA2.replace(f"{field}: ", f"{field}: x-")
    with pytest.raises(ConfigError, match=f"{field}: 'x-.*' is none of the clusters here: east, west"):
        imported(wrong)


def test_the_group_of_the_workers_stands_in_the_command_that_sees_whether_they_run() -> None:
    for text, group in ((STRIMZI_V1, "mirror-group"), (V1BETA2, "mirrormaker2-cluster")):
        found = imported(text)
        assert f"`twinlog adopt FILE --connect-group {group}`" in texts(found, Fate.TO_DO)
        assert f"--connect-group {group}" in found.properties


V1BETA2 = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: mirror}
spec:
  version: 3.9.0
  connectCluster: west
  clusters:
  - alias: east
    bootstrapServers: east:9092
    config:
      config.storage.replication.factor: 3
  - alias: west
    bootstrapServers: west:9092
  mirrors:
  - sourceCluster: east
    targetCluster: west
    topicsPattern: ".*"
    groupsBlacklistPattern: "test-.*"
    sourceConnector: {}
    heartbeatConnector:
      config: {heartbeats.topic.replication.factor: 1}
    checkpointConnector:
      pause: true
"""


def test_v1beta2_names_its_clusters_and_has_the_operators_default_topic() -> None:
    found = imported(V1BETA2)

    [flow] = read_back(found).flows
    assert str(flow.flow) == "east->west"
    assert flow.source.offset_storage.topic == "mirrormaker2-cluster-offsets"
    assert flow.heartbeat.enabled
    assert flow.heartbeat.topic_replication_factor == 1
    assert flow.checkpoint.groups.exclude == ("test-.*",)
    assert "spec.clusters[0].config.config.storage.replication.factor" in places(found, Fate.IGNORED)


def test_a_connector_that_is_paused_does_not_begin_to_run() -> None:
    [flow] = read_back(imported(V1BETA2)).flows
    assert not flow.checkpoint.enabled
    paused = V1BETA2.replace("sourceConnector: {}", "sourceConnector: {state: stopped}")
    [flow] = read_back(imported(paused)).flows
    assert not flow.enabled


def test_defaults_of_the_release_that_ran_it_are_written_down() -> None:
    [old] = read_back(imported(V1BETA2)).flows
    assert old.configsync.topics.exclude == (r".*[\-\.]internal", r".*\.replica", "__.*")
    assert r"log\.message\.timestamp\.before\.max\.ms" not in old.configsync.config_properties_exclude

    [new] = read_back(imported(V1BETA2.replace("3.9.0", "4.3.0"))).flows
    assert new.configsync.topics.exclude == (r"mm2.*\.internal", r".*\.replica", "__.*")


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        (
            "{type: plain, username: u, passwordSecret: {secretName: s, password: p}}",
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
                ' username="u" password="VALUE";',
            },
        ),
        (
            "{type: scram-sha-256, username: u, passwordSecret: {secretName: s, password: p}}",
            {"sasl.mechanism": "SCRAM-SHA-256"},
        ),
        (
            (
                "{type: oauth, clientId: me, tokenEndpointUri: https://id/token, scope: kafka,"
                " clientSecret: {secretName: s, key: p}}"
            ),
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
                ' required oauth.client.id="me" oauth.scope="kafka" oauth.token.endpoint.uri="https://id/token"'
                ' oauth.client.secret="VALUE";',
                "sasl.login.callback.handler.class": "io.strimzi.kafka.oauth.client."
                "JaasClientOauthLoginCallbackHandler",
            },
        ),
        (
            (
                "{type: custom, sasl: true, config: {sasl.mechanism: PLAIN,"
                " sasl.jaas.config: 'M required password=\"${strimzisecrets:ns/s:p}\";'}}"
            ),
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": 'M required password="VALUE";'},
        ),
    ],
)
def test_each_way_to_log_in_arrives(login: str, expected: dict[str, str]) -> None:
    text = V1BETA2.replace(
        "bootstrapServers: east:9092", f"bootstrapServers: east:9092\n    authentication: {login}"
    )

    [flow] = read_back(imported(text), files={f"{SECRETS}/s/p": "VALUE"}).flows

    properties = flow.clients.source_consumer.properties
    assert properties["security.protocol"] == "SASL_PLAINTEXT"
    assert {key: properties[key] for key in expected} == expected


def test_several_resources_in_one_file_and_in_a_list_become_one_file() -> None:
    other = V1BETA2.replace("alias: east", "alias: north").replace(
        "sourceCluster: east", "sourceCluster: north"
    )
    other = other.replace("east:9092", "north:9092")

    flows = read_back(imported(f"{V1BETA2}---\n{other}---\n")).flows
    assert sorted(str(each.flow) for each in flows) == ["east->west", "north->west"]

    indented = V1BETA2.replace("\n", "\n  ")
    [flow] = read_back(imported(f"kind: List\nitems:\n- {indented}")).flows
    assert str(flow.flow) == "east->west"


def test_two_resources_with_one_flow_are_not_mixed() -> None:
    found = imported(f"{V1BETA2}---\n{V1BETA2.replace('.*', 'orders')}")

    assert not found.complete
    assert "has two connectors of this kind" in texts(found, Fate.IMPOSSIBLE)
    [flow] = read_back(found).flows
    assert not flow.enabled


@pytest.mark.parametrize(
    "config",
    [
        "{transforms: route, transforms.route.type: org.apache.kafka.connect.transforms.RegexRouter}",
        "{replication.policy.class: com.example.Policy}",
        "{value.converter: org.apache.kafka.connect.json.JsonConverter}",
        "{topic.filter.class: com.example.Filter}",
    ],
)
def test_a_flow_whose_copies_would_differ_is_switched_off(config: str) -> None:
    found = imported(V1BETA2.replace("sourceConnector: {}", f"sourceConnector: {{config: {config}}}"))

    assert not found.complete
    [flow] = read_back(found).flows
    assert not flow.enabled
    assert "is switched off until you have decided" in texts(found, Fate.IMPOSSIBLE)
    assert "# impossible:" in found.properties


def test_a_converter_of_the_worker_counts_unless_the_connector_has_another() -> None:
    converter = "{value.converter: org.apache.kafka.connect.json.JsonConverter}"
    text = V1BETA2.replace(
        "bootstrapServers: west:9092", f"bootstrapServers: west:9092\n    config: {converter}"
    )

    assert not imported(text).complete
    own = "{config: {value.converter: org.apache.kafka.connect.converters.ByteArrayConverter}}"
    assert imported(text.replace("sourceConnector: {}", f"sourceConnector: {own}")).complete


def test_a_key_that_does_nothing_here_is_not_called_mapped() -> None:
    config = "config: {producer.batch.size: 327680, producer.max.request.size: 5}"
    found = imported(
        V1BETA2.replace("bootstrapServers: west:9092", f"bootstrapServers: west:9092\n    {config}")
    )

    assert "spec.clusters[1].config.producer.batch.size" in places(found, Fate.IGNORED)
    assert "spec.clusters[1].config.producer.max.request.size" in places(found, Fate.MAPPED)


def test_an_empty_separator_that_names_copies_is_impossible() -> None:
    config = '{config: {replication.policy.separator: ""}}'
    found = imported(V1BETA2.replace("sourceConnector: {}", f"sourceConnector: {config}"))

    [flow] = read_back(found).flows
    assert not flow.enabled
    assert "copies are named by it" in texts(found, Fate.IMPOSSIBLE)


def test_a_mirror_maker_1_is_told_the_way() -> None:
    with pytest.raises(ConfigError, match="twinlog mirror-maker"):
        imported("apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaMirrorMaker\nspec: {}\n")


CONFIG = "spec.mirrors[0].sourceConnector.config"
MIRRORS = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
spec:
  connectCluster: b
  clusters: [{alias: a, bootstrapServers: "a:9092"}, {alias: b, bootstrapServers: "b:9092"}]
  mirrors:
    - sourceCluster: a
      targetCluster: b
      sourceConnector:
"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("apiVersion: kafka.strimzi.io/v1\nkind: [", "estate:2"),
        ("apiVersion: kafka.strimzi.io/v1\nkind: a\nkind: b\n", "estate:3: 'kind' occurs twice here"),
        ("apiVersion: kafka.strimzi.io/v1\nspec: !!python/object:os.system {}\n", "estate:2: the tag"),
        ("apiVersion: kafka.strimzi.io/v1\nspec: &a [*a]\n", "estate:2: aliases or nesting"),
        ("apiVersion: kafka.strimzi.io/v1\nname: \x01\n", "estate:2: a character"),
        (
            f"{MIRRORS}        config:\n          topics: {{a: 1}}\n",
            f"estate:11: {CONFIG}.topics has to be one",
        ),
        (f"{MIRRORS}        config: x\n", f"estate:10: {CONFIG} has to be a table"),
        (
            "apiVersion: kafka.strimzi.io/v1\nkind: KafkaMirrorMaker2\nspec: [1]\n",
            "estate:3: spec has to be a table",
        ),
        ("apiVersion: v1\nkind: Pod\n", "the format is not known"),
        ("apiVersion: v1\nitems: []\nkind: List\n", "estate:1: the list is empty"),
        ('{"apiVersion": "v1", "items": [], "kind": "List"}', "estate:1: the list is empty"),
        ("apiVersion: kafka.strimzi.io/v1\nkind: Kafka\n", "it contains no replication"),
    ],
)
def test_what_is_malformed_is_an_error_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r".*") as error:
        imported(text)
    assert problem in str(error.value)


def test_aliases_cannot_make_a_small_file_large() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 20)}]\n" for n in range(1, 12)
    )

    with pytest.raises(ConfigError, match="make too much of this file"):
        imported(f"apiVersion: kafka.strimzi.io/v1\n{bomb}")


def test_the_clusters_of_v1beta2_come_before_a_connectors_config_and_those_of_v1_after_it() -> None:
    text = V1BETA2.replace("sourceConnector: {}", 'sourceConnector: {config: {source.cluster.alias: ""}}')
    assert [str(flow.flow) for flow in read_back(imported(text)).enabled_flows] == ["east->west"]


def test_tls_that_is_null_is_no_tls() -> None:
    text = V1BETA2.replace(
        "    bootstrapServers: west:9092\n", "    bootstrapServers: west:9092\n    tls: null\n"
    )
    assert "SSL" not in imported(text).properties
    assert "west.security.protocol=SSL" in imported(text.replace("tls: null", "tls: {}")).properties


def test_patterns_of_groups_that_nothing_reads_have_a_line() -> None:
    text = V1BETA2.replace("    checkpointConnector:\n      pause: true\n", "")
    assert "groupsBlacklistPattern" in "".join(places(imported(text), Fate.IGNORED))
