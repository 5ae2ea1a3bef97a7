"""What a file says about the security of the services' ports."""

from pathlib import Path

import pytest

from twinlog.config import Address, Configuration, Service, load
from twinlog.config.security import (
    AuthSettings,
    OidcSettings,
    PeerSecurity,
    PortSecurity,
    TlsFiles,
    is_trusted_url,
)
from twinlog.errors import ConfigError
from twinlog.service.access.exposure import lacks, refuse_open_port
from twinlog_source.driver.stream.worker_port import listen_address

BASE = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
TLS = "twinlog.tls.certificate.file = /c\ntwinlog.tls.key.file = /k\ntwinlog.tls.ca.file = /a\n"
OPEN = "twinlog.source.listen = 0.0.0.0:17401\n"
OIDC = "twinlog.auth.oidc.issuer = https://id.example\ntwinlog.auth.oidc.audience = twinlog\n"


def configuration(tmp_path: Path, text: str) -> Configuration:
    file = tmp_path / "mm2.properties"
    file.write_text(BASE + text)
    return load(file, environ={}, strict=True)


def test_without_keys_a_port_on_loopback_is_as_it_always_was(tmp_path: Path) -> None:
    found = configuration(tmp_path, "")
    for service in Service:
        refuse_open_port(found, service)
        assert lacks(found.security, service) == "TLS and no authentication"
        assert not found.security.to_call(service, own=service).tls


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        ("", "TLS and no authentication"),
        ("twinlog.auth.tokens.file = /t\n", "TLS"),
        (TLS + "twinlog.tls.client.auth = none\n", "authentication"),
    ],
)
def test_a_port_that_others_reach_needs_tls_and_authentication(
    tmp_path: Path, keys: str, missing: str
) -> None:
    found = configuration(tmp_path, OPEN + keys)
    with pytest.raises(ConfigError, match=f"there is no {missing}: all who") as refused:
        refuse_open_port(found, Service.SOURCE)
    assert refused.value.reason == "INSECURE_LISTEN"
    assert "twinlog.source.insecure = true" in str(refused.value)
    refuse_open_port(found, Service.HEARTBEAT)


@pytest.mark.parametrize(
    "keys",
    [
        TLS,
        TLS + "twinlog.tls.client.auth = none\ntwinlog.auth.tokens.file = /t\n",
        TLS
        + "twinlog.tls.client.auth = none\ntwinlog.auth.oidc.issuer = https://i\n"
        + "twinlog.auth.oidc.audience = twinlog\n",
        "twinlog.insecure = true\n",
        "twinlog.source.insecure = true\n",
    ],
)
def test_a_port_that_others_reach_starts_when_it_is_secured_or_told_to_be_insecure(
    tmp_path: Path, keys: str
) -> None:
    refuse_open_port(configuration(tmp_path, OPEN + keys), Service.SOURCE)


def test_a_key_of_a_service_wins_over_the_common_one(tmp_path: Path) -> None:
    found = configuration(
        tmp_path,
        TLS
        + "twinlog.insecure = true\ntwinlog.source.insecure = false\n"
        + "twinlog.source.tls.certificate.file = /sc\ntwinlog.source.tls.key.file = /sk\n"
        + "twinlog.source.tls.client.auth = none\ntwinlog.source.tls.server.name = src\n",
    ).security
    source, heartbeat = found.port(Service.SOURCE), found.port(Service.HEARTBEAT)
    assert source.tls is not None
    assert heartbeat.tls is not None
    assert (source.tls.certificate, source.tls.key, source.tls.ca) == ("/sc", "/sk", "/a")
    assert (heartbeat.tls.certificate, heartbeat.insecure, source.insecure) == ("/c", True, False)
    assert (source.client_certificates, heartbeat.client_certificates) == (False, True)
    calls = found.to_call(Service.SOURCE, own=Service.HEARTBEAT)
    assert (calls.certificate, calls.server_name, calls.tls) == ("/c", "src", True)


