"""Certificates and keys from the stores that Java uses: PEM, PKCS12 and JKS, converted to PEM text.

The bytes decide about the format: as in Java 9 and later, a store declared as JKS may be PKCS12, and the
other way round. Functions take bytes and return text; they raise StoreError, whose message never contains a
secret.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12

from twinlog.kafka.security.jks import JksFormatError, JksPasswordError, JksStore, read_jks, unprotect

# The result of reading a certificate store; separate from the reading, which needs a large library.


class StoreError(ValueError):
    """The store cannot be read: damaged, another format, or another password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """A client's certificate with its chain, and the private key, for mutual TLS."""

    certificate_chain_pem: str
    key_pem: str = field(repr=False)
    """PKCS8 without encryption; it stays in memory."""


_JAVA_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def read_trusted(store: bytes, password: str | None) -> str:
    """Every trusted certificate of a truststore as PEM. Raises StoreError, also when there is none."""
    if _is_pem(store):
        certificates = _pem_certificates(store)
    elif store[:4] in _JAVA_MAGIC:
        java = _java_store(store, password)
        ders = [*java.trusted, *(der for key in java.keys for der in key.chain)]
        certificates = [x509.load_der_x509_certificate(der) for der in ders]
    else:
        bundle = _pkcs12(store, password)
        own = [bundle.cert] if bundle.cert else []
        certificates = [entry.certificate for entry in (*own, *bundle.additional_certs)]
    if not certificates:
        raise StoreError("it holds no certificate")
    return _to_pem(certificates)


def read_identity(store: bytes, password: str | None, key_password: str | None) -> ClientIdentity:
    """The first private key of a keystore and its chain. Raises StoreError.

    `key_password` protects the key itself (PEM, JKS); without it the store's password is tried.
    """
    if _is_pem(store):
        return pem_identity(store, store, key_password or password)
    if store[:4] in _JAVA_MAGIC:
        return _java_identity(store, password, key_password)
    bundle = _pkcs12(store, password)
    if bundle.key is None or bundle.cert is None:
        raise StoreError("it holds no private key with its certificate")
    chain = [bundle.cert.certificate, *(entry.certificate for entry in bundle.additional_certs)]
    return ClientIdentity(certificate_chain_pem=_to_pem(chain), key_pem=_plain_pem(bundle.key))


def pem_identity(key: bytes, chain: bytes, key_password: str | None) -> ClientIdentity:
    """A PEM private key, decrypted if necessary, and a PEM certificate chain. Raises StoreError."""
    certificates = _pem_certificates(chain)
    if not certificates:
        raise StoreError("it holds no certificate")
    block = next((block for label, block in _pem_blocks(key) if label.endswith(b"PRIVATE KEY")), None)
    if block is None:
        raise StoreError("it holds no private key")
    password = key_password.encode() if key_password and b"ENCRYPTED" in block else None
    try:
        private = load_pem_private_key(block, password)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StoreError("its private key cannot be read with the given key password") from error
    return ClientIdentity(certificate_chain_pem=_to_pem(certificates), key_pem=_plain_pem(private))


def encrypt_key(key_pem: str, password: str) -> bytes:
    """The key as encrypted PKCS8, for the moment in which it is in a file."""
    private = load_pem_private_key(key_pem.encode(), None)
    return private.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
    )


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _pem_blocks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Label and text of every block; a block on one line, as in properties files, is wrapped again."""
    for match in _PEM_BLOCK.finditer(data):
        label, body = match.groups()
        if b":" in body:
            yield label, match.group(0) + b"\n"
            continue
        joined = b"".join(body.split())
        lines = b"\n".join(joined[start : start + 64] for start in range(0, len(joined), 64))
        yield label, b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (label, lines, label)


def _pem_certificates(data: bytes) -> list[x509.Certificate]:
    blocks = b"".join(block for label, block in _pem_blocks(data) if label == b"CERTIFICATE")
    if not blocks:
        return []
    try:
        return x509.load_pem_x509_certificates(blocks)
    except ValueError as error:
        raise StoreError("it holds no readable PEM certificate") from error


def _java_store(data: bytes, password: str | None) -> JksStore:
    try:
        return read_jks(data, password)
    except JksPasswordError as error:
        raise StoreError(str(error)) from error
    except JksFormatError as error:
        raise StoreError(f"it is not a readable JKS store: {error}") from error


def _java_identity(data: bytes, password: str | None, key_password: str | None) -> ClientIdentity:
    keys = _java_store(data, password).keys
    if not keys:
        raise StoreError("it holds no private key")
    try:
        private = load_der_private_key(unprotect(keys[0], key_password or password or ""), None)
    except (JksPasswordError, JksFormatError) as error:
        raise StoreError(f"its private key cannot be read with the given key password: {error}") from error
    chain = [x509.load_der_x509_certificate(der) for der in keys[0].chain]
    return ClientIdentity(certificate_chain_pem=_to_pem(chain), key_pem=_plain_pem(private))


def _pkcs12(data: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    try:
        return load_pkcs12(data, password.encode() if password is not None else None)
    except ValueError as error:
        raise StoreError("it is neither PEM, JKS nor PKCS12 that opens with the given password") from error


def _plain_pem(key: PrivateKeyTypes) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")


def _to_pem(certificates: Sequence[x509.Certificate]) -> str:
    return "".join(certificate.public_bytes(Encoding.PEM).decode("ascii") for certificate in certificates)
