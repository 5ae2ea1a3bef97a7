"""DescribeAcls, CreateAcls, DeleteAcls (KIP-140)."""

from typing import Any

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Authorizer,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields

HANDLERS = Handlers()
_NONE: Fields = {"error_code": ErrorCode.none, "error_message": None}


def _authorizer(call: Call, operation: Operation) -> tuple[Authorizer, Fields]:
    """What judges, and the error that every part of the answer has."""
    authorizer = call.cluster.authorizer
    if authorizer is None:
        message = "No Authorizer is configured on the broker"
        return Authorizer(), {"error_code": ErrorCode.security_disabled, "error_message": message}
    if call.injected:
        return authorizer, {"error_code": call.injected, "error_message": None}
    if not call.allows(operation, Resource.CLUSTER, CLUSTER_NAME):
        message = "Cluster authorization failed."
        return authorizer, {"error_code": ErrorCode.cluster_authorization_failed, "error_message": message}
    return authorizer, _NONE


def _filter(asked: Any) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


@HANDLERS.serves("describe_acls")
async def describe_acls(call: Call) -> Fields:
    authorizer, error = _authorizer(call, Operation.DESCRIBE)
    resources: dict[tuple[int, str, int], list[Fields]] = {}
    for acl in authorizer.found(_filter(call.body)) if not error["error_code"] else ():
        resources.setdefault((acl.resource, acl.name, acl.pattern), []).append(
            {
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
        )
    return {
        **error,
        "resources": [
            {"resource_type": resource, "resource_name": name, "pattern_type": pattern, "acls": acls}
            for (resource, name, pattern), acls in resources.items()
        ],
    }


@HANDLERS.serves("create_acls")
async def create_acls(call: Call) -> Fields:
    authorizer, error = _authorizer(call, Operation.ALTER)
    if error["error_code"]:
        return {"results": [error for _ in call.body.creations]}
    return {"results": [_create(call, authorizer, asked) for asked in call.body.creations]}


def _create(call: Call, authorizer: Authorizer, asked: Any) -> Fields:
    acl = Acl(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )
    try:
        Resource(acl.resource), Pattern(acl.pattern), Operation(acl.operation), Permission(acl.permission)
        if acl.resource == Resource.ANY or not acl.name or ":" not in acl.principal:
            raise ValueError("a name is missing")
        if acl.resource == Resource.USER and call.release.has_zookeeper:
            raise ValueError("users came with KIP-373")
        if acl.resource == Resource.CLUSTER and acl.name != CLUSTER_NAME:
            raise ValueError(f"the only name of the cluster is {CLUSTER_NAME}")
    except ValueError as error:
        return {"error_code": ErrorCode.invalid_request, "error_message": str(error)}
    authorizer.add([acl])
    return _NONE


@HANDLERS.serves("delete_acls")
async def delete_acls(call: Call) -> Fields:
    authorizer, error = _authorizer(call, Operation.ALTER)
    results = []
    for asked in call.body.filters:
        found = authorizer.found(_filter(asked)) if not error["error_code"] else []
        for acl in found:
            del authorizer.acls[acl]
        results.append({**error, "matching_acls": [_matching(acl) for acl in found]})
    return {"filter_results": results}


def _matching(acl: Acl) -> Fields:
    return {
        **_NONE,
        "resource_type": acl.resource,
        "resource_name": acl.name,
        "pattern_type": acl.pattern,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }
