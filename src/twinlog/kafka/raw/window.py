"""How many bytes may be on their way to or from one peer: as many as get through in a moment. Pure.

Grows by a part of what passes in time, and halves when something took too long, was given up or was throttled
(AIMD, as TCP does it): a slow line or a quota then costs throughput, and no time-out.
"""

from dataclasses import dataclass, field

_GROWTH_SHARE = 8
"""One part in so many of what passed in time is added to the window."""


@dataclass(slots=True, kw_only=True)
class Window:
    """Times are in seconds of any one clock. Invariant: `least_bytes <= size_bytes <= most_bytes`."""

    most_bytes: int
    least_bytes: int
    """What is tried however slow the peer is: no more than a batch or so, which goes whole in any case."""
    slow_seconds: float
    """What took longer than this was too much."""
    size_bytes: int = field(init=False)
    _shrunk_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.least_bytes = min(self.least_bytes, self.most_bytes)
        self.size_bytes = self.most_bytes

    def passed(self, passed_bytes: int, *, began: float, now: float) -> None:
        """So much was sent (or asked for) at `began`, and has got through."""
        if now - began > self.slow_seconds:
            self.shrink(passed_bytes, began=began, now=now)
        elif passed_bytes * 2 >= self.size_bytes:
            grown = self.size_bytes + max(passed_bytes // _GROWTH_SHARE, 1)
            self.size_bytes = min(grown, self.most_bytes)

    def shrink(self, tried_bytes: int, *, began: float, now: float) -> None:
        """What was begun then was too much. Of several things that were under way together the first one
        counts: they met the same congestion."""
        if began < self._shrunk_at:
            return
        self._shrunk_at = now
        self.size_bytes = max(self.least_bytes, min(self.size_bytes, tried_bytes) // 2)
