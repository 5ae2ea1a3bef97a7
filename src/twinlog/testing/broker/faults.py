"""What goes wrong between clients and brokers, by script.

Client quotas (KIP-13, KIP-546): whom they concern, and how long clients have to wait.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kio.schema.errors import ErrorCode

from twinlog.clock import Clock


class Loss(Enum):
    """When a connection is reset."""

    BEFORE = "before the request is looked at"
    AFTER = "after the request was carried out, before its answer"
    WITHIN = "in the middle of the answer"


@dataclass(slots=True, eq=False, kw_only=True)
class Fault:
    """One kind of trouble for some requests. What is not set matches everything, and changes nothing."""

    api: str | None = None
    """kio's name, as "list_offsets"."""
    node_id: int | None = None
    client_id: str | None = None
    times: int | None = None
    """For this many requests only."""

    hangs: bool = False
    """The broker does not look at the request, nor at later ones of the connection, before the fault ends: as
    a stopped process."""
    swallows: bool = False
    """The request is carried out and never answered; later ones are."""
    swallows_unseen: bool = False
    """The request is neither carried out nor answered."""
    loses: Loss | None = None
    throttle_ms: int = 0
    """The answer says so, and the broker reads nothing from the connection for this long (KIP-219)."""
    error: ErrorCode = ErrorCode.none
    """Answered in place of the work: per partition, or for a coordinator's key, where the API has them."""
    request_seconds: float = 0.0
    """What the way to the broker takes."""
    answer_seconds: float = 0.0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, api: str, node_id: int, client_id: str) -> bool:
        return (
            self.times != 0
            and self.api in (None, api)
            and self.node_id in (None, node_id)
            and self.client_id in (None, client_id)
        )


class Faults:
    """Those of now, in the order in which they began."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def begin(self, *, seconds: float | None = None, **what: Any) -> Fault:
        """Begin a `Fault` with these fields; it ends after a while, or by `end`."""
        fault = Fault(**what)
        self._faults.append(fault)
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self.end, fault)
        return fault

    def end(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)
        fault.ended.set()

    @contextmanager
    def during(self, **what: Any) -> Iterator[Fault]:
        """A fault for as long as the block."""
        fault = self.begin(**what)
        try:
            yield fault
        finally:
            self.end(fault)

    def of(self, api: str, node_id: int, client_id: str) -> list[Fault]:
        """Those that this request meets; each is counted."""
        found = [each for each in self._faults if each.matches(api, node_id, client_id)]
        for fault in found:
            if fault.times is not None:
                fault.times -= 1
        return found


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
        """Count bytes that a client has used; returns how long it has to wait now. A fetch that has to wait
        brings nothing, and does not count."""
        found = self._of(key, user, client_id)
        if found is None:
            return 0
        entity, rate = found
        names = {"user": user, "client-id": client_id}
        bucket = key, tuple((kind, names[kind]) for kind, _ in entity)
        now = self._clock.monotonic()
        paid = max(self._paid_until.get(bucket, 0.0), now) + used / rate
        wait_seconds = min(max(paid - now - _WINDOW_SECONDS, 0.0), _WINDOW_SECONDS)
        if key != "consumer_byte_rate" or not wait_seconds:
            self._paid_until[bucket] = paid
        return round(1000 * wait_seconds)

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
