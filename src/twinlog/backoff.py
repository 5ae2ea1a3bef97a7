"""The wait before a retry: one formula for all. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

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
