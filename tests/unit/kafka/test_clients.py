"""Java client properties on their way to the client."""

import logging

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import SaslAuthenticateRequest

from twinlog.errors import ConfigError
from twinlog.kafka.clients import (
    FetchOptions,
    aiokafka_client_options,
    aiokafka_producer_options,
    apply_aiokafka_fixes,
    bootstrap_servers,
    delivery_timeout_seconds,
    fetch_options,
)
from unit.cases import about

SERVERS = {"bootstrap.servers": "one:9092"}
LOGIN = {
    **SERVERS,
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'a.b.ScramLoginModule required username="u" password="hush";',
}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("one:9092", ["one:9092"]),
        (" one:9092 , two.example:9093,", ["one:9092", "two.example:9093"]),
        ("PLAINTEXT://one:9092", ["one:9092"]),
        ("[::1]:9092", ["[::1]:9092"]),
        ("10.0.0.1:1", ["10.0.0.1:1"]),
    ],
)
def test_bootstrap_servers_are_read_as_in_java(written: str, meant: list[str]) -> None:
    assert bootstrap_servers({"bootstrap.servers": written}) == meant


@pytest.mark.parametrize(
    "written", ["", " , ", "one", "one:", "one:0", "one:99999", "one:port", "http://one"]
)
def test_what_is_no_server_is_named(written: str) -> None:
    with pytest.raises(ConfigError) as raised:
        bootstrap_servers({"bootstrap.servers": written}, alias="A")
    assert "cluster 'A': bootstrap.servers" in str(raised.value)
    assert raised.value.metadata == {"cluster": "A", "key": "bootstrap.servers"}


def test_a_plain_cluster_needs_its_servers_only() -> None:
    assert aiokafka_client_options(SERVERS) == {
        "bootstrap_servers": ["one:9092"],
        "client_id": "twinlog",
        "security_protocol": "PLAINTEXT",
    }


def test_a_login_reaches_the_library() -> None:
    ours = aiokafka_client_options(LOGIN)
    assert (ours["sasl_mechanism"], ours["sasl_plain_username"], ours["sasl_plain_password"]) == (
        "SCRAM-SHA-512",
        "u",
        "hush",
    )
    assert ours["security_protocol"] == "SASL_PLAINTEXT"


def test_words_are_taken_in_any_case() -> None:
    properties = {**LOGIN, "security.protocol": "sasl_plaintext", "sasl.mechanism": "plain"}
    assert aiokafka_client_options(properties)["sasl_mechanism"] == "PLAIN"


