"""Whether filling the holes of one partition costs too much. Pure: takes `now`.

Each hole stops the partition until it is filled, for several round trips. A topic with many small
transactions on a distant target would spend its time with that, and lag more and more.
"""

from collections import deque
from dataclasses import dataclass, field

WINDOW_SECONDS = 60.0
"""Long enough that a broker which pauses for a moment does not decide: the decision is final."""
BUCKET_SECONDS = 5.0
MOST_SHARE = 0.5
MOST_HOLES = 30
"""A distant target, which needs several round trips for each hole, fills more than this in half of the
window."""


@dataclass(slots=True)
class HoleCostBucket:
    """The holes that began within `BUCKET_SECONDS`. Times are monotonic seconds."""

    began: float
    holes: int
    spent_seconds: float


@dataclass(slots=True)
class HoleCost:
    """Times are monotonic seconds."""

    buckets: deque[HoleCostBucket] = field(default_factory=deque)
    """The oldest comes first."""

    def filled(self, began: float, ended: float) -> None:
        """A hole was filled for certain. Of a longer time only `BUCKET_SECONDS` count: a broker that pauses
        says nothing about the source."""
        began = max(began, ended - BUCKET_SECONDS)
        self._bucket(began).spent_seconds += ended - began
        self._bucket(ended).holes += 1

    def is_too_high(self, now: float) -> bool:
        """Whether more than 30 holes were filled within the last minute, and that took more than half of the
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
