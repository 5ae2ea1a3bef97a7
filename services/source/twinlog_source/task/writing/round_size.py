"""How many bytes one round may have: what the target takes in a moment. Pure.

With a quota or a slow line a large round lasts for minutes, and every other partition of the slot waits for
its end. So rounds are bounded by time: the first one is small, and each next one has at most twice as much,
and no more than has been seen to pass in `ROUND_SECONDS`.
"""

from dataclasses import dataclass

ROUND_MAX_BYTES = 8 << 20
ROUND_FIRST_BYTES = 1 << 20
ROUND_LEAST_BYTES = 256 << 10
"""What is tried however slow the target is: about a batch, which is never split."""
ROUND_SECONDS = 2.0
_TELLING_SHARE = 0.4
"""A round that is this full shows that more may be tried. (A fetch brings at most half of a round, less what
is cut off its last batch.) Less full rounds show nothing, because a quota lets bursts pass."""


GROWTH_SECONDS = 0.5
"""For how long rounds of one size have to be in time before a larger one is tried, because a quota lets
bursts pass."""


@dataclass(slots=True)
class RoundSize:
    """Invariant: `ROUND_LEAST_BYTES <= size_bytes <= ROUND_MAX_BYTES`."""

    size_bytes: int = ROUND_FIRST_BYTES
    _in_time_seconds: float = 0.0
    """How long full rounds of this size have taken, all in time."""

    def passed(self, round_bytes: int, seconds: float) -> None:
        """A round of this many bytes was committed after this time.

        A small round in time does not show how long a large one would take.
        """
        was_slow = seconds > ROUND_SECONDS and round_bytes > ROUND_LEAST_BYTES
        if was_slow or round_bytes >= _TELLING_SHARE * self.size_bytes:
            in_time = int(round_bytes * ROUND_SECONDS / max(seconds, 0.001))
            self._in_time_seconds += seconds
            if in_time < self.size_bytes or self._in_time_seconds >= GROWTH_SECONDS:
                self._become(min(in_time, 2 * self.size_bytes))

    def timed_out(self, round_bytes: int) -> None:
        """A round of this many bytes timed out."""
        self._become(min(self.size_bytes, round_bytes) // 2)

    def _become(self, size_bytes: int) -> None:
        self._in_time_seconds = 0.0
        self.size_bytes = min(max(size_bytes, ROUND_LEAST_BYTES), ROUND_MAX_BYTES)
