"""Whether the holes of one partition cost too much to be filled one after the other. Pure: takes `now`.

Each hole stops the partition until it is filled: several round trips. A topic with many small transactions,
far away, would spend its time so, and lag more and more. What is known goes from each task to the next: the
verdict does not depend on how long tasks live.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

WINDOW_SECONDS = 60.0
"""Long enough that a broker that stands still for a while does not decide: there is no way back."""
BUCKET_SECONDS = 5.0
MOST_SHARE = 0.5
MOST_HOLES = 30
"""Fewer than fit into half of the window where each takes several round trips of a far target."""


@dataclass(slots=True)
class HoleCostBucket:
    """What began within `BUCKET_SECONDS`. Times are monotonic seconds."""

    began: float
    holes: int
    spent_seconds: float


@dataclass(slots=True)
class HoleCost:
    """Times are monotonic seconds."""

    buckets: deque[HoleCostBucket] = field(default_factory=deque)
    """Oldest first."""

    @classmethod
    def resumed(cls, buckets: Iterable[HoleCostBucket]) -> "HoleCost":
        """With what earlier tasks have spent."""
        return cls(deque(sorted(buckets, key=lambda each: each.began)))

    def filled(self, began: float, ended: float) -> None:
        """A hole that is filled for certain. Of a longer wait its last `BUCKET_SECONDS` count: a broker that
        stands still says nothing of the source."""
        began = max(began, ended - BUCKET_SECONDS)
        self._bucket(began).spent_seconds += ended - began
        self._bucket(ended).holes += 1

    def is_too_high(self, now: float) -> bool:
        """Within the last minute more than 30 holes were filled, and that took more than half of the
        time."""
        while self.buckets and self.buckets[0].began <= now - WINDOW_SECONDS:
            self.buckets.popleft()
        if sum(each.holes for each in self.buckets) <= MOST_HOLES:
            return False
        return sum(each.spent_seconds for each in self.buckets) > MOST_SHARE * WINDOW_SECONDS

    def _bucket(self, at: float) -> HoleCostBucket:
        if not self.buckets or at >= self.buckets[-1].began + BUCKET_SECONDS:
            self.buckets.append(HoleCostBucket(at, 0, 0.0))
        return self.buckets[-1]
