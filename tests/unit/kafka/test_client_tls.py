"""TLS of Kafka clients: trust, identity and the check of names reach the connections."""

import datetime as dt
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from twinlog.errors import ConfigError
from twinlog.kafka.clients import (
    aiokafka_client_options,
)
from twinlog.kafka.security.access import client_security
from twinlog.local.blocking_cluster import CertificateAuthority
from unit.kafka.test_clients import LOGIN, SERVERS


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


def tls(authority: CertificateAuthority, **more: str) -> dict[str, str]:
    return {
        **SERVERS,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca_file),
        **more,
    }


def test_trust_reaches_the_context(authority: CertificateAuthority) -> None:
    context = aiokafka_client_options(tls(authority))["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


def test_the_host_name_check_can_be_switched_off(authority: CertificateAuthority) -> None:
    properties = tls(authority) | {"ssl.endpoint.identification.algorithm": ""}
    context = aiokafka_client_options(properties)["ssl_context"]
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_without_a_truststore_the_systems_authorities_count() -> None:
    properties = {**SERVERS, "security.protocol": "SSL"}
    assert aiokafka_client_options(properties)["ssl_context"].verify_mode is ssl.CERT_REQUIRED


def test_an_identity_is_taken(authority: CertificateAuthority) -> None:
    user = authority.issue_for_user("alice")
    properties = tls(authority) | {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(user)}
    assert isinstance(aiokafka_client_options(properties)["ssl_context"], ssl.SSLContext)
    trust = client_security(properties).tls
    assert trust is not None
    assert trust.identity is not None
    assert "CERTIFICATE" in trust.identity.certificate_chain_pem
    assert "PRIVATE KEY" in trust.identity.key_pem


def test_certificates_may_stand_in_the_properties_themselves(authority: CertificateAuthority) -> None:
    user = authority.issue_for_user("alice").read_text()
    properties = {
        **SERVERS,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.ca_file.read_text().replace("\n", " "),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": user,
        "ssl.keystore.certificate.chain": user,
    }
    assert len(aiokafka_client_options(properties)["ssl_context"].get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("change", "key", "problem"),
    [
        (
            {"ssl.truststore.location": "/no/such/file"},
            "ssl.truststore.location",
            "cannot read /no/such/file",
        ),
        ({"ssl.truststore.type": "BKS"}, "ssl.truststore.type", "PKCS12"),
        ({"ssl.truststore.certificates": "x"}, "ssl.truststore.location", "not both"),
        ({"ssl.keystore.location": "/no/such/file"}, "ssl.keystore.location", "cannot read"),
        ({"ssl.keystore.key": "x"}, "ssl.keystore.certificate.chain", "both"),
        ({"ssl.keystore.certificate.chain": "x"}, "ssl.keystore.key", "both"),
        (
            {"ssl.keystore.key": "x", "ssl.keystore.certificate.chain": "x"},
            "ssl.keystore.key",
            "no certificate",
        ),
        ({"ssl.endpoint.identification.algorithm": "ldap"}, "ssl.endpoint.identification.algorithm", "https"),
    ],
)
def test_a_wrong_store_is_named(
    authority: CertificateAuthority, change: Mapping[str, str], key: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        aiokafka_client_options(tls(authority) | dict(change), alias="A")
    assert f"cluster 'A': {key}: " in str(raised.value)
    assert problem in str(raised.value)


def another_key(authority: CertificateAuthority) -> str:
    """A key, and the certificate of another one."""
    key, border, _ = authority.issue_for_user("alice").read_text().partition("-----BEGIN CERTIFICATE-----")
    return key + border + authority.issue_for_user("bob").read_text().partition(border)[2]


def short_key(_authority: CertificateAuthority) -> str:
    """An RSA key of 1024 bits with its certificate."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (private + certificate.public_bytes(Encoding.PEM)).decode()


@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize(
    ("identity_of", "reason"), [(another_key, "KEY_VALUES_MISMATCH"), (short_key, "EE_KEY_TOO_SMALL")]
)
def test_a_client_certificate_that_openssl_refuses_is_named(
    authority: CertificateAuthority,
    tmp_path: Path,
    identity_of: Callable[[CertificateAuthority], str],
    reason: str,
    in_file: bool,
) -> None:
    identity = identity_of(authority)
    store = tmp_path / "identity.pem"
    store.write_text(identity)
    given = (
        {"ssl.keystore.location": str(store)}
        if in_file
        else {"ssl.keystore.key": identity, "ssl.keystore.certificate.chain": identity}
    )
    with pytest.raises(ConfigError) as raised:
        aiokafka_client_options(tls(authority) | {"ssl.keystore.type": "PEM"} | given, alias="A")
    key = "ssl.keystore.location" if in_file else "ssl.keystore.key"
    assert str(raised.value).startswith(f"cluster 'A': {key}: ")
    assert reason in str(raised.value)
    assert not any(line in str(raised.value) for line in identity.splitlines())


def test_cipher_suites_that_openssl_does_not_have_are_named(authority: CertificateAuthority) -> None:
    suites = {"ssl.cipher.suites": "TLS_DHE_ECDSA_WITH_AES_128_GCM_SHA256"}
    with pytest.raises(ConfigError, match=r"cluster 'A': ssl\.cipher\.suites: .*No cipher can be selected"):
        aiokafka_client_options(tls(authority) | suites, alias="A")


def test_reprs_hide_secrets(authority: CertificateAuthority) -> None:
    user = authority.issue_for_user("alice")
    properties = {
        **LOGIN,
        **tls(authority),
        "security.protocol": "SASL_SSL",
        "ssl.keystore.location": str(user),
    }
    shown = repr(client_security(properties))
    assert "hush" not in shown
    assert "PRIVATE" not in shown
