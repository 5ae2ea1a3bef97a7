"""Kafka's own rules of evaluation, as an oracle: what StandardAuthorizer answers for a principal that is no
super user. Written after `StandardAuthorizerData.findAclRule` and `AuthorizerUtils`; knows nothing of
Twinlog's.
"""

from collections.abc import Iterable

from twinlog.kafka.ports import AclBinding

IMPLIED_BY = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}
"""An ALLOW of one of these allows the operation as well; a DENY of them does not deny it."""


def is_authorized(
    bindings: Iterable[AclBinding],
    *,
    principal: str,
    host: str,
    operation: str,
    resource_type: str,
    name: str,
) -> bool:
    """A DENY that matches wins over every ALLOW; without an ALLOW that matches the answer is no."""
    matching = [
        each
        for each in bindings
        if each.resource_type == resource_type
        and _matches(each, name)
        and each.principal in ("User:*", principal)
        and each.host in ("*", host)
    ]
    if any(each.permission == "DENY" and each.operation in ("ALL", operation) for each in matching):
        return False
    allowing = {"ALL", operation, *IMPLIED_BY.get(operation, ())}
    return any(each.permission == "ALLOW" and each.operation in allowing for each in matching)


def _matches(binding: AclBinding, name: str) -> bool:
    if binding.pattern_type == "PREFIXED":
        return name.startswith(binding.resource_name)
    return binding.resource_name in ("*", name)
