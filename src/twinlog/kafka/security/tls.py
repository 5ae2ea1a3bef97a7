"""Java's `ssl.*` keys: trusted certificates, the client's own certificate, and the context for asyncio
clients."""

import secrets
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from twinlog.kafka.security.identity import ClientIdentity, StoreError
from twinlog.kafka.security.refusal import refused
from twinlog.kafka.security.tls_limits import TLS_1_2, TlsLimitError, TlsLimits, tls_limits

_STORE_TYPES = ("PEM", "PKCS12", "JKS")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsTrust:
    """`trusted_pem` None means the system's own authorities."""

    trusted_pem: str | None = field(repr=False)
    identity: ClientIdentity | None
    check_hostname: bool
    limits: TlsLimits = field(default_factory=TlsLimits)
    trusted_key: str = "ssl.truststore.location"
    """The setting that the trusted certificates come from."""
    identity_key: str = "ssl.keystore.location"
    """The setting that the identity comes from."""


def ssl_context(trust: TlsTrust, alias: str = "") -> ssl.SSLContext:
    """A context for asyncio clients. Like Java, it also trusts a broker's own certificate in the
    truststore. Raises ConfigError for what OpenSSL refuses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = trust.check_hostname
    context.minimum_version = ssl.TLSVersion[trust.limits.least.replace(".", "_")]
    if trust.limits.most == TLS_1_2:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if trust.limits.ciphers:
        with _taken_by_openssl(alias, "ssl.cipher.suites", "name suites that this OpenSSL has"):
            context.set_ciphers(trust.limits.ciphers)
    if trust.trusted_pem is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        with _taken_by_openssl(alias, trust.trusted_key, "check its certificates"):
            context.load_verify_locations(cadata=trust.trusted_pem)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if trust.identity is not None:
        remedy = "use a key that belongs to the certificate (RSA: from 2048 bits), and no SHA-1 signatures"
        with _taken_by_openssl(alias, trust.identity_key, remedy):
            _load_identity(context, trust.identity)
    return context


def tls_trust(properties: Mapping[str, str], alias: str = "") -> TlsTrust:
    """Read the `ssl.*` keys and the files they name. Raises ConfigError."""
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", ""):
        raise refused(
            alias,
            "ssl.endpoint.identification.algorithm",
            f"{algorithm!r} is not supported; use https, or nothing to leave the host name unchecked",
        )
    return TlsTrust(
        trusted_pem=_trusted(properties, alias),
        identity=_identity(properties, alias),
        check_hostname=algorithm == "https",
        limits=_tls_limits(properties, alias),
        trusted_key=_trusted_key(properties),
        identity_key=_identity_key(properties),
    )


def client_certificate_end(properties: Mapping[str, str], alias: str = "") -> datetime | None:
    """When the client's certificate expires; None if it has none. Reads its files. Raises ConfigError."""
    if "SSL" not in properties.get("security.protocol", "").upper():
        return None
    identity = _identity(properties, alias)
    if identity is None:
        return None
    from cryptography import x509

    return x509.load_pem_x509_certificates(identity.certificate_chain_pem.encode())[0].not_valid_after_utc


def _tls_limits(properties: Mapping[str, str], alias: str) -> TlsLimits:
    try:
        return tls_limits(
            properties.get("ssl.enabled.protocols", ""),
            properties.get("ssl.cipher.suites", ""),
            properties.get("ssl.protocol", ""),
        )
    except TlsLimitError as error:
        raise refused(alias, error.key, str(error)) from None


