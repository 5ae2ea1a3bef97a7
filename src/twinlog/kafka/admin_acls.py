"""ACLs of a cluster, in Kafka's own words.

librdkafka knows the resource types TOPIC, GROUP, CLUSTER (which it calls BROKER) and TRANSACTIONAL_ID.
Bindings of others (USER, DELEGATION_TOKEN) are left out of descriptions and refused as UNSUPPORTED_VERSION on
change.
"""

from collections.abc import Collection, Mapping

from confluent_kafka.admin import AclBinding as LibrdkafkaAclBinding
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from twinlog.errors import KafkaError
from twinlog.kafka.admin_client import AdminSession
from twinlog.kafka.errors import KAFKA_REASONS, UNSUPPORTED, from_reason
from twinlog.kafka.ports import AclBinding

_RESOURCE_TYPES = {
    "ANY": ResourceType.ANY,
    "TOPIC": ResourceType.TOPIC,
    "GROUP": ResourceType.GROUP,
    "CLUSTER": ResourceType.BROKER,
    "TRANSACTIONAL_ID": ResourceType.TRANSACTIONAL_ID,
}
_RESOURCE_NAMES = {kind: name for name, kind in _RESOURCE_TYPES.items()}
_NO_AUTHORIZER = KAFKA_REASONS[54].name


class AclAdminMixin:
    """`AclAdmin` over confluent-kafka."""

    _admin: AdminSession

    async def describe_acls(self, resource_type: str = "ANY") -> Collection[AclBinding] | None:
        doing = f"describe ACLs of type {resource_type}"
        if resource_type not in _RESOURCE_TYPES:
            raise from_reason(UNSUPPORTED, doing, alias=self._admin.alias)
        wanted = AclBindingFilter(
            _RESOURCE_TYPES[resource_type],
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        try:
            found = await self._admin.one(
                doing, lambda admin, seconds: admin.describe_acls(wanted, request_timeout=seconds)
            )
        except KafkaError as error:
            if error.reason == _NO_AUTHORIZER:
                return None
            raise
        return sorted(_to_ours(binding) for binding in found if binding.restype in _RESOURCE_NAMES)

    async def create_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        theirs = {_to_theirs(binding): binding for binding in bindings if _is_known(binding)}
        outcome = self._refusals(bindings, "create an ACL")
        if theirs:
            created = await self._admin.each(
                "create ACLs", lambda admin, seconds: admin.create_acls(list(theirs), request_timeout=seconds)
            )
            outcome |= {theirs[key]: answer for key, answer in created.items()}
        return outcome

    async def delete_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        theirs = {_exactly(binding): binding for binding in bindings if _is_known(binding)}
        outcome = self._refusals(bindings, "delete an ACL")
        if theirs:
            deleted = await self._admin.each(
                "delete ACLs", lambda admin, seconds: admin.delete_acls(list(theirs), request_timeout=seconds)
            )
            outcome |= {
                theirs[key]: answer if isinstance(answer, KafkaError) else None
                for key, answer in deleted.items()
            }
        return outcome

    def _refusals(self, bindings: Collection[AclBinding], doing: str) -> dict[AclBinding, KafkaError | None]:
        return {
            binding: from_reason(
                UNSUPPORTED, f"{doing} of type {binding.resource_type}", alias=self._admin.alias
            )
            for binding in bindings
            if not _is_known(binding)
        }


def _is_known(binding: AclBinding) -> bool:
    return binding.resource_type in _RESOURCE_TYPES


def _to_theirs(binding: AclBinding) -> LibrdkafkaAclBinding:
    return LibrdkafkaAclBinding(
        _RESOURCE_TYPES[binding.resource_type],
        binding.resource_name,
        ResourcePatternType[binding.pattern_type],
        binding.principal,
        binding.host,
        AclOperation[binding.operation],
        AclPermissionType[binding.permission],
    )


def _exactly(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        _RESOURCE_TYPES[binding.resource_type],
        binding.resource_name,
        ResourcePatternType[binding.pattern_type],
        binding.principal,
        binding.host,
        AclOperation[binding.operation],
        AclPermissionType[binding.permission],
    )


def _to_ours(binding: LibrdkafkaAclBinding) -> AclBinding:
    return AclBinding(
        resource_type=_RESOURCE_NAMES[binding.restype],
        resource_name=binding.name,
        pattern_type=binding.resource_pattern_type.name,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation.name,
        permission=binding.permission_type.name,
    )
