"""How a client logs in: PLAIN (RFC 4616) and SCRAM (RFC 5802), as ScramSaslServer.java."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from random import Random

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ITERATIONS = 4096
_SALT_BYTES = 16


class LoginError(Exception):
    """SASL_AUTHENTICATION_FAILED."""


class Login:
    """Of one connection."""

    def __init__(self) -> None:
        self.principal = "User:ANONYMOUS"
        self.is_complete = self.has_failed = False
        self.mechanism: str | None = None
        self._scram: tuple[str, str, bytes] | None = None
        """The first messages of both sides, and the salted password."""
        self._user = ""

    def answer(self, data: bytes, passwords: Mapping[str, str], random: Random) -> bytes:
        """Take the client's next message. Raises LoginError."""
        try:
            if self.mechanism == "PLAIN":
                return self._plain(data.decode(), passwords)
            if self._scram is None:
                return self._scram_first(data.decode(), passwords, random)
            return self._scram_final(data.decode(), self._scram)
        except (ValueError, KeyError) as error:
            self.has_failed = True
            raise LoginError("Authentication failed: Invalid username or password") from error

    def _plain(self, text: str, passwords: Mapping[str, str]) -> bytes:
        _, self._user, password = text.split("\0")
        if passwords[self._user] != password:
            raise ValueError("password")
        self._succeed()
        return b""

    def _scram_first(self, text: str, passwords: Mapping[str, str], random: Random) -> bytes:
        bare = text.split(",", 2)[2]
        fields = _fields(bare)
        self._user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        salt, nonce = random.randbytes(_SALT_BYTES), fields["r"] + f"{random.getrandbits(64):x}"
        salted = hashlib.pbkdf2_hmac(self._digest, passwords[self._user].encode(), salt, _ITERATIONS)
        first = f"r={nonce},s={base64.b64encode(salt).decode()},i={_ITERATIONS}"
        self._scram = bare, first, salted
        return first.encode()

    def _scram_final(self, text: str, scram: tuple[str, str, bytes]) -> bytes:
        bare, first, salted = scram
        without_proof, _, proof = text.rpartition(",p=")
        message = f"{bare},{first},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        signature = self._hmac(stored_key, message)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if _fields(without_proof)["r"] != _fields(first)["r"] or base64.b64decode(proof) != expected:
            raise ValueError("proof")
        self._succeed()
        return b"v=" + base64.b64encode(self._hmac(self._hmac(salted, b"Server Key"), message))

    @property
    def _digest(self) -> str:
        return _DIGESTS[self.mechanism or ""]

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)

    def _succeed(self) -> None:
        self.principal, self.is_complete = f"User:{self._user}", True


def _fields(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",")}
