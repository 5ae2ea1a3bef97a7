"""Which parts of a flow are due to be synced. Pure: takes monotonic seconds, returns sets."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

_NEVER: Final = float("inf")
_LONGEST_WAIT_SECONDS: Final = 3600.0


class Scope(StrEnum):
    """A part of a flow that is planned and applied by itself, each at its own interval."""

    TOPICS = "topics"
    CONFIGS = "configs"
    ACLS = "acls"
    QUOTAS = "quotas"


@dataclass(slots=True, kw_only=True)
class Schedule:
    """Every scope is due at once, then an interval after it was done (start to start)."""

    interval_seconds: Mapping[Scope, float]
    """Scopes that are left out are never due."""
    _due_at: dict[Scope, float] = field(default_factory=dict)

    def due(self, now: float) -> frozenset[Scope]:
        return frozenset(scope for scope in self.interval_seconds if self._due_at.get(scope, now) <= now)

    def done(self, scopes: Collection[Scope], *, started: float) -> None:
        """These were synced by a pass that began at `started`."""
        for scope in scopes:
            if scope in self.interval_seconds:
                self._due_at[scope] = started + self.interval_seconds[scope]

    def retry(self, scopes: Collection[Scope], *, now: float, in_seconds: float) -> None:
        """These failed: try again soon, but not later than they would be due anyway."""
        for scope in scopes:
            if scope in self.interval_seconds:
                self._due_at[scope] = now + min(in_seconds, self.interval_seconds[scope])

    def once(self, scope: Scope) -> None:
        """Never again: what its switch turns off after the first time."""
        self._due_at[scope] = _NEVER

    def next_in_seconds(self, now: float) -> float:
        """Until the next scope is due, an hour at most."""
        soonest = min((self._due_at.get(scope, now) for scope in self.interval_seconds), default=_NEVER)
        return min(max(0.0, soonest - now), _LONGEST_WAIT_SECONDS)
