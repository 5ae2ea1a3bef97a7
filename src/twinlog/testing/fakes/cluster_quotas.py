"""Client quotas and SCRAM users of a fake cluster."""

from collections.abc import Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import QuotaEntity
from twinlog.testing.fakes.cluster_base import FakeClusterBase
from twinlog.testing.fakes.cluster_hooks import operation

_KINDS = frozenset({("user",), ("client-id",), ("client-id", "user"), ("ip",)})
_KEYS = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
_IP_KEYS = frozenset({"connection_creation_rate"})


class FakeQuotaAdmin(FakeClusterBase):
    """`QuotaAdmin` in memory. Nothing is throttled."""

    @operation
    async def describe_client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return {entity: dict(values) for entity, values in self.quotas.items()}

    @operation
    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]
    ) -> Mapping[QuotaEntity, KafkaError | None]:
        return {entity: self._alter_quota(entity, values) for entity, values in changes.items()}

    @operation
    async def scram_users(self) -> Mapping[str, frozenset[str]]:
        return dict(self.users)

    def _alter_quota(self, entity: QuotaEntity, values: Mapping[str, float | None]) -> KafkaError | None:
        kinds = tuple(kind for kind, _ in entity.parts)
        known = _IP_KEYS if kinds == ("ip",) else _KEYS
        if kinds not in _KINDS or not known.issuperset(values):
            return from_code(ErrorCode.INVALID_REQUEST, "alter client quotas", alias=self.alias)
        merged = {**self.quotas.get(entity, {}), **values}
        kept = {key: value for key, value in merged.items() if value is not None}
        if kept:
            self.quotas[entity] = kept
        else:
            self.quotas.pop(entity, None)
        return None
