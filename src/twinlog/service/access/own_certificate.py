"""Creates a process's own certificate for a port whose clients receive it by another way."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from twinlog.clock import Clock
from twinlog.service.access.pem_files import Pem, principals_of

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
    )
