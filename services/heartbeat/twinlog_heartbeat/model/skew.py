"""Estimates how far the clock of another writer of heartbeats is ahead of ours, from both writers' heartbeats
on one path. Pure: every call takes `now_ms`."""

from collections import deque
from dataclasses import dataclass, field

WINDOW_MS = 300_000
"""Only heartbeats of this time are compared, because clocks drift and are set."""


@dataclass(slots=True)
class LeastOfWindow:
    """The smallest value of the last `WINDOW_MS`."""

    _values: deque[tuple[int, int]] = field(default_factory=deque)
    """(at, value), with rising values: the first is the smallest."""

    def add(self, value: int, now_ms: int) -> None:
        while self._values and self._values[-1][1] >= value:
            self._values.pop()
        self._values.append((now_ms, value))

    def least(self, now_ms: int) -> int | None:
        """None without a value in the window. Changes nothing, because metrics call it from another
        thread."""
        return next((value for at, value in list(self._values) if at > now_ms - WINDOW_MS), None)


@dataclass(slots=True)
class SkewEstimate:
    """Heartbeats of both writers take the same path, so the fastest of each took about the same time. The
    rest of the difference between emission and arrival is the difference of the clocks.

    The precision is the variation of the path's delay.
    """

    _own: LeastOfWindow = field(default_factory=LeastOfWindow)
    _others: LeastOfWindow = field(default_factory=LeastOfWindow)

    def on_observed(self, *, emitted_ms: int, seen_ms: int, own: bool) -> None:
        (self._own if own else self._others).add(seen_ms - emitted_ms, seen_ms)

    def milliseconds(self, now_ms: int) -> int | None:
        """Positive: the other writer's clock is ahead. None while one of the two writers has no heartbeat."""
        own, others = self._own.least(now_ms), self._others.least(now_ms)
        return None if own is None or others is None else own - others
