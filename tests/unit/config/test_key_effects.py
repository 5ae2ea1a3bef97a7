"""Keys that are documented as effective change what a client is made with; keys whose silence would weaken a
promise are refused."""

import ssl

import pytest
from aiokafka.client import AIOKafkaClient

from twinlog.kafka.clients import aiokafka_client_options, call_timeout_seconds, fetch_options
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.security.access import client_security
from twinlog.kafka.security.tls import TlsLimitError, ssl_context, tls_limits
from unit.config.config_files import TWO_CLUSTERS, load_text, problems

TLS = {"bootstrap.servers": "one:9092", "security.protocol": "SSL"}
GCM = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
ALL_OF_1_3 = "TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256"


def _context(**settings: str) -> ssl.SSLContext:
    trust = client_security({**TLS, **settings}).tls
    assert trust is not None
    return ssl_context(trust)


def _suites_of_1_2(context: ssl.SSLContext) -> set[str]:
    return {each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"}


def test_nothing_older_than_tls_1_2_is_spoken() -> None:
    assert _context().minimum_version is ssl.TLSVersion.TLSv1_2


def test_ssl_enabled_protocols_bounds_what_is_spoken() -> None:
    only_1_2 = _context(**{"ssl.enabled.protocols": "TLSv1.2"})
    assert only_1_2.maximum_version is ssl.TLSVersion.TLSv1_2
    both = _context(**{"ssl.enabled.protocols": "TLSv1.2,TLSv1.3"})
    assert both.maximum_version is not ssl.TLSVersion.TLSv1_2


def test_tls_1_3_can_be_demanded() -> None:
    for settings in ({"ssl.enabled.protocols": "TLSv1.3"}, {"ssl.cipher.suites": ALL_OF_1_3}):
        assert _context(**settings).minimum_version is ssl.TLSVersion.TLSv1_3
    with pytest.raises(TlsLimitError, match=r"TLSv1\.2 is none of"):
        tls_limits("TLSv1.3", "", "TLSv1.2")


def test_ssl_protocol_is_the_newest_that_is_spoken() -> None:
    for newest in ("TLSv1.2", "tlsv1.2"):
        assert _context(**{"ssl.protocol": newest}).maximum_version is ssl.TLSVersion.TLSv1_2
        assert tls_limits("TLSv1.2,TLSv1.3", "", newest).most == "TLSv1.2"
    for any_of_them in ("TLS", "TLSv1.3"):
        assert _context(**{"ssl.protocol": any_of_them}).maximum_version is not ssl.TLSVersion.TLSv1_2
    for older in ("TLSv1.1", "SSLv3", "DTLS"):
        with pytest.raises(TlsLimitError, match=older):
            tls_limits("", "", older)


def test_a_provider_of_java_is_refused_unless_there_is_none() -> None:
    for place in ("", "A.", "B.producer.", "A->B.source.consumer."):
        (problem,) = problems(f"{TWO_CLUSTERS}\n{place}ssl.provider = BCFIPS")
        assert "providers of Java cannot be run" in problem
    load_text(f"{TWO_CLUSTERS}\nA.ssl.provider =")


def test_ssl_cipher_suites_bounds_what_is_offered() -> None:
    properties = {**TLS, "ssl.cipher.suites": f"{GCM}, {ALL_OF_1_3}"}
    assert _suites_of_1_2(_context(**properties)) == {"ECDHE-RSA-AES256-GCM-SHA384"}


def test_suites_of_tls_1_2_alone_leave_tls_1_3_out() -> None:
    assert _context(**{"ssl.cipher.suites": GCM}).maximum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
    ],
)
def test_java_names_of_suites_are_openssls(suite: str, name: str) -> None:
    limits = tls_limits("", suite)
    assert limits.ciphers == name
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(limits.ciphers)
    assert _suites_of_1_2(context) == {name}


