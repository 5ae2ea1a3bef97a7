"""How many bytes may be in flight to or from one peer: as many as pass within a moment. Pure.

It grows by a share of what passes in time, and halves when something took too long, timed out or was
throttled (AIMD, like TCP): so a slow line or a quota costs throughput, and causes no time-outs.
"""

from dataclasses import dataclass, field

_GROWTH_SHARE = 8
"""One part in this many of what passed in time is added to the window."""


@dataclass(slots=True, kw_only=True)
class Window:
    """Times are in seconds of any one clock. Invariant: `least_bytes <= size_bytes <= most_bytes`."""

    most_bytes: int
    least_bytes: int
    """What is tried however slow the peer is: about a batch, which is never split."""
    slow_seconds: float
    """What took longer was too much."""
    size_bytes: int = field(init=False)
    _shrunk_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.least_bytes = min(self.least_bytes, self.most_bytes)
        self.size_bytes = self.most_bytes

    def passed(self, passed_bytes: int, *, began: float, now: float) -> None:
        """This much was sent (or requested) at `began`, and has passed."""
        if now - began > self.slow_seconds:
            self.shrink(passed_bytes, began=began, now=now)
        elif passed_bytes * 2 >= self.size_bytes:
            grown = self.size_bytes + max(passed_bytes // _GROWTH_SHARE, 1)
            self.size_bytes = min(grown, self.most_bytes)

    def shrink(self, tried_bytes: int, *, began: float, now: float) -> None:
        """What began at this time was too much. Of several things in flight together the first one counts,
        because they met the same congestion."""
        if began < self._shrunk_at:
            return
        self._shrunk_at = now
        self.size_bytes = max(self.least_bytes, min(self.size_bytes, tried_bytes) // 2)
