"""Connectors as Connect's REST API tells them become properties files with the same meaning."""

import json

import pytest

from twinlog.errors import ConfigError
from twinlog.imports import Fate, Format
from unit.imports.estates import imported, read_back, texts

PACKAGE = "org.apache.kafka.connect.mirror"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CLUSTERS = {
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.bootstrap.servers": "b:9092",
    "key.converter": BYTES,
    "value.converter": BYTES,
}
SOURCE = {
    "name": "my-mirror",
    "config": {
        "name": "my-mirror",
        "connector.class": f"{PACKAGE}.MirrorSourceConnector",
        **CLUSTERS,
        "topics": "orders,payments.*",
        "topics.exclude": "payments.test",
        "tasks.max": "7",
        "replication.factor": "1",
        "offset.lag.max": "10",
        "groups": "ignored-here",
        "source.consumer.isolation.level": "read_committed",
        "producer.override.compression.type": "zstd",
    },
}
CHECKPOINT = {
    "name": "my-checkpoints",
    "config": {
        "connector.class": "MirrorCheckpointConnector",
        **CLUSTERS,
        "tasks.max": "3",
        "groups": "app-.*",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "5",
    },
}
HEARTBEAT = {
    "name": "beats",
    "config": {
        "connector.class": f"{PACKAGE}.MirrorHeartbeatConnector",
        **CLUSTERS,
        "emit.heartbeats.interval.seconds": "2",
    },
}


def test_three_connectors_become_one_flow() -> None:
    found = imported(json.dumps([SOURCE, CHECKPOINT, HEARTBEAT]), offsets_topic="connect-offsets")

    assert found.format is Format.CONNECT
    assert found.complete
    [flow] = read_back(found).flows
    assert flow.enabled
    assert flow.configsync.topics.include == ("orders", "payments.*")
    assert flow.configsync.topics.exclude == ("payments.test",)
    assert flow.source.max_slots == 7
    assert flow.source.offset_syncs.max_lag_records == 10
    assert flow.source.connector_name == "my-mirror"
    assert flow.source.offset_storage.topic == "connect-offsets"
    assert flow.checkpoint.groups.include == ("app-.*",)
    assert flow.checkpoint.sync_group_offsets_interval_seconds == 5
    assert flow.heartbeat.interval_seconds == 2
    assert flow.clients.source_consumer.bootstrap_servers == ("a:9092",)
    assert flow.clients.data_producer.bootstrap_servers == ("b:9092",)
    assert flow.clients.data_producer.properties["compression.type"] == "zstd"


def test_group_sync_is_off_with_checkpoints_that_a_negative_interval_switches_off() -> None:
    text = json.dumps([SOURCE, CHECKPOINT])
    negative = text.replace('"groups": "app-.*"', '"emit.checkpoints.interval.seconds": "-1"')
    found = imported(negative, offsets_topic="connect-offsets")

    [flow] = read_back(found).flows
    assert not flow.checkpoint.enabled
    assert not flow.checkpoint.sync_group_offsets_enabled


@pytest.mark.parametrize("form", ["list", "expand", "one", "config"])
def test_every_form_in_which_rest_tells_a_connector_is_read(form: str) -> None:
    forms = {
        "list": [SOURCE],
        "expand": {"my-mirror": {"info": {**SOURCE, "tasks": [], "type": "source"}}},
        "one": SOURCE,
        "config": SOURCE["config"],
    }

    [flow] = read_back(imported(json.dumps(forms[form]), offsets_topic="o")).flows

    assert flow.source.connector_name == "my-mirror"
    assert not flow.checkpoint.enabled, "there was no checkpoint connector"
    assert not flow.heartbeat.enabled


def test_a_connector_that_was_stopped_stays_so() -> None:
    status = {"connector": {"state": "STOPPED"}}
    text = json.dumps({"my-mirror": {"info": SOURCE, "status": status}, "beats": {"info": HEARTBEAT}})

    [flow] = read_back(imported(text, offsets_topic="o")).flows

    assert not flow.enabled


def test_without_the_topic_of_its_positions_a_flow_does_not_begin_again_from_the_start() -> None:
    found = imported(json.dumps([SOURCE, HEARTBEAT]))

    [flow] = read_back(found).flows
    assert not flow.enabled
    assert "--offsets-topic" in texts(found, Fate.TO_DO)

    own = {**SOURCE["config"], "offsets.storage.topic": "own-offsets"}  # type: ignore[dict-item]
    [flow] = read_back(imported(json.dumps(own))).flows
    assert flow.enabled
    assert flow.source.offset_storage.topic == "own-offsets"


