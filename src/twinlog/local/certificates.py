"""A certificate authority of our own, for local clusters and tests, and PEM files of what it signs."""

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtensionOID, NameOID

from twinlog.clock import Clock, SystemClock
from twinlog.config.security import TlsFiles

SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate and its key, as PEM."""

    chain: bytes
    key: bytes


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_pem(key: SigningKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@dataclass(slots=True)
class Authority:
    """Signs for hosts and for people."""

    name: str = "Test CA"
    clock: Clock = field(default_factory=SystemClock)
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def pem(self) -> bytes:
        now = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(self.name))
            .issuer_name(_name(self.name))
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=10))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    def sign(
        self,
        common_name: str,
        *hosts: str,
        days: float = 1.0,
        from_days: float = -9.0,
        key: SigningKey | None = None,
        raw_names: bytes = b"",
    ) -> Signed:
        """`hosts`: names and addresses. `days` from now on, negative = expired; `from_days`: start of
        validity. `key`: the certificate's key, by default a new one. `raw_names`: bytes that replace the
        hosts' encoding."""
        now = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)
        key = key or ec.generate_private_key(ec.SECP256R1())
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(common_name))
            .issuer_name(_name(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=from_days))
            .not_valid_after(now + timedelta(days=days))
        )
        if hosts and not raw_names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
            )
        if raw_names:
            names = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, raw_names)
            builder = builder.add_extension(names, critical=False)
        chain = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return Signed(chain, _key_pem(key))

    def files(self, directory: Path, common_name: str, *hosts: str, days: float = 1.0) -> TlsFiles:
        """Write the certificate and key as files of that name in a directory, with the authority's
        certificate."""
        signed = self.sign(common_name, *hosts, days=days)
        files = TlsFiles(
            certificate=str(directory / f"{common_name}.pem"),
            key=str(directory / f"{common_name}.key"),
            ca=str(directory / f"{common_name}.ca"),
        )
        Path(files.certificate).write_bytes(signed.chain)
        Path(files.key).write_bytes(signed.key)
        Path(files.ca).write_bytes(self.pem)
        return files


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
