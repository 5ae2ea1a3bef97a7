"""Whether the holes of one partition cost too much to be filled one after the other. Pure: takes `now`.

Each hole stops the partition until it is filled: several round trips. A topic with many small transactions,
far away, would spend its time so, and lag more and more.
"""

from collections import deque
from dataclasses import dataclass, field

WINDOW_SECONDS = 60.0
"""Long enough that a broker that stands still for a while does not decide: there is no way back."""
MOST_SHARE = 0.5
MOST_HOLES = 30
"""Fewer than fit into half of the window where each takes several round trips of a far target."""


@dataclass(slots=True)
class HoleCost:
    """Times are monotonic seconds."""

    _filled: deque[tuple[float, float]] = field(default_factory=deque)
    """When each of the last holes began and ended to be filled."""

    def filled(self, began: float, ended: float) -> None:
        self._filled.append((began, ended))

    def is_too_high(self, now: float) -> bool:
        """Within the last minute more than 30 holes were filled, and that took more than half of the
        time."""
        since = now - WINDOW_SECONDS
        while self._filled and self._filled[0][1] <= since:
            self._filled.popleft()
        if len(self._filled) <= MOST_HOLES:
            return False
        spent_seconds = sum(ended - max(began, since) for began, ended in self._filled)
        return spent_seconds > MOST_SHARE * WINDOW_SECONDS
