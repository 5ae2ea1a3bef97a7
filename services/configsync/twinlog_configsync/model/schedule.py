"""Which parts of a flow are due. Pure: takes monotonic seconds, returns sets."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

_NEVER: Final = float("inf")
_LONGEST_WAIT_SECONDS: Final = 3600.0


class Scope(StrEnum):
    """A part of a flow that is planned and applied separately, at its own interval."""

    TOPICS = "topics"
    CONFIGS = "configs"
    ACLS = "acls"
    QUOTAS = "quotas"


@dataclass(slots=True, kw_only=True)
class Schedule:
    """Every scope is due at once, and then at its interval (start to start)."""

    interval_seconds: Mapping[Scope, float]
    """Scopes that are missing are never due."""
    _due_at: dict[Scope, float] = field(default_factory=dict)

    def due(self, now: float) -> frozenset[Scope]:
        return frozenset(scope for scope in self.interval_seconds if self._due_at.get(scope, now) <= now)

    def done(self, scopes: Collection[Scope], *, started: float) -> None:
        """A pass that began at `started` synced these."""
        for scope in scopes:
            if scope in self.interval_seconds:
                self._due_at[scope] = started + self.interval_seconds[scope]

    def retry(self, scopes: Collection[Scope], *, now: float, in_seconds: float) -> None:
        """These failed: try again soon, but not later than they would be due anyway."""
        for scope in scopes:
            if scope in self.interval_seconds:
                self._due_at[scope] = now + min(in_seconds, self.interval_seconds[scope])

    def once(self, scope: Scope) -> None:
        """Never sync this again: its switch turns it off after the first time."""
        self._due_at[scope] = _NEVER

    def next_in_seconds(self, now: float) -> float:
        """Time until the next scope is due, at most an hour."""
        soonest = min((self._due_at.get(scope, now) for scope in self.interval_seconds), default=_NEVER)
        return min(max(0.0, soonest - now), _LONGEST_WAIT_SECONDS)
