"""DescribeConfigs, IncrementalAlterConfigs (KIP-133, KIP-226, KIP-339)."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from kio.schema.errors import ErrorCode

from twinlog.testing.broker import configs
from twinlog.testing.broker.acls import CLUSTER_NAME, Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.configs import Config, RefusedError
from twinlog.testing.broker.faults import QuotaEntity

# DescribeClientQuotas, AlterClientQuotas (KIP-546), DescribeUserScramCredentials (KIP-554).

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
    return {"entries": [_quotas_alter(call, asked) for asked in call.body.entries]}


def _quotas_alter(call: Call, asked: Any) -> Fields:
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


_TOPIC, _BROKER = 2, 4


class _Change(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class _AnsweredError(Exception):
    def __init__(self, error: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


@HANDLERS.serves("describe_configs")
async def describe_configs(call: Call) -> Fields:
    return {"results": [_describe(call, asked) for asked in call.body.resources]}


def _describe(call: Call, asked: Any) -> Fields:
    answer = {
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "error_code": ErrorCode.none,
        "error_message": None,
    }
    try:
        found = list(_configs(call, asked))
    except _AnsweredError as answered:
        return {**answer, "error_code": answered.error, "error_message": answered.message, "configs": []}
    wanted = asked.configuration_keys
    told = [_told(call, each) for each in found if wanted is None or each.name in wanted]
    return {**answer, "configs": told}


def _configs(call: Call, asked: Any) -> Iterable[Config]:
    cluster = call.cluster
    _authorize(call, asked, Operation.DESCRIBE_CONFIGS)
    if asked.resource_type == _BROKER:
        if asked.resource_name not in ("", str(call.node.node_id)):
            raise _AnsweredError(
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {call.node.node_id}, but received {asked.resource_name}",
            )
        return configs.node_configs(
            call.node.node_id, len(cluster.nodes), cluster.broker_configs, call.release
        )
    topic = cluster.topics.get(asked.resource_name)
    if topic is None:
        raise _AnsweredError(ErrorCode.unknown_topic_or_partition, None)
    return configs.topic_configs(topic.configs, cluster.broker_configs, call.release)


def _authorize(call: Call, asked: Any, operation: Operation) -> None:
    if call.injected:
        raise _AnsweredError(call.injected, None)
    if asked.resource_type == _TOPIC:
        if not call.allows(operation, Resource.TOPIC, asked.resource_name):
            raise _AnsweredError(ErrorCode.topic_authorization_failed, None)
    elif asked.resource_type == _BROKER:
        if not call.allows(operation, Resource.CLUSTER, CLUSTER_NAME):
            raise _AnsweredError(ErrorCode.cluster_authorization_failed, None)
    else:
        raise _AnsweredError(ErrorCode.invalid_request, f"Unsupported resource type {asked.resource_type}")


def _told(call: Call, config: Config) -> Fields:
    synonyms = config.found if call.body.include_synonyms else ()
    return {
        "name": config.name,
        "value": config.found[0].value,
        "read_only": config.is_read_only,
        "config_source": config.found[0].source,
        "is_sensitive": False,
        "synonyms": [{"name": each.name, "value": each.value, "source": each.source} for each in synonyms],
        "config_type": config.kind,
        "documentation": None,
    }


@HANDLERS.serves("incremental_alter_configs")
async def incremental_alter_configs(call: Call) -> Fields:
    return {"responses": [_altered(call, asked) for asked in call.body.resources]}


def _altered(call: Call, asked: Any) -> Fields:
    answer = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
    try:
        _authorize(call, asked, Operation.ALTER_CONFIGS)
        before = _settable(call, asked)
        after = _changed(call, asked, dict(before))
        if asked.resource_type == _TOPIC:
            for name, value in after.items():
                configs.check(name, value, call.release)
    except _AnsweredError as answered:
        return {**answer, "error_code": answered.error, "error_message": answered.message}
    except RefusedError as refused:
        code = ErrorCode.invalid_request if call.release.has_zookeeper else ErrorCode.invalid_config
        return {**answer, "error_code": code, "error_message": str(refused)}
    if not call.body.validate_only:
        before.clear()
        before.update(after)
    return {**answer, "error_code": ErrorCode.none, "error_message": None}


def _settable(call: Call, asked: Any) -> dict[str, str]:
    if asked.resource_type == _BROKER:
        return call.cluster.broker_configs
    topic = call.cluster.topics.get(asked.resource_name)
    if topic is None:
        name = asked.resource_name
        raise _AnsweredError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
    return topic.configs


def _changed(call: Call, asked: Any, after: dict[str, str]) -> dict[str, str]:
    names = [each.name for each in asked.configs]
    if len(set(names)) != len(names):
        raise _AnsweredError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    defaults = configs.topic_defaults(call.release)
    for each in asked.configs:
        name = _topic_name(asked, each.name)
        if each.config_operation == _Change.DELETE:
            after.pop(name, None)
            continue
        if each.value is None:
            raise _AnsweredError(
                ErrorCode.invalid_request, f"Null value not supported for the operation on {each.name}"
            )
        if each.config_operation == _Change.SET:
            after[name] = each.value
            continue
        if configs.kind_of(name) is not configs.ConfigType.LIST:
            raise RefusedError(f"Config value append is not allowed for config key: {each.name}")
        words = [word for word in after.get(name, defaults[name]).split(",") if word]
        given = each.value.split(",")
        if each.config_operation == _Change.APPEND:
            words += [word for word in given if word not in words]
        else:
            words = [word for word in words if word not in given]
        after[name] = ",".join(words)
    return after


def _topic_name(asked: Any, name: str) -> str:
    return name if asked.resource_type == _TOPIC else configs.topic_name(name)
