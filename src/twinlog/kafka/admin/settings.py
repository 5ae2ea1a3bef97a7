"""ACLs and configs of a cluster, with Kafka's names."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from twinlog.errors import KafkaError, TransientKafkaError, required
from twinlog.kafka.admin.changes import Outcome, change, error_of, in_batches
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import AclBinding, ConfigChange, ConfigEntry, ConfigSource
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import SchemaRequest

_VERSIONS: Final = range(1, 2)
_ANY: Final = 1


class AclResourceType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(IntEnum):
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    DENY = 2
    ALLOW = 3


class AclAdminMixin:
    """Implements `AclAdmin`."""

    _wire: DataClientPool

    async def describe_acls(self, resource_type: str = "ANY") -> Collection[AclBinding] | None:
        doing = f"describe ACLs of type {resource_type}"
        if resource_type not in AclResourceType.__members__:
            raise from_code(
                ErrorCode.invalid_request, doing, alias=self._wire.alias, detail="no such resource type"
            )
        asked = {
            "resource_type_filter": AclResourceType[resource_type],
            "resource_name_filter": None,
            "pattern_type_filter": _ANY,
            "principal_filter": None,
            "host_filter": None,
            "operation": _ANY,
            "permission_type": _ANY,
        }
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            answer = await self._wire.send_any(SchemaRequest("describe_acls", _VERSIONS, asked), doing)
        if answer.error_code == ErrorCode.security_disabled:
            return None
        required(error_of(self._wire, answer.error_code, answer.error_message, doing))
        return from_wire(answer.resources)

    async def create_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        return await in_batches(
            bindings, lambda batch: self._change(batch, "create", "creations"), key=lambda binding: binding
        )

    async def delete_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        """Exactly these ACLs."""
        return await in_batches(
            bindings, lambda batch: self._change(batch, "delete", "filters"), key=lambda binding: binding
        )

    async def _change(
        self, bindings: Collection[AclBinding], what: str, field: str
    ) -> Mapping[AclBinding, KafkaError | None]:
        doing = f"{what} an ACL"
        known: dict[AclBinding, Mapping[str, Any]] = {}
        outcome: dict[AclBinding, KafkaError | None] = {}
        for binding in bindings:
            try:
                known[binding] = to_wire(binding)
            except KeyError as error:
                detail = f"Kafka has no {error.args[0]}"
                outcome[binding] = from_code(
                    ErrorCode.invalid_request, doing, alias=self._wire.alias, detail=detail
                )

        def outcomes(answer: Any) -> Iterator[Outcome[AclBinding]]:
            results = answer.results if field == "creations" else answer.filter_results
            for binding, result in zip(known, results, strict=True):
                # The error of a filter, or else of an ACL that it matches and the authorizer did not delete.
                wrong = [each for each in (result, *getattr(result, "matching_acls", ())) if each.error_code]
                yield (binding, wrong[0].error_code, wrong[0].error_message) if wrong else (binding, 0, "")

        if known:
            request = SchemaRequest(f"{what}_acls", _VERSIONS, {field: list(known.values())})
            outcome |= await change(self._wire, request, doing, known, outcomes)
        return outcome


def to_wire(binding: AclBinding) -> Mapping[str, Any]:
    """The fields of a new ACL, and those of the filter that it alone matches. Raises KeyError for a name that
    Kafka does not have."""
    resource_type = AclResourceType[binding.resource_type]
    pattern_type = AclPatternType[binding.pattern_type]
    return {
        "resource_type": resource_type,
        "resource_type_filter": resource_type,
        "resource_name": binding.resource_name,
        "resource_name_filter": binding.resource_name,
        "resource_pattern_type": pattern_type,
        "pattern_type_filter": pattern_type,
        "principal": binding.principal,
        "principal_filter": binding.principal,
        "host": binding.host,
        "host_filter": binding.host,
        "operation": AclOperation[binding.operation],
        "permission_type": AclPermission[binding.permission],
    }


def from_wire(resources: Collection[Any]) -> list[AclBinding]:
    """The ACLs of a DescribeAcls answer, sorted. Values newer than this table become UNKNOWN."""
    return sorted(
        AclBinding(
            resource_type=_word(AclResourceType, resource.resource_type),
            resource_name=resource.resource_name,
            pattern_type=_word(AclPatternType, resource.pattern_type),
            principal=acl.principal,
            host=acl.host,
            operation=_word(AclOperation, acl.operation),
            permission=_word(AclPermission, acl.permission_type),
        )
        for resource in resources
        for acl in resource.acls
    )


def _word(words: type[IntEnum], number: int) -> str:
    try:
        return words(number).name
    except ValueError:
        return "UNKNOWN"


# Configuration of topics and brokers.

_SOURCES: Final = {
    1: ConfigSource.TOPIC,
    2: ConfigSource.DYNAMIC_BROKER,
    3: ConfigSource.DYNAMIC_DEFAULT_BROKER,
    4: ConfigSource.STATIC_BROKER,
    5: ConfigSource.DEFAULT,
}
"""By the numbers of DescribeConfigsResponse.ConfigSource."""
_TOPIC, _BROKER = 2, 4
"""Types of a resource (ConfigResource.Type)."""
_SET, _DELETE = 0, 1
TOPICS_A_REQUEST: Final = 500
"""The configs of a topic are about 4 KB on the wire, and an answer is decoded in one go."""


class ConfigAdminMixin:
    """Implements `ConfigAdmin`."""

    _wire: DataClientPool

    async def describe_topic_configs(
        self, names: Collection[str], *, keys: Collection[str] = ()
    ) -> Mapping[str, Sequence[ConfigEntry] | KafkaError]:
        return await in_batches(
            sorted(set(names)), lambda page: self._describe(page, keys), key=str, most=TOPICS_A_REQUEST
        )

    async def _describe(
        self, names: Sequence[str], keys: Collection[str]
    ) -> dict[str, Sequence[ConfigEntry] | KafkaError]:
        doing = "describe topic configs"
        try:
            async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
                answer = await self._wire.send_any(_describe_configs(_TOPIC, names, keys), doing)
        except TransientKafkaError as error:
            # A cluster that is down is an error of each topic.
            return dict.fromkeys(names, error)
        missing = from_code(ErrorCode.unknown_server_error, doing, alias=self._wire.alias)
        described: dict[str, Sequence[ConfigEntry] | KafkaError] = dict.fromkeys(names, missing)
        described |= {result.resource_name: self._config_entries(result, doing) for result in answer.results}
        return described

    async def describe_broker_configs(self) -> Sequence[ConfigEntry]:
        doing = "describe the configs of a broker"
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            node_id = await self._wire.any_node(doing)
            answer = await self._wire.send(node_id, _describe_configs(_BROKER, [str(node_id)], ()), doing)
        return required(self._config_entries(answer.results[0], doing))

    def _config_entries(self, result: Any, doing: str) -> list[ConfigEntry] | KafkaError:
        return error_of(self._wire, result.error_code, result.error_message, doing) or [
            ConfigEntry(
                name=entry.name,
                value=entry.value,
                source=_SOURCES.get(entry.config_source, ConfigSource.UNKNOWN),
                read_only=entry.read_only,
                sensitive=entry.is_sensitive,
            )
            for entry in sorted(result.configs, key=lambda entry: str(entry.name))
        ]

    async def alter_topic_configs(
        self, changes: Mapping[str, Sequence[ConfigChange]]
    ) -> Mapping[str, KafkaError | None]:
        untouched = {name: None for name, wanted in changes.items() if not wanted}
        altered = await in_batches(
            [(name, wanted) for name, wanted in changes.items() if wanted],
            self._alter,
            key=lambda each: each[0],
            records=lambda each: len(each[1]),
        )
        return untouched | altered

    async def _alter(
        self, changes: Collection[tuple[str, Sequence[ConfigChange]]]
    ) -> Mapping[str, KafkaError | None]:
        resources = [
            {
                "resource_type": _TOPIC,
                "resource_name": name,
                "configs": [
                    {
                        "name": each.name,
                        "config_operation": _DELETE if each.value is None else _SET,
                        "value": each.value,
                    }
                    for each in wanted
                ],
            }
            for name, wanted in changes
        ]
        asked = {"resources": resources, "validate_only": False}
        return await change(
            self._wire,
            SchemaRequest("incremental_alter_configs", range(2), asked),
            "alter topic configs",
            [name for name, _ in changes],
            lambda answer: (
                (each.resource_name, each.error_code, each.error_message) for each in answer.responses
            ),
        )


def _describe_configs(kind: int, names: Sequence[str], keys: Collection[str]) -> SchemaRequest:
    """Of all keys if none is given."""
    wanted = sorted(keys) or None
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": wanted} for name in names
    ]
    return SchemaRequest("describe_configs", range(1, 5), {"resources": resources})
