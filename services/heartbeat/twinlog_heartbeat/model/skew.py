"""How far the clock of another writer of heartbeats is ahead of ours, estimated from both kinds of beats on
one path. Pure: every call takes `now_ms`.
"""

from collections import deque
from dataclasses import dataclass, field

WINDOW_MS = 300_000
"""Only beats of so long are compared: clocks drift, and are set."""


@dataclass(slots=True)
class LeastOfWindow:
    """The least value of the last `WINDOW_MS`."""

    _values: deque[tuple[int, int]] = field(default_factory=deque)
    """(at, value), values rising from left to right: the first is the least."""

    def add(self, value: int, now_ms: int) -> None:
        while self._values and self._values[-1][1] >= value:
            self._values.pop()
        self._values.append((now_ms, value))

    def least(self, now_ms: int) -> int | None:
        """None without any in the window. Changes nothing: metrics ask from another thread."""
        return next((value for at, value in list(self._values) if at > now_ms - WINDOW_MS), None)


@dataclass(slots=True)
class SkewEstimate:
    """Both kinds of beats take the same path, so the quickest of each took about the same time: what else
    lies between their emission and their sight is the difference of the clocks.

    Accurate to the unevenness of the path; a beat of our own measures no clock but ours.
    """

    _own: LeastOfWindow = field(default_factory=LeastOfWindow)
    _others: LeastOfWindow = field(default_factory=LeastOfWindow)

    def on_observed(self, *, emitted_ms: int, seen_ms: int, own: bool) -> None:
        (self._own if own else self._others).add(seen_ms - emitted_ms, seen_ms)

    def milliseconds(self, now_ms: int) -> int | None:
        """Positive: the other writer's clock is ahead of ours. None while one kind of beat is missing."""
        own, others = self._own.least(now_ms), self._others.least(now_ms)
        return None if own is None or others is None else own - others
