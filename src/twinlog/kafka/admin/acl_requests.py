"""The ACL requests of Kafka's protocol, version 1, which neither client library implements correctly.

aiokafka has none. librdkafka answers DescribeAcls with an empty list if the broker said SECURITY_DISABLED,
and knows neither users nor delegation tokens as resources. Source: DescribeAclsRequest.json,
CreateAclsRequest.json, DeleteAclsRequest.json and the enums of org.apache.kafka.common.acl and .resource.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int8, Int16, Int32, Schema, String

from twinlog.kafka.ports import AclBinding

_ANY = 1


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


_TEXT = String("utf-8")
_BINDING = (
    ("resource_type", Int8),
    ("resource_name", _TEXT),
    ("pattern_type", Int8),
    ("principal", _TEXT),
    ("host", _TEXT),
    ("operation", Int8),
    ("permission_type", Int8),
)


class DescribeAclsResponseV1(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 29
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", _TEXT),
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", _TEXT),
                ("pattern_type", Int8),
                (
                    "acls",
                    Array(
                        ("principal", _TEXT), ("host", _TEXT), ("operation", Int8), ("permission_type", Int8)
                    ),
                ),
            ),
        ),
    )


class DescribeAclsRequestV1(RequestStruct):  # type: ignore[misc]
    API_KEY = 29
    API_VERSION = 1
    RESPONSE_TYPE = DescribeAclsResponseV1
    SCHEMA = Schema(*_BINDING)


class CreateAclsResponseV1(Response):  # type: ignore[misc]
    API_KEY = 30
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("results", Array(("error_code", Int16), ("error_message", _TEXT)))
    )


class CreateAclsRequestV1(RequestStruct):  # type: ignore[misc]
    API_KEY = 30
    API_VERSION = 1
    RESPONSE_TYPE = CreateAclsResponseV1
    SCHEMA = Schema(("creations", Array(*_BINDING)))


class DeleteAclsResponseV1(Response):  # type: ignore[misc]
    API_KEY = 31
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "filter_results",
            Array(
                ("error_code", Int16),
                ("error_message", _TEXT),
                ("matching_acls", Array(("error_code", Int16), ("error_message", _TEXT), *_BINDING)),
            ),
        ),
    )


class DeleteAclsRequestV1(RequestStruct):  # type: ignore[misc]
    API_KEY = 31
    API_VERSION = 1
    RESPONSE_TYPE = DeleteAclsResponseV1
    SCHEMA = Schema(("filters", Array(*_BINDING)))


class DescribeAcls(Request[DescribeAclsRequestV1]):  # type: ignore[misc]
    """Every ACL of a resource type, with all patterns, principals and operations."""

    API_KEY = 29

    def __init__(self, resource_type: AclResourceType) -> None:
        self._resource_type = resource_type

    def build(self, request_struct_class: type[DescribeAclsRequestV1]) -> DescribeAclsRequestV1:
        return request_struct_class(int(self._resource_type), None, _ANY, None, None, _ANY, _ANY)


class CreateAcls(Request[CreateAclsRequestV1]):  # type: ignore[misc]
    API_KEY = 30

    def __init__(self, bindings: Sequence[AclBinding]) -> None:
        self._bindings = bindings

    def build(self, request_struct_class: type[CreateAclsRequestV1]) -> CreateAclsRequestV1:
        return request_struct_class([to_wire(binding) for binding in self._bindings])


class DeleteAcls(Request[DeleteAclsRequestV1]):  # type: ignore[misc]
    """Exactly these ACLs."""

    API_KEY = 31

    def __init__(self, bindings: Sequence[AclBinding]) -> None:
        self._bindings = bindings

    def build(self, request_struct_class: type[DeleteAclsRequestV1]) -> DeleteAclsRequestV1:
        return request_struct_class([to_wire(binding) for binding in self._bindings])


def to_wire(binding: AclBinding) -> tuple[int, str, int, str, str, int, int]:
    """Raises KeyError for a name that Kafka does not have."""
    return (
        int(AclResourceType[binding.resource_type]),
        binding.resource_name,
        int(AclPatternType[binding.pattern_type]),
        binding.principal,
        binding.host,
        int(AclOperation[binding.operation]),
        int(AclPermission[binding.permission]),
    )


def from_wire(resources: Sequence[Any]) -> list[AclBinding]:
    """The ACLs of a DescribeAcls answer, sorted. Values newer than this table become UNKNOWN."""
    return sorted(
        AclBinding(
            resource_type=_word(AclResourceType, resource_type),
            resource_name=resource_name,
            pattern_type=_word(AclPatternType, pattern_type),
            principal=principal,
            host=host,
            operation=_word(AclOperation, operation),
            permission=_word(AclPermission, permission),
        )
        for resource_type, resource_name, pattern_type, acls in resources
        for principal, host, operation, permission in acls
    )


def _word(words: type[IntEnum], number: int) -> str:
    try:
        return words(number).name
    except ValueError:
        return "UNKNOWN"
