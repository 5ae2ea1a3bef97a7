"""Reads a certificate, its key and the CAs from PEM files, again whenever one of them changes.

Invariant: files that are half written, expired, not valid yet, refused by gRPC or do not match each other
never replace valid ones.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from twinlog.clock import Clock, SystemClock
from twinlog.config.security import TlsFiles
from twinlog.errors import ConfigError

_log = structlog.stdlib.get_logger(__name__)

MAX_FILE_BYTES = 1 << 20

_UNREADABLE = (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension)
"""Exceptions of `cryptography` for malformed certificates."""

Signature = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pem:
    """The files' contents; the key is a secret."""

    chain: bytes
    key: bytes
    ca: bytes | None
    names: frozenset[str]
    """Principals of the certificate; see `principals_of`."""
    expires: datetime
    lifetime_seconds: float
    """The whole time for which the certificate is valid."""

    def __repr__(self) -> str:
        return f"Pem(names={sorted(self.names)!r}, expires={self.expires.isoformat()})"


def principals_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """`cn:`, `uri:`, `dns:`, `email:` of a certificate, in this order. Only its common names when its
    extensions cannot be read."""
    found = [f"cn:{_text(entry.value)}" for entry in _attributes(certificate)]
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return tuple(found)
    for kind, of_type in (
        ("uri", x509.UniformResourceIdentifier),
        ("dns", x509.DNSName),
        ("email", x509.RFC822Name),
    ):
        found += [f"{kind}:{value}" for value in names.get_values_for_type(of_type)]
    return tuple(found)


def _attributes(certificate: x509.Certificate) -> list[x509.NameAttribute[str | bytes]]:
    return certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


class PemFiles:
    """One end's files. Thread-safe."""

    def __init__(self, files: TlsFiles, *, clock: Clock | None = None) -> None:
        """Reads the files. Raises ConfigError (CERTIFICATE_UNUSABLE) that names the file and the remedy."""
        self._files = files
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self.problem = ""
        """Why newer files are not used; empty when the newest are in use."""
        self.generation = 1
        """Rises by one with each change of the files in use."""
        self._signature = _signature(files)
        self._pem = _read(files, self._now())

    def current(self) -> Pem:
        """The newest valid files."""
        with self._lock:
            self._look()
            return self._pem

    def _look(self) -> None:
        try:
            signature = _signature(self._files)
            if signature == self._signature and not self.problem:
                return
            pem = _read(self._files, self._now())
        except ConfigError as error:
            if str(error) != self.problem:
                self.problem = str(error)
                _log.warning(
                    "certificate_unusable",
                    reason=error.reason,
                    message=f"{error}; the earlier one stays in use",
                )
            return
        self.problem = ""
        self._signature = signature
        if pem != self._pem:
            self._pem = pem
            self.generation += 1
            _log.info("certificate_read", names=sorted(pem.names), expires=pem.expires.isoformat())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)


def _signature(files: TlsFiles) -> Signature:
    found = []
    for name in (files.certificate, files.key, files.ca):
        if not name:
            continue
        try:
            status = Path(name).stat()
        except OSError as error:
            raise _unusable(name, f"cannot be read: {error.strerror}") from error
        found.append((status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _read(files: TlsFiles, now: datetime) -> Pem:
    chain_bytes, key_bytes = read_file(files.certificate), read_file(files.key)
    chain = _certificates(files.certificate, chain_bytes)
    try:
        key = serialization.load_pem_private_key(key_bytes, password=None)
    except TypeError as error:
        raise _unusable(files.key, "the private key is encrypted: store it without a password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _unusable(
            files.key, "is not a complete PEM file with a private key that TLS can use"
        ) from error
    if not _is_spoken_by_grpc(key):
        raise _unusable(
            files.key,
            "gRPC's clients accept keys of RSA and of the curves P-256 and P-384 only: make one of these",
        )
    try:
        list(chain[0].extensions)
        certified = _public_bytes(chain[0].public_key())
    except _UNREADABLE as error:
        raise _unusable(files.certificate, f"holds a certificate that cannot be read: {error}") from error
    if _public_bytes(key.public_key()) != certified:
        raise _unusable(files.key, f"is not the key of the first certificate in {files.certificate}")
    if chain[0].not_valid_before_utc > now:
        raise _unusable(
            files.certificate,
            f"the certificate is not valid before {chain[0].not_valid_before_utc.isoformat()}: check this"
            " machine's clock, or wait",
        )
    if chain[0].not_valid_after_utc <= now:
        raise _unusable(
            files.certificate,
            f"the certificate expired at {chain[0].not_valid_after_utc.isoformat()}: renew it",
        )
    return Pem(
        chain=chain_bytes,
        key=key_bytes,
        ca=read_ca(files.ca) if files.ca else None,
        names=frozenset(principals_of(chain[0])),
        expires=chain[0].not_valid_after_utc,
        lifetime_seconds=_lifetime_seconds(chain[0]),
    )


def _lifetime_seconds(certificate: x509.Certificate) -> float:
    return (certificate.not_valid_after_utc - certificate.not_valid_before_utc).total_seconds()


def read_ca(name: str) -> bytes:
    """The bytes of a file of CAs. Raises ConfigError (CERTIFICATE_UNUSABLE)."""
    found = read_file(name)
    _certificates(name, found)
    return found


def read_file(name: str, *, unusable: "Callable[[str, str], ConfigError] | None" = None) -> bytes:
    """Raises ConfigError naming the file."""
    try:
        with Path(name).open("rb") as file:
            return file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise (unusable or _unusable)(name, f"cannot be read: {error.strerror}") from error


def _certificates(name: str, content: bytes) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _unusable(name, "is not a complete PEM file with certificates") from error
    # The library silently stops at the first damaged end of a file.
    if content.count(b"-----BEGIN CERTIFICATE-----") != len(found):
        raise _unusable(name, "is not a complete PEM file with certificates")
    return found


def _is_spoken_by_grpc(key: object) -> bool:
    """Whether gRPC accepts this key. It would refuse others in each handshake, without naming file or
    reason."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1)
    return isinstance(key, rsa.RSAPrivateKey)


def _public_bytes(key: object) -> bytes:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]  # every kind of key has it
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded


def _unusable(name: str, why: str) -> ConfigError:
    return ConfigError(f"{name}: {why}", reason="CERTIFICATE_UNUSABLE", metadata={"file": name})


# Creates a process's own certificate for a port whose clients receive it by another way.


_LASTS = timedelta(days=3650)
"""Longer than any process lives: nothing renews it."""
_SKEW = timedelta(days=2)
"""Clocks of other machines may be behind."""


def own_certificate(name: str, clock: Clock) -> Pem:
    """A certificate for the host `name`; its key never leaves the process."""
    now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LASTS)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pem(
        chain=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        ca=None,
        names=frozenset(principals_of(certificate)),
        expires=certificate.not_valid_after_utc,
        lifetime_seconds=_lifetime_seconds(certificate),
    )
