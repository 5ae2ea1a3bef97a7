"""How long until a partition that is behind has copied what its source holds. Pure: takes `now`.

What counts is how fast the lag shrinks, so what producers write meanwhile is in it. Only the last seconds are
looked at: a pace of minutes ago says nothing of now.
"""

from collections import deque
from dataclasses import dataclass, field

WINDOW_SECONDS = 30.0
LEAST_SECONDS = 5.0
"""Batches come in bursts: over less time the pace is a guess."""
_APART_SECONDS = 3.0
"""A flow may have ten thousand of these."""


@dataclass(slots=True, kw_only=True)
class CatchUp:
    """Invariant: nothing of before the partition was last caught up, or was moved, counts."""

    _seen: deque[tuple[float, int, int]] = field(default_factory=deque)
    """Time, position and end, rising."""

    def observe(self, position: int, end_offset: int, now: float) -> None:
        """Take where the partition and what may be copied of its log stand."""
        seen = self._seen
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
        """Until nothing of `lag_records` is left; None while the lag does not shrink, or that was not looked
        at for long enough."""
        seen = [each for each in list(self._seen) if each[0] >= now - WINDOW_SECONDS]
        if len(seen) < 2 or seen[-1][0] - seen[0][0] < LEAST_SECONDS:
            return None
        (first, *before), (last, *after) = seen[0], seen[-1]
        shrunk = (before[1] - before[0]) - (after[1] - after[0])
        return lag_records * (last - first) / shrunk if shrunk > 0 else None
