"""Who may do what: ACLs as StandardAuthorizer.java judges them."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from twinlog.kafka.admin.acls import AclOperation, AclPatternType, AclPermission, AclResourceType

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
