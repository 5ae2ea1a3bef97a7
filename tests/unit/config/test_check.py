"""Keys that mean nothing where they stand, and values that nobody means."""

import pytest

from twinlog.config import NoticeLevel
from twinlog.errors import ConfigError
from unit.cases import about
from unit.config.config_files import FILE, TWO_CLUSTERS, load_more, load_text


def test_what_is_not_understood_is_a_warning_and_an_error_when_strict() -> None:
    for line, expected in [
        ("topics.exlude = x", "unknown key; did you mean topics.exclude?"),
        ("twinlog.epoch.second = 1", "unknown key; did you mean twinlog.epoch.seconds?"),
        ("A->B.topic = x", "unknown key; did you mean A->B.topics?"),
        ("A.bootstrap.server = x", "unknown key; did you mean A.bootstrap.servers?"),
        (
            "A.consumer.isolaton.level = read_committed",
            "unknown key; did you mean A.consumer.isolation.level?",
        ),
        ("something.entirely.different = 1", "unknown key"),
        (
            "exactly.once.source.support = disabled",
            "has no effect here: write it as B.exactly.once.source.support",
        ),
        ("A->B.offset.flush.interval.ms = 1", "has no effect here: write it as B.offset.flush.interval.ms"),
        ("use.defaults.from = source", "has no effect here: write it as A->B.use.defaults.from"),
        ("B.topics = x", "has no effect here: write it as A->B.topics"),
        ("A->B.twinlog.log.level = debug", "has no effect here: write it at the top level"),
        (
            "A->B.security.protocol = SSL",
            "has no effect here: write it as A.security.protocol or B.security.protocol",
        ),
        (
            "consumer.fetch.max.bytes = 1",
            "has no effect here: write it for a cluster, as B.consumer.fetch.max.bytes",
        ),
        (
            "A.fetch.max.bytes = 1",
            "has no effect here: write it for a client, as A.consumer.fetch.max.bytes",
        ),
        (
            "source.cluster.consumer.fetch.max.bytes = 5",
            "has no effect here: it is a connector's; write it for a cluster, as A.consumer.fetch.max.bytes",
        ),
        (
            "target.cluster.security.protocol = SSL",
            "has no effect here: it is a connector's; write it for a cluster, as B.security.protocol",
        ),
        ("C.bootstrap.servers = c:1", "has no effect here: 'C' is not in clusters"),
        ("C->A.enabled = false", "has no effect here: 'C' is not in clusters"),
        ("A->C.topics = orders", "has no effect here: 'C' is not in clusters"),
        ("C->D.emit.heartbeats.enabled = true", "has no effect here: 'C', 'D' are not in clusters"),
    ]:
        with about(line, expected):
            (notice,) = load_more(line).notices
            assert (notice.level, notice.line, notice.text) == (NoticeLevel.WARNING, 5, expected)
            with pytest.raises(ConfigError) as caught:
                load_more(line, strict=True)
            assert str(caught.value) == f"{FILE}:5: {line.partition(' = ')[0]}: {expected}"


def test_no_key_is_sent_to_a_place_where_it_has_no_effect_either() -> None:
    for line in (
        "producer.linger.ms = 50",
        "B.linger.ms = 50",
        "source.cluster.consumer.max.poll.records = 5",
        "B.producer.linger.ms = 50",
    ):
        with about(line):
            (notice,) = load_more(line).notices
            assert notice.level is NoticeLevel.INFO
            assert notice.text.startswith("has no effect: "), notice.text


def test_what_nobody_can_have_meant_is_a_mistake_that_the_services_start_with() -> None:
    for line, is_mistake in [
        ("A->B.topic = orders", True),
        ("A->B.topicss = orders", True),
        ("A->B.tpoics = orders", True),
        ("A->B.enable = true", True),
        ("A->B.enabked = true", True),
        ("A->B.colour = red", False),
        ("topic = orders", False),
        ("A -> B.topics = orders", True),
        ("A-> B.topics = orders", True),
        ("A ->B.topics = orders", True),
        ('A->B.topics = "orders"', True),
        ("A->B.topics.exclude = a, 'b'", True),
        ('groups = "g"', False),
    ]:
        with about(line, is_mistake):
            notices = load_more(line).notices
            assert notices
            assert any(notice.is_mistake for notice in notices) is is_mistake


