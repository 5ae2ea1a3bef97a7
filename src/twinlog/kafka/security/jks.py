"""Java's own keystore format, JKS, read without a Java: files as `keytool -storetype JKS` makes them.

The only library for it needs a C compiler. Layout (sun.security.provider.JavaKeyStore), big endian: magic,
version, count, entries, and a SHA-1 of password + "Mighty Aphrodite" + all before it. Keys are hidden by a
key stream of SHA-1 over password and salt (sun.security.provider.KeyProtector): not strong, but what these
files use.
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass, field

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