def test_what_two_connectors_of_a_flow_say_differently_is_reported() -> None:
    other = {**CHECKPOINT["config"], "name": "c", "topics": "only-these", "admin.timeout.ms": "5"}  # type: ignore[dict-item]

    found = imported(json.dumps([SOURCE, other]), offsets_topic="o")

    [flow] = read_back(found).flows
    assert flow.configsync.topics.include == ("orders", "payments.*")
    assert "another connector of A->B has another value of topics" in texts(found, Fate.TO_DO)


def test_a_secret_is_neither_shown_nor_lost() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="s3cret";'
    login = {
        "source.cluster.security.protocol": "SASL_PLAINTEXT",
        "source.cluster.sasl.mechanism": "PLAIN",
        "source.cluster.sasl.jaas.config": jaas,
        "target.cluster.ssl.truststore.password": "****",
    }
    found = imported(json.dumps({**SOURCE["config"], **login}), offsets_topic="o")  # type: ignore[dict-item]

    [flow] = read_back(found).flows
    assert flow.clients.source_consumer.properties["sasl.jaas.config"] == jaas
    assert all("s3cret" not in f"{line}" for line in found.lines)
    assert "a secret in clear text" in texts(found, Fate.TO_DO)
    assert "${env:B_SSL_TRUSTSTORE_PASSWORD}" in found.properties
    assert "s3cret" not in found.properties.partition("\nclusters=")[0]


def test_elements_that_kafka_took_before_4_2_do_not_make_a_file_that_is_refused() -> None:
    config = {**SOURCE["config"], "topics": "a,,b,a"}  # type: ignore[dict-item]

    [flow] = read_back(imported(json.dumps(config), offsets_topic="o")).flows

    assert flow.configsync.topics.include == ("a", "b")


def test_other_connectors_are_named_and_left_out() -> None:
    sink = {"name": "sink", "config": {"connector.class": "com.example.Sink"}}

    found = imported(json.dumps([SOURCE, sink]), offsets_topic="o")

    assert "sink: com.example.Sink is none of MirrorMaker 2's" in texts(found, Fate.IGNORED)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[\n{"name": }]', "estate:2"),
        ('{"a": 1,\n "b": {},\n "a": 2}', "estate:3: 'a' occurs twice in one object"),
        ('{"config":\n {"tasks.max": NaN}}', "estate:2: NaN is not a JSON value"),
        ('{"name": "x",\n\n "config": {"topics": "a"},}', "estate:3: "),
        ('{"name": "x"}\n"y"', "estate:2: Extra data"),
        ('{"name": "x"}\n{"name": }', "estate:2: "),
        (
            f'{{"connector.class": "{PACKAGE}.MirrorSourceConnector",\n "topics": {{"a": 1}}}}',
            "estate:2: topics has to be one value",
        ),
        ("[\n" * 100_000, "estate:62: nested too deeply"),
        ("[\n" * 100 + "]" * 100, "estate:62: nested too deeply"),
        ('{"name": "x", "config": {}}', "the format is not known"),
        (json.dumps({"config": {"connector.class": "com.example.Sink"}}), "it contains no replication"),
    ],
)
def test_what_is_malformed_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r".*") as error:
        imported(text)
    assert problem in str(error.value)


def test_what_the_services_would_refuse_is_said_at_once() -> None:
    config = {**SOURCE["config"], "replication.factor": "many"}  # type: ignore[dict-item]

    found = imported(json.dumps(config), offsets_topic="o")

    assert not found.complete
    assert "is refused as it is" in texts(found, Fate.IMPOSSIBLE)
    assert "replication.factor" in texts(found, Fate.IMPOSSIBLE)


def test_the_report_names_the_line_of_each_setting() -> None:
    """Brackets, quotes and line ends in strings are none of the file's."""
    config = {**SOURCE["config"], "topics": 'a{2}["\\n,:', "transforms": "drop"}  # type: ignore[dict-item]
    text = json.dumps([{"name": "first } ]", "config": {}}, {"name": "x", "config": config}], indent=1)

    found = imported(text, offsets_topic="o")

    [line] = [each for each in found.lines if each.place.endswith("config.transforms")]
    assert '"transforms": "drop"' in text.splitlines()[line.line - 1]
    assert all(
        each.line for each in found.lines if each.fate is not Fate.MAPPED and each.place.startswith("[")
    )
