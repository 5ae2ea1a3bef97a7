"""Java's `ssl.*` keys: trusted certificates, the client's own certificate, and the context for asyncio
clients."""

import re
import secrets
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from twinlog.errors import ConfigError
from twinlog.kafka.security.keystores import ClientIdentity, StoreError

# The error for a setting that cannot be followed.


def refused(alias: str, key: str, problem: str) -> ConfigError:
    """A ConfigError about one key of one cluster; `problem` has the cause and the remedy."""
    where = f"cluster {alias!r}: {key}" if alias else key
    return ConfigError(f"{where}: {problem}", metadata={"cluster": alias, "key": key})


# Converts `ssl.enabled.protocols`, `ssl.protocol` and `ssl.cipher.suites` (Java's names) for OpenSSL. Pure.
#
# A value that OpenSSL's Python binding cannot follow is refused: a hardening setting is never weakened
# silently.

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
_TLS_1_3_SUITES = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
_SUITE = re.compile(
    r"TLS_(?P<exchange>(?:EC)?DHE_(?:RSA|ECDSA)|RSA)_WITH_"
    r"(?P<cipher>AES_(?:128|256)_(?:GCM|CBC)|CHACHA20_POLY1305)_(?P<hash>SHA(?:256|384)?)"
)


class TlsLimitError(ValueError):
    """`key` names the setting; the text has the problem and the remedy."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsLimits:
    """What a TLS connection may use. By default TLS 1.2 and 1.3, all suites."""

    least: str = TLS_1_2
    """The oldest protocol."""
    most: str = TLS_1_3
    """The newest protocol."""
    ciphers: str = ""
    """OpenSSL's cipher list for TLS 1.2; empty = the library's own."""


def tls_limits(protocols: str, suites: str, protocol: str = "") -> TlsLimits:
    """Read the settings; empty means not set. Raises TlsLimitError."""
    wanted = _enabled(protocols)
    least = TLS_1_3 if wanted and TLS_1_2 not in wanted else TLS_1_2
    most = TLS_1_3 if not wanted or TLS_1_3 in wanted else TLS_1_2
    if _is_1_2(protocol):
        most = TLS_1_2
    if least > most:
        raise TlsLimitError("ssl.protocol", f"{protocol} is none of ssl.enabled.protocols")
    named = _names(suites)
    if not named:
        return TlsLimits(least=least, most=most)
    of_1_3 = _TLS_1_3_SUITES.intersection(named)
    if of_1_3 and of_1_3 != _TLS_1_3_SUITES and most == TLS_1_3:
        raise TlsLimitError(
            "ssl.cipher.suites",
            f"TLS 1.3 cannot be limited to {', '.join(sorted(of_1_3))}; name all of"
            f" {', '.join(sorted(_TLS_1_3_SUITES))}, or none of them to use TLS 1.2 only",
        )
    of_1_2 = [_openssl_name(name) for name in named if name not in _TLS_1_3_SUITES]
    least = least if of_1_2 else TLS_1_3
    most = most if of_1_3 else TLS_1_2
    if least > most:
        raise TlsLimitError("ssl.cipher.suites", "none of them is a suite of the protocols that are left")
    return TlsLimits(least=least, most=most, ciphers=":".join(of_1_2))


def _is_1_2(protocol: str) -> bool:
    """Whether `ssl.protocol` leaves TLS 1.3 out: Java's clients use nothing newer than what it names."""
    name = protocol.strip().upper()
    if name not in ("", "TLS", "TLSV1.2", "TLSV1.3"):
        raise TlsLimitError("ssl.protocol", f"{protocol} is not supported; use TLS, {TLS_1_2} or {TLS_1_3}")
    return name == "TLSV1.2"


def _enabled(protocols: str) -> list[str]:
    wanted = _names(protocols)
    unknown = [name for name in wanted if name not in (TLS_1_2, TLS_1_3)]
    if unknown:
        raise TlsLimitError(
            "ssl.enabled.protocols",
            f"{', '.join(unknown)} is not supported; use {TLS_1_2}, {TLS_1_3} or both",
        )
    return wanted


def _openssl_name(suite: str) -> str:
    match = _SUITE.fullmatch(suite)
    if match is None:
        raise TlsLimitError(
            "ssl.cipher.suites",
            f"{suite} is not supported; use suites of AES or CHACHA20 with (EC)DHE or RSA",
        )
    exchange, cipher = match["exchange"].replace("_", "-"), match["cipher"]
    parts = [] if exchange == "RSA" else [exchange]
    if cipher.startswith("CHACHA20"):
        parts.append("CHACHA20-POLY1305")
        return "-".join(parts)
    name, bits, mode = cipher.split("_")
    parts.append(f"{name}{bits}")
    if mode == "GCM":
        parts.append("GCM")
    parts.append(match["hash"])
    return "-".join(parts)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


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


def client_certificate_validity(
    properties: Mapping[str, str], alias: str = ""
) -> tuple[datetime, datetime] | None:
    """From when to when the client's certificate is valid; None if it has none. Reads its files. Raises
    ConfigError."""
    if "SSL" not in properties.get("security.protocol", "").upper():
        return None
    identity = _identity(properties, alias)
    if identity is None:
        return None
    from cryptography import x509

    own = x509.load_pem_x509_certificates(identity.certificate_chain_pem.encode())[0]
    return own.not_valid_before_utc, own.not_valid_after_utc


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
