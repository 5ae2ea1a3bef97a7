"""Stores of certificates in the three formats, made here and read back."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509.oid import NameOID

from twinlog.kafka.security.keystores import (
    StoreError,
    encrypt_key,
    pem_identity,
    read_identity,
    read_trusted,
)
from twinlog.testing.keystores import jks_keystore, jks_truststore

GOLDEN = Path(__file__).parents[3] / "golden"

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Issued:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_bytes(self, encoding: Encoding, password: bytes | None = None) -> bytes:
        encryption = BestAvailableEncryption(password) if password else NoEncryption()
        return self.key.private_bytes(encoding, PrivateFormat.PKCS8, encryption)


def issue(name: str, issuer: Issued | None = None) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(START)
        .not_valid_after(START + dt.timedelta(days=1))
        .sign(issuer.key if issuer else key, hashes.SHA256())
    )
    return Issued(key, certificate)


AUTHORITY = issue("authority")
OTHER = issue("other authority")
CLIENT = issue("client", AUTHORITY)


def jks_trust(*issued: Issued, password: str = "store") -> bytes:
    return jks_truststore([one.der for one in issued], password)


def jks_identity(password: str = "store", key_password: str | None = None) -> bytes:
    chain = [CLIENT.der, AUTHORITY.der]
    return jks_keystore(CLIENT.key_bytes(Encoding.DER), chain, password, key_password or password)


def pkcs12_trust(*issued: Issued, password: bytes = b"store") -> bytes:
    certificates = [PKCS12Certificate(one.certificate, b"ca%d" % n) for n, one in enumerate(issued)]
    return serialize_java_truststore(certificates, BestAvailableEncryption(password))


def pkcs12_identity(password: bytes = b"store") -> bytes:
    return serialize_key_and_certificates(
        b"me", CLIENT.key, CLIENT.certificate, [AUTHORITY.certificate], BestAvailableEncryption(password)
    )


def subjects(pem: str) -> list[str]:
    return [one.subject.rfc4514_string() for one in x509.load_pem_x509_certificates(pem.encode())]


@pytest.mark.parametrize(
    "store",
    [AUTHORITY.pem + OTHER.pem, jks_trust(AUTHORITY, OTHER), pkcs12_trust(AUTHORITY, OTHER)],
    ids=["pem", "jks", "pkcs12"],
)
def test_every_trusted_certificate_is_read(store: bytes) -> None:
    assert sorted(subjects(read_trusted(store, "store"))) == ["CN=authority", "CN=other authority"]


def test_a_jks_truststore_opens_without_password_as_in_java() -> None:
    assert subjects(read_trusted(jks_trust(AUTHORITY), None)) == ["CN=authority"]


def test_pem_on_one_line_is_read() -> None:
    joined = AUTHORITY.pem.replace(b"\n", b" ")
    assert subjects(read_trusted(joined, None)) == ["CN=authority"]


def test_text_around_pem_blocks_and_keys_among_them_do_not_matter() -> None:
    store = b"# our authority\n" + AUTHORITY.key_bytes(Encoding.PEM) + AUTHORITY.pem
    assert subjects(read_trusted(store, None)) == ["CN=authority"]


@pytest.mark.parametrize(
    ("store", "password", "key_password"),
    [
        (CLIENT.key_bytes(Encoding.PEM) + CLIENT.pem + AUTHORITY.pem, None, None),
        (CLIENT.pem + AUTHORITY.pem + CLIENT.key_bytes(Encoding.PEM, b"key"), None, "key"),
        (CLIENT.key_bytes(Encoding.PEM, b"store") + CLIENT.pem + AUTHORITY.pem, "store", None),
        (CLIENT.key_bytes(Encoding.PEM) + CLIENT.pem + AUTHORITY.pem, None, "not needed"),
        (jks_identity(), "store", None),
        (jks_identity(key_password="key"), "store", "key"),
        (pkcs12_identity(), "store", None),
    ],
    ids=[
        "pem",
        "pem-encrypted",
        "pem-store-password",
        "pem-spare-password",
        "jks",
        "jks-key-password",
        "pkcs12",
    ],
)
def test_an_identity_is_read_with_its_chain(
    store: bytes, password: str | None, key_password: str | None
) -> None:
    identity = read_identity(store, password, key_password)
    assert subjects(identity.certificate_chain_pem) == ["CN=client", "CN=authority"]
    assert public(identity.key_pem) == public(CLIENT.key_bytes(Encoding.PEM).decode())


def public(key_pem: str) -> Any:
    key = load_pem_private_key(key_pem.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key.public_key().public_numbers()


def test_key_and_chain_may_come_apart() -> None:
    identity = pem_identity(CLIENT.key_bytes(Encoding.PEM), CLIENT.pem, None)
    assert subjects(identity.certificate_chain_pem) == ["CN=client"]


def test_a_key_is_encrypted_for_its_way_through_a_file() -> None:
    encrypted = encrypt_key(CLIENT.key_bytes(Encoding.PEM).decode(), "once")
    assert b"ENCRYPTED" in encrypted
    assert public(pem_identity(encrypted, CLIENT.pem, "once").key_pem) == public(
        CLIENT.key_bytes(Encoding.PEM).decode()
    )


def test_the_key_is_not_in_the_repr() -> None:
    assert "PRIVATE" not in repr(pem_identity(CLIENT.key_bytes(Encoding.PEM), CLIENT.pem, None))


@pytest.mark.parametrize(
    ("store", "password", "problem"),
    [
        (b"", None, "neither"),
        (b"\x00garbage", "store", "neither"),
        (jks_trust(AUTHORITY), "hush", "password is wrong"),
        (jks_trust(AUTHORITY)[:40], "store", "not a readable JKS"),
        (pkcs12_trust(AUTHORITY), "hush", "neither"),
        (jks_trust(), "store", "no certificate"),
        (CLIENT.key_bytes(Encoding.PEM), None, "no certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", None, "readable PEM"),
    ],
    # The stores hold the time of their making: of themselves they would have other names in each process.
    ids=[
        "nothing",
        "garbage",
        "wrong password",
        "cut",
        "wrong password of PKCS12",
        "empty JKS",
        "a key",
        "bad PEM",
    ],
)
def test_an_unreadable_truststore_says_why_and_no_secret(
    store: bytes, password: str | None, problem: str
) -> None:
    with pytest.raises(StoreError) as raised:
        read_trusted(store, password)
    assert problem in str(raised.value)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("store", "password", "key_password", "problem"),
    [
        (AUTHORITY.pem, None, None, "no private key"),
        (CLIENT.key_bytes(Encoding.PEM), None, None, "no certificate"),
        (CLIENT.key_bytes(Encoding.PEM, b"key") + CLIENT.pem, None, "hush", "key password"),
        (CLIENT.key_bytes(Encoding.PEM, b"key") + CLIENT.pem, None, None, "key password"),
        (jks_identity(key_password="key"), "store", "hush", "key password"),
        (jks_trust(AUTHORITY), "store", None, "no private key"),
        (pkcs12_trust(AUTHORITY), "store", None, "no private key"),
    ],
)
def test_an_unreadable_keystore_says_why_and_no_secret(
    store: bytes, password: str | None, key_password: str | None, problem: str
) -> None:
    with pytest.raises(StoreError) as raised:
        read_identity(store, password, key_password)
    assert problem in str(raised.value)
    assert "hush" not in str(raised.value)


def test_stores_made_by_keytool_are_read() -> None:
    store = (GOLDEN / "keytool-keystore.jks").read_bytes()
    identity = read_identity(store, "storepass", "keypass-of-it")
    assert subjects(identity.certificate_chain_pem) == ["CN=made by keytool"]
    trust = (GOLDEN / "keytool-truststore.jks").read_bytes()
    assert subjects(read_trusted(trust, "storepass")) == ["CN=made by keytool"]
    with pytest.raises(StoreError, match="key password"):
        read_identity(store, "storepass", "another one")


def test_a_store_cut_anywhere_is_refused() -> None:
    store = jks_identity()
    for length in range(4, len(store)):
        with pytest.raises(StoreError):
            read_identity(store[:length], "store", None)
