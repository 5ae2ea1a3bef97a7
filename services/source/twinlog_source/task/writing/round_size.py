"""How many bytes one round may hold: what gets through to the target in a moment. Pure.

A quota or a slow line makes a large round last for minutes, and every other partition of the slot waits for
its end. So a round is bounded by time: the first one is small, and each next one holds at most twice as much,
and no more than has been seen to get through in `ROUND_SECONDS`.
"""

from dataclasses import dataclass

ROUND_MAX_BYTES = 8 << 20
ROUND_FIRST_BYTES = 1 << 20
ROUND_LEAST_BYTES = 256 << 10
"""What is tried however slow the target is: about a batch, which goes whole in any case."""
ROUND_SECONDS = 2.0
_TELLING_SHARE = 0.4
"""A round that is so full shows that more may be tried. A fetch brings half of a round at most, less what
is cut off its last batch. Less full ones show nothing: a quota lets a burst pass."""


GROWTH_SECONDS = 0.5
"""Rounds of one size have to be in time for so long before a larger one is tried: a quota lets a burst
pass."""


@dataclass(slots=True)
class RoundSize:
    """Invariant: `ROUND_LEAST_BYTES <= size_bytes <= ROUND_MAX_BYTES`."""

    size_bytes: int = ROUND_FIRST_BYTES
    _in_time_seconds: float = 0.0
    """How long rounds that say something about this size have taken, all in time."""

    def passed(self, round_bytes: int, seconds: float) -> None:
        """A round of so many bytes was committed after so long.

        A small round in time shows nothing of what a large one would take.
        """
        was_slow = seconds > ROUND_SECONDS and round_bytes > ROUND_LEAST_BYTES
        if was_slow or round_bytes >= _TELLING_SHARE * self.size_bytes:
            in_time = int(round_bytes * ROUND_SECONDS / max(seconds, 0.001))
            self._in_time_seconds += seconds
            if in_time < self.size_bytes or self._in_time_seconds >= GROWTH_SECONDS:
                self._become(min(in_time, 2 * self.size_bytes))

    def timed_out(self, round_bytes: int) -> None:
        """A round of so many bytes was given up for time."""
        self._become(min(self.size_bytes, round_bytes) // 2)

    def _become(self, size_bytes: int) -> None:
        self._in_time_seconds = 0.0
        self.size_bytes = min(max(size_bytes, ROUND_LEAST_BYTES), ROUND_MAX_BYTES)
