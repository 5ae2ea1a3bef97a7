"""How long a partition has been behind, from what was seen of its log's end. Pure: takes `now`.

A busy partition always has records on their way, so "since when there was a lag" would grow for ever. What
counts is the age of the oldest record that is not copied: it came after the newest moment at which the log
ended at or before the position. As precise as reports are frequent: a second.
"""

from collections import deque
from dataclasses import dataclass, field

MOST_SIGHTINGS = 64


@dataclass(slots=True, kw_only=True)
class LagTime:
    _sightings: deque[tuple[float, int]] = field(default_factory=deque)
    """When the log was seen to end where, rising; all but the first end after the position."""
    _caught_up: bool = False

    def observe(
        self, position: int, end_offset: int, now: float, *, unchanged_until: float = float("-inf")
    ) -> None:
        """The partition is copied up to `position`, its log ends at `end_offset`; until `unchanged_until`
        both were as they were when last observed."""
        seen = self._sightings
        if seen and end_offset < seen[-1][1]:
            seen.clear()  # another log of the same name
        if seen and self._caught_up:
            seen[0] = max(seen[0][0], unchanged_until), seen[0][1]
        if not seen or end_offset > seen[-1][1]:
            seen.append((now, end_offset))
        while len(seen) > 1 and seen[1][1] <= position:
            seen.popleft()
        self._caught_up = end_offset <= position
        if len(seen) > MOST_SIGHTINGS:
            # Keep both ends: a long lag is known less precisely.
            kept = list(seen)
            self._sightings = deque([*kept[:-1:2], kept[-1]])

    def seconds(self, now: float) -> float:
        """Age of the oldest record that is not copied, at most; 0 when all are."""
        return max(0.0, now - self._sightings[0][0]) if self._sightings and not self._caught_up else 0.0
