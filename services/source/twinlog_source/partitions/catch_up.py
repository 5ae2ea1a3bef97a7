"""Estimates when a partition will have caught up. Pure: takes `now`.

The estimate uses the speed at which the lag shrinks, which includes what producers write meanwhile. Only the
last seconds count, because an older pace says nothing about now.
"""

from collections import deque
from dataclasses import dataclass, field

WINDOW_SECONDS = 30.0
LEAST_SECONDS = 5.0
"""Batches come in bursts, so a pace over less time is not reliable."""
_APART_SECONDS = 3.0
"""A flow may have ten thousand of these, so only few points are kept."""


@dataclass(slots=True, kw_only=True)
class CatchUp:
    """Invariant: nothing counts from before the partition last caught up, or was moved."""

    sightings: deque[tuple[float, int, int]] = field(default_factory=deque)
    """Time, position and end, rising."""

    def observe(self, position: int, end_offset: int, now: float) -> None:
        """Take the present position and end."""
        seen = self.sightings
        if position >= end_offset:
            seen.clear()
            return
        if seen and (position < seen[-1][1] or end_offset < seen[-1][2]):
            seen.clear()
        if not seen or now - seen[-1][0] >= _APART_SECONDS:
            seen.append((now, position, end_offset))
        while seen[0][0] < now - WINDOW_SECONDS:
            seen.popleft()

    def seconds(self, lag_records: int, now: float) -> float | None:
        """Seconds until `lag_records` are copied; None while the lag does not shrink, or was observed for too
        short a time."""
        pace = self.shrinks_per_second(now)
        return lag_records / pace if pace is not None and pace > 0 else None

    def shrinks_per_second(self, now: float) -> float | None:
        """Records by which the lag becomes smaller each second, negative while it grows; None when it was
        observed for too short a time."""
        seen = [each for each in list(self.sightings) if each[0] >= now - WINDOW_SECONDS]
        if len(seen) < 2 or seen[-1][0] - seen[0][0] < LEAST_SECONDS:
            return None
        (first, *before), (last, *after) = seen[0], seen[-1]
        return ((before[1] - before[0]) - (after[1] - after[0])) / (last - first)
