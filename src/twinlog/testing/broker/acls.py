"""Who may do what: ACLs as StandardAuthorizer.java judges them."""

import base64
import hashlib
import hmac
from collections.abc import Collection, Iterable, Mapping
from random import Random
from typing import NamedTuple

from twinlog.kafka.admin.settings import AclOperation, AclPatternType, AclPermission, AclResourceType

Resource = AclResourceType
Pattern = AclPatternType
Operation = AclOperation
Permission = AclPermission
ANY = 1
_MATCH = 2
"""A pattern filter: what applies to a resource of this name."""
CLUSTER_NAME = "kafka-cluster"
OPERATIONS = {
    Resource.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
}  # fmt: skip
"""What there is to be allowed (AclEntry.supportedOperations), for KIP-430."""
_IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


class Acl(NamedTuple):
    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def applies_to(self, resource: int, name: str) -> bool:
        if self.resource != resource:
            return False
        if self.pattern == Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, "*")


class AclFilter(NamedTuple):
    """None and ANY leave a part open."""

    resource: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        parts = zip(
            (self.resource, self.principal, self.host, self.operation, self.permission),
            (acl.resource, acl.principal, acl.host, acl.operation, acl.permission),
            strict=True,
        )
        return all(wanted in (None, ANY, is_) for wanted, is_ in parts) and self._matches_name(acl)

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern == _MATCH:
            return self.name is None or acl.applies_to(acl.resource, self.name)
        return self.name in (None, acl.name) and self.pattern in (ANY, acl.pattern)


class Authorizer:
    """Nobody may do what no ACL allows, except super users."""

    def __init__(self, super_users: Collection[str] = ()) -> None:
        """Principals, as "User:admin"."""
        self.super_users = frozenset(super_users)
        self.acls: dict[Acl, None] = {}

    def add(self, acls: Iterable[Acl]) -> None:
        self.acls.update(dict.fromkeys(acls))

    def found(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self.acls if wanted.matches(acl)]

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        if principal in self.super_users:
            return True
        mine = [
            acl
            for acl in self.acls
            if acl.applies_to(resource, name)
            and acl.principal in (principal, "User:*")
            and acl.host in (host, "*")
        ]
        if any(
            acl.permission == Permission.DENY and acl.operation in (operation, Operation.ALL) for acl in mine
        ):
            return False
        enough = (operation, Operation.ALL, *_IMPLIED_BY.get(operation, ()))
        return any(acl.permission == Permission.ALLOW and acl.operation in enough for acl in mine)


# How a client logs in: PLAIN (RFC 4616) and SCRAM (RFC 5802), as ScramSaslServer.java.

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
