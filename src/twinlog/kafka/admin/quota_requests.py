"""The client quota requests of Kafka's protocol, version 0; neither client library has both.

Source: DescribeClientQuotasRequest.json, AlterClientQuotasRequest.json (KIP-546).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Float64, Int8, Int16, Int32, Schema, String

from twinlog.kafka.ports import QuotaEntity

_TEXT = String("utf-8")
_ENTITY = ("entity", Array(("entity_type", _TEXT), ("entity_name", _TEXT)))


class DescribeClientQuotasResponseV0(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 48
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", _TEXT),
        ("entries", Array(_ENTITY, ("values", Array(("key", _TEXT), ("value", Float64))))),
    )


class DescribeClientQuotasRequestV0(RequestStruct):  # type: ignore[misc]
    API_KEY = 48
    API_VERSION = 0
    RESPONSE_TYPE = DescribeClientQuotasResponseV0
    SCHEMA = Schema(
        ("components", Array(("entity_type", _TEXT), ("match_type", Int8), ("match", _TEXT))),
        ("strict", Boolean),
    )


class AlterClientQuotasResponseV0(Response):  # type: ignore[misc]
    API_KEY = 49
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("entries", Array(("error_code", Int16), ("error_message", _TEXT), _ENTITY)),
    )


class AlterClientQuotasRequestV0(RequestStruct):  # type: ignore[misc]
    API_KEY = 49
    API_VERSION = 0
    RESPONSE_TYPE = AlterClientQuotasResponseV0
    SCHEMA = Schema(
        ("entries", Array(_ENTITY, ("ops", Array(("key", _TEXT), ("value", Float64), ("remove", Boolean))))),
        ("validate_only", Boolean),
    )


class DescribeClientQuotas(Request[DescribeClientQuotasRequestV0]):  # type: ignore[misc]
    """Every quota of every entity."""

    API_KEY = 48

    def build(
        self, request_struct_class: type[DescribeClientQuotasRequestV0]
    ) -> DescribeClientQuotasRequestV0:
        return request_struct_class([], False)


class AlterClientQuotas(Request[AlterClientQuotasRequestV0]):  # type: ignore[misc]
    """Set values, and remove those that are None."""

    API_KEY = 49

    def __init__(self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]) -> None:
        self._changes = changes

    def build(self, request_struct_class: type[AlterClientQuotasRequestV0]) -> AlterClientQuotasRequestV0:
        entries = [
            (
                list(entity.parts),
                [(key, 0.0 if value is None else value, value is None) for key, value in values.items()],
            )
            for entity, values in self._changes.items()
        ]
        return request_struct_class(entries, False)


def entity_from_wire(parts: Sequence[Any]) -> QuotaEntity:
    return QuotaEntity(tuple(sorted((str(kind), name) for kind, name in parts)))
