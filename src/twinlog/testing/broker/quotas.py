"""Client quotas (KIP-13, KIP-546): whom they concern, and how long clients have to wait."""

from twinlog.clock import Clock

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Kinds with names, in the order of kinds; without a name it is the kind's default."""
_WINDOW_SECONDS = 10.0
"""Rates are averages over so long, and nobody waits longer (quota.window.num, quota.window.size.seconds)."""


class Quotas:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.by_entity: dict[QuotaEntity, dict[str, float]] = {}
        self._paid_until: dict[tuple[str, QuotaEntity], float] = {}
        """When what was used is what the quota allows."""

    def alter(self, entity: QuotaEntity, values: dict[str, float | None]) -> None:
        """None takes one away."""
        merged = {**self.by_entity.pop(entity, {}), **values}
        kept = {key: value for key, value in merged.items() if value is not None}
        if kept:
            self.by_entity[entity] = kept

    def throttle_ms(self, key: str, user: str, client_id: str, used: int) -> int:
        """Count bytes that a client has used; returns how long it has to wait now."""
        found = self._of(key, user, client_id)
        if found is None:
            return 0
        entity, rate = found
        names = {"user": user, "client-id": client_id}
        bucket = key, tuple((kind, names[kind]) for kind, _ in entity)
        now = self._clock.monotonic()
        paid = max(self._paid_until.get(bucket, 0.0), now) + used / rate
        self._paid_until[bucket] = paid
        return round(1000 * min(max(paid - now - _WINDOW_SECONDS, 0.0), _WINDOW_SECONDS))

    def _of(self, key: str, user: str, client_id: str) -> tuple[QuotaEntity, float] | None:
        """The most specific one; that of a user before that of a client id."""
        entities: list[QuotaEntity] = []
        for name in (user, None):
            entities += [(("client-id", client), ("user", name)) for client in (client_id, None)]
            entities.append((("user", name),))
        entities += [(("client-id", client),) for client in (client_id, None)]
        return next(
            ((each, values[key]) for each in entities if key in (values := self.by_entity.get(each, {}))),
            None,
        )
