"""JKS stores made for tests, the counterpart of `twinlog.kafka.security.keystores`."""

import hashlib
import struct
from collections.abc import Sequence

_WHITENER = b"Mighty Aphrodite"
_OID = bytes.fromhex("060a2b060104012a02110101")


def jks_truststore(certificates: Sequence[bytes], password: str) -> bytes:
    """A store of trusted certificates (DER)."""
    entries = [_head(2, f"ca{number}") + _certificate(der) for number, der in enumerate(certificates)]
    return _signed(entries, password)


def jks_keystore(key_pkcs8: bytes, chain: Sequence[bytes], password: str, key_password: str) -> bytes:
    """A store of one private key (PKCS8 DER) and its certificates (DER)."""
    protected = _protect(key_pkcs8, key_password)
    entry = _head(1, "client") + _block(protected) + struct.pack(">I", len(chain))
    return _signed([entry + b"".join(_certificate(der) for der in chain)], password)


def _protect(plain: bytes, password: str) -> bytes:
    secret, salt = password.encode("utf-16-be"), bytes(range(20))
    block, stream = salt, b""
    while len(stream) < len(plain):
        block = _sha1(secret + block)
        stream += block
    hidden = bytes(left ^ right for left, right in zip(plain, stream, strict=False))
    octets = _der(0x04, salt + hidden + _sha1(secret + plain))
    return _der(0x30, _der(0x30, _OID + b"\x05\x00") + octets)


def _der(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + content


def _head(tag: int, alias: str) -> bytes:
    return struct.pack(">I", tag) + _text(alias) + struct.pack(">q", 1_700_000_000_000)


def _certificate(der: bytes) -> bytes:
    return _text("X.509") + _block(der)


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _block(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _signed(entries: Sequence[bytes], password: str) -> bytes:
    body = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    return body + _sha1(password.encode("utf-16-be") + _WHITENER + body)


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()
