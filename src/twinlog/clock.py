"""Time as a port: decisions take `now`, loops take a Clock, tests take a FakeClock."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, for timestamps that leave the process."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for intervals and deadlines."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
