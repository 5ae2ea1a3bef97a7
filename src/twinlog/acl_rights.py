"""How Kafka's authorizer evaluates ACLs: which binding applies to which name, principal and operation. Pure.

DENY wins over ALLOW. An ALLOW of some operations implies DESCRIBE (or DESCRIBE_CONFIGS). A DENY implies
nothing else, and ALL means every operation.
"""

from typing import Final

from twinlog.kafka.ports import AclBinding

ALL: Final = "ALL"
ALLOW: Final = "ALLOW"
DENY: Final = "DENY"
LITERAL: Final = "LITERAL"
PREFIXED: Final = "PREFIXED"
WILDCARD: Final = "*"
ANY_USER: Final = "User:*"

_IMPLIES: Final = {
    "READ": "DESCRIBE",
    "WRITE": "DESCRIBE",
    "DELETE": "DESCRIBE",
    "ALTER": "DESCRIBE",
    "ALTER_CONFIGS": "DESCRIBE_CONFIGS",
}


def granted_operations(operation: str) -> frozenset[str]:
    """The operations that an ALLOW of this operation allows, except for ALL (which allows everything)."""
    implied = _IMPLIES.get(operation)
    return frozenset({operation} if implied is None else {operation, implied})


def names_overlap(first: AclBinding, second: AclBinding) -> bool:
    """Whether there may be a resource to which both bindings apply."""
    if first.resource_type != second.resource_type:
        return False
    if WILDCARD in (first.resource_name, second.resource_name):
        return True
    match first.pattern_type, second.pattern_type:
        case "LITERAL", "LITERAL":
            return first.resource_name == second.resource_name
        case "PREFIXED", "LITERAL":
            return second.resource_name.startswith(first.resource_name)
        case "LITERAL", "PREFIXED":
            return first.resource_name.startswith(second.resource_name)
        case _:
            longer, shorter = sorted((first.resource_name, second.resource_name), key=len, reverse=True)
            return longer.startswith(shorter)


def is_group_pattern(binding: AclBinding) -> bool:
    """Whether the binding applies to groups that it does not name."""
    is_name = binding.pattern_type == LITERAL and binding.resource_name != WILDCARD
    return binding.resource_type == "GROUP" and not is_name


def covers(binding: AclBinding, name: str) -> bool:
    """Whether the binding's pattern matches a resource of this name."""
    if binding.pattern_type == PREFIXED:
        return name.startswith(binding.resource_name)
    return binding.resource_name in (WILDCARD, name)


def limits(denial: AclBinding, allowance: AclBinding) -> bool:
    """Whether a DENY may limit an ALLOW."""
    principals = {denial.principal, allowance.principal}
    hosts = {denial.host, allowance.host}
    return (
        names_overlap(denial, allowance)
        and (len(principals) == 1 or ANY_USER in principals)
        and (len(hosts) == 1 or WILDCARD in hosts)
        and (
            denial.operation == ALL
            or allowance.operation == ALL
            or denial.operation in granted_operations(allowance.operation)
        )
    )


def acl_text(binding: AclBinding) -> str:
    """One line, with the fields in the order of kafka-acls."""
    return (
        f"{binding.permission} {binding.principal} {binding.operation} on {binding.pattern_type} "
        f"{binding.resource_type} {binding.resource_name} from {binding.host}"
    )


def is_write_grant(binding: AclBinding) -> bool:
    """Whether the binding only allows writing to one topic."""
    kind = (binding.resource_type, binding.pattern_type, binding.operation, binding.permission)
    return kind == ("TOPIC", LITERAL, "WRITE", ALLOW) and binding.resource_name != WILDCARD
