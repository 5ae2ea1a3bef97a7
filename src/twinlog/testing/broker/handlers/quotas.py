"""DescribeClientQuotas, AlterClientQuotas (KIP-546), DescribeUserScramCredentials (KIP-554)."""

from typing import Any

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import CLUSTER_NAME, Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.quotas import QuotaEntity

HANDLERS = Handlers()
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_KINDS = frozenset({("user",), ("client-id",), ("client-id", "user"), ("ip",)})
_KEYS = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
_IP_KEYS = frozenset({"connection_creation_rate"})


@HANDLERS.serves("describe_client_quotas")
async def describe_client_quotas(call: Call) -> Fields:
    if not call.allows(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        error = call.injected or ErrorCode.cluster_authorization_failed
        return {"error_code": error, "error_message": None, "entries": None}
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "values": [{"key": key, "value": value} for key, value in values.items()],
        }
        for entity, values in call.cluster.quotas.by_entity.items()
        if _matches(call.body, dict(entity))
    ]
    return {"error_code": call.injected, "error_message": None, "entries": entries}


def _matches(asked: Any, entity: dict[str, str | None]) -> bool:
    if asked.strict and {each.entity_type for each in asked.components} != set(entity):
        return False
    return all(
        each.entity_type in entity
        and (each.match_type == _ANY or entity[each.entity_type] == (each.match or None))
        for each in asked.components
    )


@HANDLERS.serves("alter_client_quotas")
async def alter_client_quotas(call: Call) -> Fields:
    return {"entries": [_alter(call, asked) for asked in call.body.entries]}


def _alter(call: Call, asked: Any) -> Fields:
    entity: QuotaEntity = tuple(sorted((each.entity_type, each.entity_name) for each in asked.entity))
    kinds = tuple(kind for kind, _ in entity)
    error, message = call.injected, None
    unknown = {each.key for each in asked.ops} - (_IP_KEYS if kinds == ("ip",) else _KEYS)
    if not call.allows(Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        error = ErrorCode.cluster_authorization_failed
    elif not error and kinds not in _KINDS:
        error, message = ErrorCode.invalid_request, "Invalid client quota entity"
    elif not error and unknown:
        error, message = ErrorCode.invalid_request, f"Invalid configuration key {', '.join(sorted(unknown))}"
    elif not error and not call.body.validate_only:
        values = {each.key: None if each.remove else each.value for each in asked.ops}
        call.cluster.quotas.alter(entity, values)
    return {
        "error_code": error,
        "error_message": message,
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
    }


@HANDLERS.serves("describe_user_scram_credentials")
async def describe_user_scram_credentials(call: Call) -> Fields:
    """Of all users if none is named; others have no credentials to tell."""
    known = call.cluster.scram_users
    asked = [each.name for each in call.body.users or ()] or list(known)
    error = call.injected
    if not call.allows(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        error = ErrorCode.cluster_authorization_failed
    results = [
        {
            "user": user,
            "error_code": ErrorCode.none if user in known else ErrorCode.resource_not_found,
            "error_message": None,
            "credential_infos": [
                {"mechanism": mechanism, "iterations": count}
                for mechanism, count in known.get(user, {}).items()
            ],
        }
        for user in asked
    ]
    return {"error_code": error, "error_message": None, "results": [] if error else results}