@pytest.mark.parametrize(
    ("protocols", "suites", "key"),
    [
        ("TLSv1.3", GCM, "ssl.cipher.suites"),
        ("TLSv1.2", ALL_OF_1_3, "ssl.cipher.suites"),
        ("TLSv1.2,TLSv1", "", "ssl.enabled.protocols"),
        ("", f"{GCM},TLS_AES_128_GCM_SHA256", "ssl.cipher.suites"),
        ("", "TLS_KRB5_WITH_RC4_128_MD5", "ssl.cipher.suites"),
    ],
)
def test_what_cannot_be_obeyed_is_refused(protocols: str, suites: str, key: str) -> None:
    with pytest.raises(TlsLimitError) as refused:
        tls_limits(protocols, suites)
    assert refused.value.key == key


@pytest.mark.parametrize("converter", ["key", "value", "header"])
@pytest.mark.parametrize("place", ["", "B.", "A->B."])
def test_a_converter_that_would_convert_is_refused(converter: str, place: str) -> None:
    line = f"{place}{converter}.converter = org.apache.kafka.connect.storage.StringConverter"
    (problem,) = problems(f"{TWO_CLUSTERS}\n{line}")
    assert "StringConverter would convert records" in problem
    harmless = line.replace("storage.StringConverter", "converters.ByteArrayConverter")
    load_text(f"{TWO_CLUSTERS}\n{harmless}")


@pytest.mark.parametrize("place", ["A.consumer.", "B.producer.", "A->B.producer.override.", "A->B.consumer."])
def test_interceptors_are_refused_unless_there_are_none(place: str) -> None:
    (problem,) = problems(f"{TWO_CLUSTERS}\n{place}interceptor.classes = com.example.Audit")
    assert "interceptors are not run here" in problem
    load_text(f"{TWO_CLUSTERS}\n{place}interceptor.classes =")


async def test_request_timeout_ms_is_that_of_each_request_of_every_client() -> None:
    properties = {"bootstrap.servers": "one:9092", "request.timeout.ms": "4000"}
    session = DataClientPool("A", aiokafka_client_options(properties), timeout_seconds=30)
    assert AIOKafkaClient(**session.options)._request_timeout_ms == 4000


def test_a_broker_that_waits_for_data_answers_within_request_timeout_ms() -> None:
    assert fetch_options({"bootstrap.servers": "one:9092", "request.timeout.ms": "4000"}).max_wait_ms == 2000
    assert fetch_options({"bootstrap.servers": "one:9092"}).max_wait_ms == 5000


def test_admin_timeout_ms_bounds_every_administrative_call_of_the_flow() -> None:
    (flow,) = load_text(f"{TWO_CLUSTERS}\nadmin.timeout.ms = 7000").enabled_flows
    for client in (flow.clients.source_admin, flow.clients.target_admin):
        assert call_timeout_seconds(client.properties, default=30.0) == 7.0
    unset = load_text(TWO_CLUSTERS).enabled_flows[0].clients.source_admin
    assert call_timeout_seconds(unset.properties, default=30.0) == 30.0


def test_topic_settings_of_offset_storage_reach_the_positions_topic() -> None:
    lines = "B.offset.storage.min.insync.replicas = 2\noffset.storage.segment.bytes = 1048576"
    (flow,) = load_text(f"{TWO_CLUSTERS}\n{lines}").enabled_flows
    assert flow.source.offset_storage.topic_configs == {
        "min.insync.replicas": "2",
        "segment.bytes": "1048576",
    }


def test_a_forwarding_admin_is_refused_with_what_takes_its_place() -> None:
    (problem,) = problems(f"{TWO_CLUSTERS}\nforwarding.admin.class = com.example.Admin")
    assert "set twinlog.sync.mode=manual" in problem


@pytest.mark.parametrize(
    "line",
    [
        "forwarding.admin.class = com.example.Admin",
        "topic.filter.class = com.example.Topics",
        "group.filter.class = com.example.Groups",
        "config.property.filter.class = com.example.Configs",
        "A->B.target.cluster.alias = C",
    ],
)
def test_classes_that_are_not_kafkas_own_are_refused(line: str) -> None:
    (problem,) = problems(f"{TWO_CLUSTERS}\n{line}")
    assert line.partition(" = ")[0] in problem