def test_a_flow_with_blanks_around_its_arrow_is_told_how_to_write_it() -> None:
    (notice,) = load_more("A -> B.topics = orders").notices
    assert notice.text == "has no effect here: a blank ends a key: write A->B.topics without blanks"


def test_aliases_without_a_comma_between_them_are_named_with_the_way_to_write_them() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text("clusters = A B\nA.bootstrap.servers = a:1\nA->B.enabled = true\n")
    assert f"{FILE}:1: clusters: 'A B' is not an alias: write commas between aliases, as A, B" in str(
        caught.value
    )


def test_what_has_no_effect_is_said_once_and_never_an_error() -> None:
    for line, reason in [
        ("dedicated.mode.enable.internal.rest = true", "the services talk gRPC"),
        ("B.scheduled.rebalance.max.delay.ms = 1", "there are no Connect workers"),
        ("scheduled.rebalance.max.delay.ms = 1", "there are no Connect workers"),
        ("status.storage.replication.factor = 1", "there is no Connect status or config topic"),
        ("B.config.storage.retention.ms = 1", "settings of Connect's own topics"),
        ("key.converter = org.apache.kafka.connect.converters.ByteArrayConverter", "byte for byte"),
        ("A->B.errors.tolerance = all", "never skipped"),
        ("metric.reporters = x", "metrics are OpenTelemetry's"),
        ("A.consumer.max.poll.records = 10000", "whole batches are read"),
        ("B.producer.acks = 1", "always all"),
        ("A->B.consumer.override.fetch.max.bytes = 1", "use source.consumer."),
        ("ssl.keymanager.algorithm = X", "no such setting"),
    ]:
        with about(line, reason):
            (notice,) = load_more(line, strict=True).notices
            assert notice.level is NoticeLevel.INFO
            assert notice.text.startswith("has no effect: ")
            assert reason in notice.text


@pytest.mark.parametrize(
    "line",
    [
        "A->B.producer.override.delivery.timeout.ms = 5",
        "B.producer.delivery.timeout.ms = 5",
        "A->B.source.consumer.fetch.max.bytes = 5",
        "A->B.target.admin.request.timeout.ms = 5000",
        "A->B.source.cluster.security.protocol = PLAINTEXT",
        "topics.blacklist = x",
        "twinlog.spark.conf.anything = x",
        "replication.policy.own.setting = x",
        "A.admin.retry.backoff.ms = 100",
        "bootstrap.servers = x:1",
    ],
)
def test_what_is_understood_is_not_mentioned(line: str) -> None:
    assert load_more(line, strict=True).notices == ()


def test_a_producer_setting_that_does_not_reach_the_records() -> None:
    (notice,) = load_more("A->B.producer.delivery.timeout.ms = 5", strict=True).notices
    assert notice.level is NoticeLevel.WARNING
    assert notice.text == (
        "reaches only the producer of offset syncs; for records write producer.override.delivery.timeout.ms"
        " or B.producer.delivery.timeout.ms"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "A->B.topics = orders # all of them",
            "' #…' is part of the value: a comment has to be on a line of its own",
        ),
        (
            "B->A.emit.heartbeats.enabled = true ",
            "MM2 reads it as false, because of the blank after the value",
        ),
        (
            "groups = g[a,b]",
            "'g[a' looks like half of an expression: a comma always separates elements",
        ),
    ],
)
def test_accident(line: str, expected: str) -> None:
    try:
        texts = [notice.text for notice in load_more(line).notices]
    except ConfigError as error:
        texts = str(error).split("\n")
    assert any(expected in text for text in texts)


