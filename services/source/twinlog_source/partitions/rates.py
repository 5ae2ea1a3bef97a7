"""The rate of a counter: a slow one for planning, a quick one for display. Pure: takes `now`."""

import math
from collections import deque
from dataclasses import dataclass, field

PLANNING_SECONDS = 10.0
"""A plan must not follow every burst."""
SHOWN_SECONDS = 5.0
"""The displayed rate covers the last seconds only."""


@dataclass(slots=True, kw_only=True)
class Rate:
    """The rate of a counter that starts at 0 with every task."""

    per_second: float | None = None
    """Exponentially weighted, as of the last value; None = not measured yet."""
    _count: float = 0.0
    _at: float | None = None
    _recent: deque[tuple[float, float]] = field(default_factory=deque)
    """The time of each value, and its increase."""

    def begin(self, now: float) -> None:
        """A new task counts from 0."""
        self._count, self._at = 0.0, now

    def observe(self, count: float, now: float) -> float:
        """Take the counter's value, and return its increase."""
        if self._at is None or count < self._count:
            self.begin(now)
        assert self._at is not None
        added, elapsed = count - self._count, now - self._at
        self._count, self._at = count, now
        if elapsed > 0:
            weight = 1 - math.exp(-elapsed / PLANNING_SECONDS)
            before = added / elapsed if self.per_second is None else self.per_second
            self.per_second = before + weight * (added / elapsed - before)
        if added:
            self._forget(now)
            self._recent.append((now, added))
        return added

    def current(self, now: float) -> float:
        """The planning rate now, if nothing was counted since the last value."""
        if self.per_second is None or self._at is None:
            return 0.0
        return self.per_second * math.exp(-max(0.0, now - self._at - 1) / PLANNING_SECONDS)

    def shown(self, now: float) -> float:
        """The mean of the last seconds. May be called from any thread."""
        return sum(added for at, added in list(self._recent) if at > now - SHOWN_SECONDS) / SHOWN_SECONDS

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - SHOWN_SECONDS:
            self._recent.popleft()
