"""Roles of callers, and the role that a method needs: an annotation in its proto."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from google.protobuf import descriptor_pool

from twinlog.api.common.v1 import access_pb2
from twinlog.config.security import AuthSettings

REFLECTION_PREFIX = "/grpc.reflection."
HEALTH_PREFIX = "/grpc.health."
"""Open to everybody, and called by monitoring every few seconds: neither logged nor measured."""


class Role(IntEnum):
    """A higher role includes the lower ones."""

    NONE = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @classmethod
    def parse(cls, word: str) -> "Role":
        """Read `viewer`, `operator`, `admin`. Raises ValueError."""
        for role in (cls.VIEWER, cls.OPERATOR, cls.ADMIN):
            if word == role.word:
                return role
        raise ValueError("not a role")

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls."""

    name: str
    """Shown and recorded: `CN=ops`, `file:ci`, `sub:1234`; empty for an unknown caller."""
    role: Role
    via: str
    """The way it was identified: "certificate", "token", "oidc", "none"."""

    @property
    def is_known(self) -> bool:
        return self.via != "none"


ANONYMOUS = Caller(name="", role=Role.ADMIN, via="none")
"""The caller at a port without authentication."""


@lru_cache(maxsize=1024)
def needed_role(method: str) -> int:
    """The annotation of `/package.Service/Method`, a value of the proto's Role. Reflection needs the viewer's
    role. ROLE_UNSPECIFIED for an unknown method or one without a role."""
    if method.startswith(REFLECTION_PREFIX):
        return access_pb2.ROLE_VIEWER
    name = method.removeprefix("/").replace("/", ".")
    try:
        found = descriptor_pool.Default().FindMethodByName(name)
    except KeyError:
        return access_pb2.ROLE_UNSPECIFIED
    return int(found.GetOptions().Extensions[access_pb2.role])


def is_change(method: str) -> bool:
    """Whether the audit log holds calls of a method: it needs an operator or an admin."""
    return needed_role(method) in (access_pb2.ROLE_OPERATOR, access_pb2.ROLE_ADMIN)


def role_of(principals: Iterable[str], auth: AuthSettings) -> Role:
    """The highest role that any of a caller's principals has.

    >>> role_of(["cn:ops", "dns:ops.example"], AuthSettings(viewers=("*",), admins=("dns:ops.*",)))
    <Role.ADMIN: 3>
    """
    known = tuple(principals)
    for role, patterns in (
        (Role.ADMIN, auth.admins),
        (Role.OPERATOR, auth.operators),
        (Role.VIEWER, auth.viewers),
    ):
        if any(_matches(pattern, principal) for pattern in patterns for principal in known):
            return role
    return Role.NONE


def _matches(pattern: str, principal: str) -> bool:
    if pattern.endswith("*"):
        return principal.startswith(pattern[:-1])
    return principal == pattern