def test_a_wrong_setting_is_named_with_its_remedy_and_no_secret() -> None:
    for change, key, remedy in [
        ({"security.protocol": "TLS"}, "security.protocol", "SASL_SSL"),
        ({"sasl.mechanism": "DIGEST-MD5"}, "sasl.mechanism", "SCRAM-SHA-256"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.jaas.config", "OAUTHBEARER"),
        (
            {
                "sasl.mechanism": "GSSAPI",
                "sasl.jaas.config": "x.Krb5LoginModule required useKeyTab=true keyTab=k;",
            },
            "sasl.kerberos.service.name",
            "kafka",
        ),
        (
            {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": "Krb5LoginModule required serviceName=kafka;"},
            "sasl.jaas.config",
            "useTicketCache=true",
        ),
        (
            {
                "sasl.mechanism": "GSSAPI",
                "sasl.jaas.config": "Krb5LoginModule required serviceName=kafka useKeyTab=true keyTab=k;",
            },
            "sasl.jaas.config",
            "principal is missing",
        ),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.jaas.config", "OAuthBearerLoginModule"),
        (
            {"sasl.login.callback.handler.class": "org.acme.Vault"},
            "sasl.login.callback.handler.class",
            "leave",
        ),
        ({"sasl.mechanism": ""}, "sasl.mechanism", "PLAIN"),
        ({"sasl.jaas.config": ""}, "sasl.jaas.config", "required username="),
        ({"sasl.jaas.config": 'M required username="u" password="hush"'}, "sasl.jaas.config", "semicolon"),
        (
            {"sasl.jaas.config": 'x.Krb5LoginModule required username="u" password="hush";'},
            "sasl.jaas.config",
            "ScramLoginModule",
        ),
        (
            {"sasl.jaas.config": 'ScramLoginModule required username="u" password="";'},
            "sasl.jaas.config",
            'add password="…"',
        ),
        (
            {"sasl.jaas.config": 'ScramLoginModule required username="u" password="hush" tokenauth="true";'},
            "sasl.jaas.config",
            "SCRAM user",
        ),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms", "whole number"),
        ({"connections.max.idle.ms": "-2"}, "connections.max.idle.ms", "whole number"),
    ]:
        with about(change, key, remedy):
            for make in (aiokafka_client_options, aiokafka_producer_options):
                with pytest.raises(ConfigError) as raised:
                    make({**LOGIN, **change}, alias="A")
                assert f"cluster 'A': {key}: " in str(raised.value)
                assert remedy in str(raised.value)
                assert "hush" not in str(raised.value)
                assert raised.value.metadata["key"] == key


def test_dials_are_mapped() -> None:
    properties = {
        **SERVERS,
        "client.id": "mirror",
        "request.timeout.ms": "1000",
        "metadata.max.age.ms": "2000",
        "retry.backoff.ms": "3",
        "connections.max.idle.ms": "-1",
        "max.request.size": "6",
        "transaction.timeout.ms": "7",
        "compression.type": "zstd",
    }
    producer = aiokafka_producer_options(properties, client_id_suffix="A->B")
    assert producer == {
        "bootstrap_servers": ["one:9092"],
        "client_id": "mirror-A->B",
        "security_protocol": "PLAINTEXT",
        "request_timeout_ms": 1000,
        "metadata_max_age_ms": 2000,
        "retry_backoff_ms": 3,
        "connections_max_idle_ms": None,
        "max_request_size": 6,
        "transaction_timeout_ms": 7,
        "compression_type": "zstd",
        "enable_idempotence": True,
        "acks": "all",
    }


def test_acks_and_idempotence_stay_safe() -> None:
    options = aiokafka_producer_options({**SERVERS, "acks": "1", "enable.idempotence": "false"})
    assert (options["acks"], options["enable_idempotence"]) == ("all", True)
    assert options["compression_type"] is None


def test_reading_is_committed_by_default() -> None:
    assert fetch_options(SERVERS) == FetchOptions()
    assert fetch_options(SERVERS).read_committed


def test_reading_dials_are_mapped() -> None:
    assert fetch_options(
        {
            "fetch.min.bytes": "1",
            "fetch.max.bytes": "2",
            "fetch.max.wait.ms": "3",
            "max.partition.fetch.bytes": "4",
            "isolation.level": "read_uncommitted",
            "client.rack": "r1",
            "check.crcs": "false",
        }
    ) == FetchOptions(
        min_bytes=1,
        max_bytes=2,
        max_wait_ms=3,
        max_partition_bytes=4,
        read_committed=False,
        client_rack="r1",
        check_crcs=False,
    )


@pytest.mark.parametrize(
    ("properties", "max_wait_ms"),
    [({}, 5000), ({"fetch.min.bytes": "1"}, 5000), ({"fetch.min.bytes": "9"}, 500)],
)
def test_brokers_with_nothing_may_answer_late_unless_a_little_data_waits(
    properties: dict[str, str], max_wait_ms: int
) -> None:
    assert fetch_options(properties).max_wait_ms == max_wait_ms


@pytest.mark.parametrize(
    ("key", "value"),
    [("isolation.level", "serializable"), ("check.crcs", "yes"), ("fetch.min.bytes", "-1")],
)
def test_a_wrong_reading_dial_is_named(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        fetch_options({key: value}, alias="B")
    assert f"cluster 'B': {key}: " in str(raised.value)


def test_a_wrong_codec_is_named() -> None:
    with pytest.raises(ConfigError) as raised:
        aiokafka_producer_options({**SERVERS, "compression.type": "brotli"})
    assert "compression.type: 'brotli' is none of none, gzip, snappy, lz4, zstd" in str(raised.value)


def test_delivery_timeout_is_in_seconds() -> None:
    assert delivery_timeout_seconds({"delivery.timeout.ms": "1500"}) == 1.5
    assert delivery_timeout_seconds({}) == 120.0


async def test_aiokafka_takes_the_options() -> None:
    assert AIOKafkaClient(**aiokafka_client_options(LOGIN)).hosts == [("one", 9092, 0)]


def test_a_password_never_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    apply_aiokafka_fixes()
    log = logging.getLogger("aiokafka.conn")
    with caplog.at_level(logging.DEBUG):
        log.debug("Request to %s: %s", "one:9092", SaslAuthenticateRequest(b"\0u\0hush"))
        log.error("Unable connect to %s", "one:9092")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "Unable connect to one:9092")
    ]
    with caplog.at_level(logging.INFO):
        caplog.clear()
        log.error("Unable connect to %s", "one:9092")
    assert caplog.records == []


def test_client_ids_tell_clients_apart() -> None:
    assert aiokafka_client_options(SERVERS, client_id_suffix="A->B-0")["client_id"] == "twinlog-A->B-0"
