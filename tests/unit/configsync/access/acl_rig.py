"""Names, rules and bindings that the tests of ACLs share."""

from collections.abc import Iterable

from twinlog.config import AclSyncMode
from twinlog.kafka.ports import AclBinding
from twinlog.policy.replication import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
)
from twinlog_configsync.access.acl_rules import AclRules
from twinlog_configsync.model.actions import AclAction, SkipAcl

DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy(source_cluster_alias="A")
TOPICS = ("orders", "orders-eu", "payroll", "users")
"""All exist on the source; `payroll` is not replicated."""
REPLICATED = frozenset(TOPICS) - {"payroll"}
GROUPS = ("billing", "audit", "reports")
"""All exist on the source; `audit` is not selected."""
OWN_TOPICS = (
    *("A.checkpoints.internal", "mm2-offset-syncs.A.internal", "mm2-offsets.A.internal", "A.payroll"),
    *("mm2-configsync.A.internal", "mm2-failover.A.internal", "ledger", "A.ledger", "orders-own"),
)
"""On the target, and copies of nothing: the mirror's, and the target's own."""
OWN_GROUPS = ("ledger", "b-own", "twinlog-configsync-A-B", "audit")
OWN_IDS = ("twinlog-A-B-0-0", "tx-own")


def selects(name: str) -> bool:
    return name not in ("payroll", "checkpoints.internal")


def rules(mode: AclSyncMode = AclSyncMode.MM2, policy: ReplicationPolicy = DEFAULT) -> AclRules:
    return AclRules(
        mode=mode,
        source="A",
        policy=policy,
        selects_topic=selects,
        selects_group=lambda name: name != "audit",
    )


def acl(
    text: str, *, principal: str = "User:alice", host: str = "*", permission: str = "ALLOW"
) -> AclBinding:
    """`READ orders`, `READ orders*` (prefixed), `READ GROUP billing`."""
    operation, *middle, name = text.split()
    prefixed = name.endswith("*") and name != "*"
    return AclBinding(
        resource_type=middle[0] if middle else "TOPIC",
        resource_name=name.rstrip("*") if prefixed else name,
        pattern_type="PREFIXED" if prefixed else "LITERAL",
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )


def deny(text: str) -> AclBinding:
    return acl(text, permission="DENY")


def changes(actions: Iterable[AclAction | SkipAcl]) -> list[AclAction]:
    return [action for action in actions if not isinstance(action, SkipAcl)]
