"""Certificates for one cluster's lifetime in PEM: its own authority, the brokers' and the users'
certificates."""

import datetime as dt
import ipaddress
from pathlib import Path
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from twinlog.clock import Clock, SystemClock
from twinlog.local.broker_properties import BrokerTlsFiles
from twinlog.local.spec import ADDRESS

_VALID = dt.timedelta(days=30)
_SKEW = dt.timedelta(hours=1)


class CertificateAuthority:
    """Issues certificates into `directory`, which also holds its own, `ca.pem`. Only the user can read files
    with keys."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self._directory = directory
        self._now = dt.datetime.fromtimestamp((clock or SystemClock()).now_ms() / 1000, tz=dt.UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name("Twinlog local CA")
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_bytes(_pem(certificate))

    def issue_for_brokers(self) -> BrokerTlsFiles:
        """One certificate for all brokers of the cluster, because they share an address."""
        names = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address(ADDRESS)), x509.DNSName("localhost")]
        )
        return BrokerTlsFiles(ca=self.ca_file, broker=self._issue("broker", names, "broker.pem"))

    def issue_for_user(self, user: str) -> Path:
        """Key and certificate whose common name is `user`."""
        return self._issue(user, None, f"user-{quote(user, safe='')}.pem")

    def _issue(self, name: str, alternative_names: x509.SubjectAlternativeName | None, file: str) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = self._builder(_common_name(name), key.public_key()).add_extension(purposes, critical=False)
        if alternative_names is not None:
            builder = builder.add_extension(alternative_names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._directory / file
        path.touch(mode=0o600)
        path.write_bytes(private + _pem(certificate))
        return path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _SKEW)
            .not_valid_after(self._now + _VALID)
        )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