def _trusted(properties: Mapping[str, str], alias: str) -> str | None:
    inline = properties.get("ssl.truststore.certificates", "").strip()
    location = properties.get("ssl.truststore.location", "").strip()
    if inline and location:
        raise refused(alias, "ssl.truststore.location", "set it or ssl.truststore.certificates, not both")
    if not (inline or location):
        return None
    _store_type(properties, "ssl.truststore.type", alias)
    key = _trusted_key(properties)
    store = inline.encode() if inline else _read_file(location, key, alias)
    # Imported where a store is read: the library would cost every process without stores 10 MB.
    from twinlog.kafka.security.keystores import read_trusted

    try:
        return read_trusted(store, properties.get("ssl.truststore.password"))
    except StoreError as error:
        raise refused(alias, key, _store_problem(location, error, "ssl.truststore.password")) from error


def _identity(properties: Mapping[str, str], alias: str) -> ClientIdentity | None:
    location = properties.get("ssl.keystore.location", "").strip()
    inline_key = properties.get("ssl.keystore.key", "").strip()
    inline_chain = properties.get("ssl.keystore.certificate.chain", "").strip()
    if location and (inline_key or inline_chain):
        raise refused(
            alias, "ssl.keystore.location", "set it or ssl.keystore.key and .certificate.chain, not both"
        )
    if bool(inline_key) != bool(inline_chain):
        missing = "ssl.keystore.certificate.chain" if inline_key else "ssl.keystore.key"
        raise refused(
            alias, missing, "a PEM identity needs both ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    if not (location or inline_key):
        return None
    _store_type(properties, "ssl.keystore.type", alias)
    key = _identity_key(properties)
    key_password = properties.get("ssl.key.password")
    from twinlog.kafka.security.keystores import pem_identity, read_identity

    try:
        if inline_key:
            return pem_identity(inline_key.encode(), inline_chain.encode(), key_password)
        store = _read_file(location, key, alias)
        return read_identity(store, properties.get("ssl.keystore.password"), key_password)
    except StoreError as error:
        hint = "ssl.keystore.password and ssl.key.password"
        raise refused(alias, key, _store_problem(location, error, hint)) from error


def _trusted_key(properties: Mapping[str, str]) -> str:
    inline = properties.get("ssl.truststore.certificates", "").strip()
    return "ssl.truststore.certificates" if inline else "ssl.truststore.location"


def _identity_key(properties: Mapping[str, str]) -> str:
    location = properties.get("ssl.keystore.location", "").strip()
    return "ssl.keystore.location" if location else "ssl.keystore.key"


@contextmanager
def _taken_by_openssl(alias: str, key: str, remedy: str) -> Iterator[None]:
    """Raises ConfigError about the key, with OpenSSL's reason, for what OpenSSL refuses."""
    try:
        yield
    except (OSError, ValueError) as error:  # SSLError is an OSError.
        words = " ".join(map(str, error.args)).rstrip(".")
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or words
        raise refused(alias, key, f"OpenSSL does not take it ({why}); {remedy}") from error


def _store_type(properties: Mapping[str, str], key: str, alias: str) -> None:
    """The bytes decide how a store is read; the declared type must only be a known one."""
    declared = properties.get(key, "JKS").strip().upper()
    if declared not in _STORE_TYPES:
        raise refused(alias, key, f"{declared!r} is none of {', '.join(_STORE_TYPES)}")


def _read_file(location: str, key: str, alias: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise refused(alias, key, f"cannot read {location}: {error.strerror or error}") from error


def _store_problem(location: str, error: StoreError, password_keys: str) -> str:
    where = f"{location}: " if location else ""
    return f"{where}{error}; check the file, its type and {password_keys}"


def _load_identity(context: ssl.SSLContext, identity: ClientIdentity) -> None:
    """OpenSSL's Python binding loads keys from files only, so the key is in an encrypted file for a
    moment."""
    from twinlog.kafka.security.keystores import encrypt_key

    password = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory(prefix="twinlog-") as directory:
        pem = Path(directory, "identity.pem")
        pem.touch(mode=0o600)
        pem.write_bytes(encrypt_key(identity.key_pem, password) + identity.certificate_chain_pem.encode())
        context.load_cert_chain(pem, password=password)
