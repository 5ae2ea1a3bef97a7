"""How long a partition has been behind, computed from observations of its log's end. Pure.

A busy partition always has records in flight, so "the time since there was a lag" would grow for ever.
Instead this is the age of the oldest record that is not copied: it arrived after the newest moment at which
the log was seen to end at or before the position. The precision is the interval of the observations, a few
seconds.

Without such a moment (the process began with a lag), the timestamp of the first record that is not copied is
used. Without that the age is unknown, which is not 0.
"""

from dataclasses import dataclass, field

MOST_SIGHTINGS = 32


@dataclass(slots=True, kw_only=True)
class LagTime:
    sightings: list[tuple[float, int]] = field(default_factory=list)
    """When the log was seen to end where, rising; all but the first are after the position."""
    _position: int = 0
    _caught_up: bool = False
    _written: tuple[int, float] | None = None
    """An offset at or before the position, and when its record was written."""

    def observe(self, position: int, end_offset: int, seen_at: float) -> None:
        """The partition is copied up to `position`; its log ended at `end_offset` at `seen_at`."""
        seen = self.sightings
        if seen and end_offset < seen[-1][1]:
            seen.clear()  # Another log of the same name, or a log that lost its tail.
            self._written = None
        if position < self._position:
            self._written = None
        self._position, self._caught_up = position, end_offset <= position
        if self._caught_up:
            seen.clear()
            self._written = None
        if not seen or end_offset > seen[-1][1]:
            seen.append((seen_at, end_offset))
        while len(seen) > 1 and seen[1][1] <= position:
            seen.pop(0)
        if len(seen) > MOST_SIGHTINGS:
            # Drop observations in the middle: a long lag is known less precisely.
            self.sightings = [*seen[:-1:2], seen[-1]]

    @property
    def needs_timestamp(self) -> bool:
        """Whether the partition is behind, and was never seen without a lag."""
        return self._is_unanchored and self._written is None

    def note_written(self, position: int, at: float) -> None:
        """The record at or before `position` was written at `at`; later records are hardly older."""
        if self._is_unanchored and position <= self._position:
            self._written = position, at

    def began(self, now: float) -> float | None:
        """The earliest time at which the oldest record that is not copied can have arrived; None when all are
        copied, or it is unknown."""
        if self._caught_up or not self.sightings:
            return None
        if not self._is_unanchored:
            return min(now, self.sightings[0][0])
        return None if self._written is None else min(now, self._written[1])

    def seconds(self, now: float) -> float | None:
        """The highest possible age of the oldest record that is not copied; 0 when all are copied, None when
        unknown."""
        if self._caught_up:
            return 0.0
        began = self.began(now)
        return None if began is None else now - began

    @property
    def _is_unanchored(self) -> bool:
        return not self._caught_up and bool(self.sightings) and self.sightings[0][1] > self._position
