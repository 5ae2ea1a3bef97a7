"""Certificates and keys from the stores that Java uses: PEM, PKCS12 and JKS, converted to PEM text.

The bytes decide about the format: as in Java 9 and later, a store declared as JKS may be PKCS12, and the
other way round. Functions take bytes and return text; they raise StoreError, whose message never contains a
secret.

Java's own keystore format, JKS, read without a Java: files as `keytool -storetype JKS` makes them.

The only library for it needs a C compiler. Layout (sun.security.provider.JavaKeyStore), big endian: magic,
version, count, entries, and a SHA-1 of password + "Mighty Aphrodite" + all before it. Keys are hidden by a
key stream of SHA-1 over password and salt (sun.security.provider.KeyProtector): not strong, but what these
files use.
"""

import hashlib
import hmac
import re
import struct
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

MAGIC_JKS, MAGIC_JCEKS = 0xFEEDFEED, 0xCECECECE
_WHITENER = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_KEY_ENTRY, _CERTIFICATE_ENTRY, _SECRET_ENTRY = 1, 2, 3
_KEY_PROTECTOR_OID = bytes.fromhex("2b060104012a02110101")
"""1.3.6.1.4.1.42.2.17.1.1"""
_SEQUENCE, _OCTETS, _OID = 0x30, 0x04, 0x06


class JksFormatError(ValueError):
    """It is not a JKS file, or it is damaged."""


class JksPasswordError(ValueError):
    """The password is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JksKey:
    """A private key as in the file, and its certificates (DER), the key's own first."""

    protected: bytes = field(repr=False)
    """EncryptedPrivateKeyInfo, DER."""
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JksStore:
    keys: tuple[JksKey, ...]
    trusted: tuple[bytes, ...]
    """Certificates, DER."""


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Read a store; without a password its integrity is not checked, as in Java.

    Raises JksPasswordError when the password (or the file) does not match the digest, else JksFormatError.
    """
    if password is not None:
        body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if not hmac.compare_digest(_sha1(_password_bytes(password) + _WHITENER + body), digest):
            _parse(data)  # If it is damaged rather than locked, parsing reports that.
            raise JksPasswordError("the store password is wrong, or the file is damaged")
    return _parse(data)


def unprotect(key: JksKey, password: str) -> bytes:
    """The private key, PKCS8 DER. Raises JksPasswordError or JksFormatError."""
    info, _ = _der(key.protected, 0, _SEQUENCE)
    algorithm, after = _der(info, 0, _SEQUENCE)
    oid, _ = _der(algorithm, 0, _OID)
    if oid != _KEY_PROTECTOR_OID:
        raise JksFormatError("its key is protected in another way: convert the store to PKCS12 with keytool")
    hidden, _ = _der(info, after, _OCTETS)
    if len(hidden) < 2 * _DIGEST_BYTES:
        raise JksFormatError("its protected key is too short")
    secret = _password_bytes(password)
    block, content = hidden[:_DIGEST_BYTES], hidden[_DIGEST_BYTES:-_DIGEST_BYTES]
    stream = bytearray()
    while len(stream) < len(content):
        block = _sha1(secret + block)
        stream += block
    plain = bytes(left ^ right for left, right in zip(content, stream, strict=False))
    if not hmac.compare_digest(_sha1(secret + plain), hidden[-_DIGEST_BYTES:]):
        raise JksPasswordError("the key password is wrong")
    return plain


def _parse(data: bytes) -> JksStore:
    reader = _Reader(data)
    try:
        magic, version, count = reader.take(">III")
        if magic not in (MAGIC_JKS, MAGIC_JCEKS) or version not in (1, 2):
            raise JksFormatError("it is not a JKS store")
        keys, trusted = list[JksKey](), list[bytes]()
        for _ in range(count):
            (tag,) = reader.take(">I")
            reader.text()  # alias
            reader.take(">q")  # when it was made
            if tag == _KEY_ENTRY:
                protected = reader.block()
                (length,) = reader.take(">I")
                keys.append(
                    JksKey(
                        protected=protected, chain=tuple(reader.certificate(version) for _ in range(length))
                    )
                )
            elif tag == _CERTIFICATE_ENTRY:
                trusted.append(reader.certificate(version))
            else:
                what = "a secret key" if tag == _SECRET_ENTRY else f"an entry of kind {tag}"
                raise JksFormatError(f"it holds {what}: convert the store to PKCS12 with keytool")
    except struct.error as error:
        raise JksFormatError("it ends in the middle") from error
    return JksStore(keys=tuple(keys), trusted=tuple(trusted))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return values

    def raw(self, length: int) -> bytes:
        if length > len(self._data) - self._at:
            raise JksFormatError("it ends in the middle")
        self._at += length
        return self._data[self._at - length : self._at]

    def text(self) -> bytes:
        return self.raw(self.take(">H")[0])

    def block(self) -> bytes:
        return self.raw(self.take(">I")[0])

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()  # "X.509"
        return self.block()


def _der(data: bytes, at: int, tag: int) -> tuple[bytes, int]:
    """The content of the element at `at`, and where the next one begins."""
    try:
        found, length, start = data[at], data[at + 1], at + 2
    except IndexError as error:
        raise JksFormatError("its protected key is cut off") from error
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(data[start : start + size], "big"), start + size
    if found != tag or start + length > len(data):
        raise JksFormatError("its protected key is not what JKS files hold")
    return data[start : start + length], start + length


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be")


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


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
