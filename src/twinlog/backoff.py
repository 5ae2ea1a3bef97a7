"""The wait before a retry, and between two looks: one formula for all. Pure."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often each flow of a process does what all of them together do `per_second` times at most, but for
    `longest_seconds`: with many flows, each does it less often."""

    shortest_seconds: float
    longest_seconds: float = math.inf
    per_second: float

    def seconds(self, flows: int) -> float:
        """The time between two, in a process of so many flows.

        >>> pace = Pace(shortest_seconds=1.0, longest_seconds=3.0, per_second=40)
        >>> [pace.seconds(flows) for flows in (1, 40, 100, 1000)]
        [1.0, 1.0, 2.5, 3.0]
        """
        return min(self.longest_seconds, max(self.shortest_seconds, flows / self.per_second))


_MOST_DOUBLINGS = 30
"""Keeps the power finite; every longest wait is reached before."""


class Jitter(Enum):
    """Which part of the wait is random, so that clients that failed together do not retry together."""

    FULL = 1.0
    EQUAL = 0.5
    """Half of the wait is random."""
    NONE = 0.0


def backoff_seconds(
    failures: int, *, first: float, longest: float, jitter: Jitter = Jitter.NONE, random: float = 0.0
) -> float:
    """Seconds to wait after this many failures in a row: `first`, then twice as long each time, at most
    `longest`. `random` is in [0, 1)."""
    bound = min(first * 2.0 ** min(failures, _MOST_DOUBLINGS), longest)
    return bound * (1.0 - jitter.value + jitter.value * random)


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Growing waits for one operation that is retried."""

    initial_seconds: float
    max_seconds: float
    random: Callable[[], float]
    """Returns uniform numbers in [0, 1)."""
    jitter: Jitter = Jitter.FULL
    _failures: int = field(init=False, default=0)

    def next(self) -> float:
        """The next wait in seconds."""
        self._failures += 1
        return backoff_seconds(
            self._failures - 1,
            first=self.initial_seconds,
            longest=self.max_seconds,
            jitter=self.jitter,
            random=self.random(),
        )

    def reset(self) -> None:
        """Start again from `initial_seconds`; call it after a success."""
        self._failures = 0
