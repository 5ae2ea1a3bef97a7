"""Client quotas and SCRAM users of a cluster."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from twinlog.errors import KafkaError
from twinlog.kafka.admin.batches import in_batches
from twinlog.kafka.admin.changes import change, error_of
from twinlog.kafka.deadline import deadline
from twinlog.kafka.ports import QuotaEntity
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.schemas import SchemaRequest

_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class QuotaAdminMixin:
    """Implements `QuotaAdmin`."""

    _wire: DataClientPool

    async def describe_client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        asked = {"components": (), "strict": False}
        answer = await self._answer(
            SchemaRequest("describe_client_quotas", range(1), asked), "describe client quotas"
        )
        return {
            _entity(entry.entity): {str(each.key): float(each.value) for each in entry.values}
            for entry in answer.entries
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
        entries = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.parts],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in values.items()
                ],
            }
            for entity, values in changes
        ]
        asked = {"entries": entries, "validate_only": False}
        return await change(
            self._wire,
            SchemaRequest("alter_client_quotas", range(1), asked),
            "alter client quotas",
            [entity for entity, _ in changes],
            lambda answer: (
                (_entity(entry.entity), entry.error_code, entry.error_message) for entry in answer.entries
            ),
        )

    async def scram_users(self) -> Mapping[str, frozenset[str]]:
        answer = await self._answer(
            SchemaRequest("describe_user_scram_credentials", range(1), {"users": None}), "list SCRAM users"
        )
        return {
            str(result.user): frozenset(
                _MECHANISMS.get(each.mechanism, "UNKNOWN") for each in result.credential_infos
            )
            for result in answer.results
        }

    async def _answer(self, request: SchemaRequest, doing: str) -> Any:
        """An answer with one error code. Raises KafkaError."""
        async with deadline(self._wire.timeout_seconds, doing, alias=self._wire.alias):
            answer = await self._wire.send_any(request, doing)
        error = error_of(self._wire, answer.error_code, answer.error_message, doing)
        if error is not None:
            raise error
        return answer


def _entity(parts: Iterable[Any]) -> QuotaEntity:
    return QuotaEntity(tuple(sorted((str(each.entity_type), each.entity_name) for each in parts)))
