"""Client quotas and SCRAM users of a cluster."""

from collections.abc import Collection, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.admin.batches import in_batches
from twinlog.kafka.admin.client import AdminSession
from twinlog.kafka.admin.quota_requests import AlterClientQuotas, DescribeClientQuotas, entity_from_wire
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import QuotaEntity
from twinlog.kafka.protocol.client_pool import DataClientPool


class QuotaAdminMixin:
    """Implements `QuotaAdmin`: quotas with requests of our own, users with confluent-kafka."""

    _wire: DataClientPool
    _admin: AdminSession

    async def describe_client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        doing = "describe client quotas"
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            answer = await self._wire.send_any(DescribeClientQuotas(), doing)
        if answer.error_code:
            raise from_code(
                answer.error_code, doing, alias=self._wire.alias, detail=answer.error_message or ""
            )
        return {
            entity_from_wire(entity): {str(key): float(value) for key, value in values}
            for entity, values in answer.entries
        }

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]
    ) -> Mapping[QuotaEntity, KafkaError | None]:
        return await in_batches(
            changes.items(), self._alter_quotas, key=lambda each: each[0], records=lambda each: len(each[1])
        )

    async def _alter_quotas(
        self, changes: Collection[tuple[QuotaEntity, Mapping[str, float | None]]]
    ) -> Mapping[QuotaEntity, KafkaError | None]:
        doing = "alter client quotas"
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            node_id = await self._wire.any_node(doing)
            answer = await self._wire.send(node_id, AlterClientQuotas(dict(changes)), doing)
        return {
            entity_from_wire(entity): (
                from_code(code, doing, alias=self._wire.alias, detail=message or "") if code else None
            )
            for code, message, entity in answer.entries
        }

    async def scram_users(self) -> Mapping[str, frozenset[str]]:
        described = await self._admin.one(
            "list SCRAM users",
            lambda admin, seconds: admin.describe_user_scram_credentials(None, request_timeout=seconds),
        )
        return {
            str(user): frozenset(
                info.mechanism.name.replace("_", "-") for info in details.scram_credential_infos
            )
            for user, details in described.items()
        }