def test_commands_have_credentials_of_their_own_where_they_are_named(tmp_path: Path) -> None:
    found = configuration(
        tmp_path,
        "twinlog.client.tls.ca.file = /ca\ntwinlog.client.tls.certificate.file = /me\n"
        "twinlog.client.tls.key.file = /mine\ntwinlog.client.token.file = /token\n",
    ).security.to_call(Service.SOURCE)
    assert (found.tls, found.ca, found.certificate, found.key) == (True, "/ca", "/me", "/mine")
    assert found.token_file == "/token"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("twinlog.tls.certificate.file = /c\n", "twinlog.tls.key.file: missing"),
        ("twinlog.tls.key.file = /c\n", "twinlog.tls.certificate.file: missing"),
        ("twinlog.tls.certificate.file = /c\ntwinlog.tls.key.file = /k\n", "twinlog.tls.ca.file: missing"),
        ("twinlog.auth.oidc.issuer = https://i\n", "twinlog.auth.oidc.audience: missing"),
        (
            "twinlog.auth.oidc.issuer = http://id.example\ntwinlog.auth.oidc.audience = x\n",
            "expected an https:// address",
        ),
        ("twinlog.auth.oidc.algorithms = HS256\n", "twinlog.auth.oidc.algorithms"),
        ("twinlog.auth.oidc.algorithms = none\n", "twinlog.auth.oidc.algorithms"),
        ("twinlog.auth.admins = ops\n", "'ops': expected KIND:NAME"),
    ],
)
def test_what_does_not_fit_together_is_named(tmp_path: Path, keys: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configuration(tmp_path, keys)
    assert words in str(refused.value)


OF_ONE_SERVICE = {
    Service.SOURCE: """
twinlog.source.tls.certificate.file = /own/c
twinlog.source.tls.key.file = /own/k
twinlog.source.tls.ca.file = /own/a
twinlog.source.tls.client.auth = none
twinlog.source.tls.server.name = own
twinlog.source.insecure = true
""",
    Service.CHECKPOINT: """
twinlog.checkpoint.tls.certificate.file = /own/c
twinlog.checkpoint.tls.key.file = /own/k
twinlog.checkpoint.tls.ca.file = /own/a
twinlog.checkpoint.tls.client.auth = none
twinlog.checkpoint.tls.server.name = own
twinlog.checkpoint.insecure = true
""",
    Service.HEARTBEAT: """
twinlog.heartbeat.tls.certificate.file = /own/c
twinlog.heartbeat.tls.key.file = /own/k
twinlog.heartbeat.tls.ca.file = /own/a
twinlog.heartbeat.tls.client.auth = none
twinlog.heartbeat.tls.server.name = own
twinlog.heartbeat.insecure = true
""",
    Service.CONFIGSYNC: """
twinlog.configsync.tls.certificate.file = /own/c
twinlog.configsync.tls.key.file = /own/k
twinlog.configsync.tls.ca.file = /own/a
twinlog.configsync.tls.client.auth = none
twinlog.configsync.tls.server.name = own
twinlog.configsync.insecure = true
""",
}
COMMON = """
twinlog.tls.certificate.file = /c
twinlog.tls.key.file = /k
twinlog.tls.ca.file = /a
twinlog.tls.client.auth = required
twinlog.tls.server.name = all
twinlog.insecure = false
"""
OF_CALLERS = """
twinlog.client.tls.certificate.file = /me/c
twinlog.client.tls.key.file = /me/k
twinlog.client.tls.ca.file = /me/a
twinlog.client.token.file = /me/token
twinlog.auth.tokens.file = /tokens
twinlog.auth.oidc.issuer = https://id.example
twinlog.auth.oidc.audience = mirrors
twinlog.auth.oidc.jwks.url = https://id.example/keys
twinlog.auth.oidc.ca.file = /id/ca
twinlog.auth.oidc.algorithms = ES384
twinlog.auth.oidc.roles.claim = realm.roles
twinlog.auth.oidc.clock.skew.seconds = 7
twinlog.auth.viewers = *
twinlog.auth.operators = cn:ops, sub:7
twinlog.auth.admins = group:root
"""
OF_TASKS = """
twinlog.source.worker.listen = 10.0.0.1:17405
"""


@pytest.mark.parametrize("service", list(Service))
def test_each_key_of_a_port_is_obeyed_for_one_service_and_for_all(tmp_path: Path, service: Service) -> None:
    found = configuration(tmp_path, COMMON + OF_ONE_SERVICE[service]).security
    own = TlsFiles(certificate="/own/c", key="/own/k", ca="/own/a")
    common = TlsFiles(certificate="/c", key="/k", ca="/a")
    for each, port in found.ports.items():
        if each is service:
            assert port == PortSecurity(tls=own, insecure=True, server_name="own")
        else:
            assert port == PortSecurity(tls=common, client_certificates=True, server_name="all")


def test_each_key_of_callers_is_obeyed(tmp_path: Path) -> None:
    found = configuration(tmp_path, OF_CALLERS).security
    assert found.client == PeerSecurity(
        tls=True, ca="/me/a", certificate="/me/c", key="/me/k", token_file="/me/token"
    )
    assert found.auth == AuthSettings(
        tokens_file="/tokens",
        oidc=OidcSettings(
            issuer="https://id.example",
            audience="mirrors",
            jwks_url="https://id.example/keys",
            ca_file="/id/ca",
            algorithms=("ES384",),
            roles_claim="realm.roles",
            clock_skew_seconds=7.0,
        ),
        viewers=("*",),
        operators=("cn:ops", "sub:7"),
        admins=("group:root",),
    )


def test_tasks_are_met_on_an_address_of_their_own(tmp_path: Path) -> None:
    found = configuration(tmp_path, OF_TASKS)
    assert str(listen_address(found)) == "10.0.0.1:17405"
    assert listen_address(configuration(tmp_path, "")).is_loopback
    cluster = (
        "twinlog.spark.master = spark://m:7077\ntwinlog.spark.conf.spark.authenticate.secret = s\n"
        "twinlog.source.listen = 10.0.0.2:17401\ntwinlog.insecure = true\n"
    )
    assert str(listen_address(configuration(tmp_path, cluster))) == "10.0.0.2:0"
    named = cluster + "twinlog.source.worker.endpoint = s.example:17405\n"
    assert str(listen_address(configuration(tmp_path, named))) == "10.0.0.2:17405"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("twinlog.auth.admins = cn:ops\n", "twinlog.auth.admins: without effect"),
        (
            TLS + "twinlog.tls.client.auth = none\ntwinlog.auth.viewers = *\n",
            "twinlog.auth.viewers: without effect",
        ),
        ("twinlog.auth.oidc.audience = twinlog\n", "twinlog.auth.oidc.issuer: missing"),
        (
            OIDC + "twinlog.auth.oidc.algorithms =\n",
            "twinlog.auth.oidc.algorithms: empty",
        ),
    ],
)
def test_keys_that_would_protect_nothing_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        configuration(tmp_path, text)


def test_tasks_at_the_port_of_the_service_are_refused_by_the_source_service_alone(tmp_path: Path) -> None:
    found = configuration(tmp_path, "twinlog.source.worker.endpoint = s.example:17401\n")
    notices = [each.text for each in found.notices if each.key == "twinlog.source.worker.endpoint"]
    assert any("choose another one" in text for text in notices)
    with pytest.raises(ConfigError, match="tasks have a port of their own: choose another one"):
        listen_address(found)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.4.5.6", True),
        ("[::1]", True),
        ("127.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
    ],
)
def test_only_addresses_and_localhost_are_of_this_machine(host: str, expected: bool) -> None:
    assert Address(host=host, port=1).is_loopback is expected
    assert is_trusted_url(f"http://{host}/keys") is expected
    assert is_trusted_url(f"https://{host}/keys")