def test_a_key_written_twice() -> None:
    (notice,) = load_more("topics = a", "topics = b").notices
    assert str(notice) == "line 5: topics: is written again in line 6, which wins"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topics", "a, b, a"),
        ("A->B.topics.exclude", "a,b,a"),
        ("groups", "a, b, a"),
        ("groups.exclude", "a, b, a"),
        ("config.properties.exclude", "a, b, a"),
    ],
)
def test_an_element_that_is_named_twice_counts_once_with_a_warning(key: str, value: str) -> None:
    configuration = load_more(f"{key} = {value}", strict=True)
    (notice,) = configuration.notices
    assert notice.level is NoticeLevel.WARNING
    assert str(notice) == f"line 5: {key}: 'a' is named twice and counts once"
    flow = configuration.enabled_flows[0]
    topics, groups = flow.configsync.topics, flow.checkpoint.groups
    lists = (topics.include, topics.exclude, groups.include, groups.exclude)
    assert ("a", "b") in (*lists, flow.configsync.config_properties_exclude)


def test_an_alias_that_is_named_twice_is_one_cluster() -> None:
    text = TWO_CLUSTERS.replace("clusters = A, B", "clusters = A, B, A")
    configuration = load_text(text)
    assert [str(notice) for notice in configuration.notices] == [
        "line 1: clusters: 'A' is named twice and counts once"
    ]
    assert list(configuration.clusters) == ["A", "B"]
    assert [str(flow.flow) for flow in configuration.flows] == ["A->B", "B->A"]


def test_elements_of_a_provider_that_are_named_twice_are_not_shown() -> None:
    text = TWO_CLUSTERS + (
        "config.providers = env\n"
        "config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "topics = ${env:TOPICS}\n"
    )
    configuration = load_text(text, environ={"TOPICS": "orders, users, orders"})
    assert [str(notice) for notice in configuration.notices] == [
        "line 7: topics: an element is named twice and counts once"
    ]
    assert configuration.enabled_flows[0].configsync.topics.include == ("orders", "users")


def test_the_same_brokers_twice() -> None:
    text = TWO_CLUSTERS.replace("b:9092", "c:1, a:9092").replace("a:9092\n", "a:9092, c:1\n", 1)
    notices = load_text(text).notices
    assert [notice.key for notice in notices] == ["B.bootstrap.servers", "A.bootstrap.servers"]
    assert notices[0].text == "the same brokers as A: a cluster is never replicated into itself"


def test_an_alias_with_dots_and_one_that_begins_another() -> None:
    text = (
        "clusters = eu, eu.west\nbootstrap.servers = x:1\neu.west.bootstrap.servers = y:1\n"
        "eu->eu.west.enabled = true\neu->eu.west.topics = orders\n"
    )
    configuration = load_text(text, strict=True)
    assert [str(flow.flow) for flow in configuration.enabled_flows] == ["eu->eu.west"]
    assert configuration.enabled_flows[0].configsync.topics.include == ("orders",)
    assert configuration.clusters["eu.west"].bootstrap_servers == ("y:1",)


def test_a_file_of_mm2s_quickstart_has_nothing_to_complain_about() -> None:
    notices = load_text(
        "clusters = primary, backup\n"
        "primary.bootstrap.servers = p:9092\n"
        "backup.bootstrap.servers = b:9092\n"
        "primary->backup.enabled = true\n"
        "primary->backup.topics = .*\n"
        "backup->primary.enabled = true\n"
        "backup->primary.topics = .*\n"
        "replication.factor = 1\n"
        "checkpoints.topic.replication.factor = 1\n"
        "heartbeats.topic.replication.factor = 1\n"
        "offset-syncs.topic.replication.factor = 1\n"
        "offset.storage.replication.factor = 1\n"
        "status.storage.replication.factor = 1\n"
        "config.storage.replication.factor = 1\n",
        strict=True,
    ).notices
    assert {notice.level for notice in notices} == {NoticeLevel.INFO}
    assert [notice.key for notice in notices] == [
        "status.storage.replication.factor",
        "config.storage.replication.factor",
    ]
