"""A clock that moves when a test says so."""


class FakeClock:
    """`Clock` for tests: both readings stand still until `advance`."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000, monotonic: float = 0.0) -> None:
        self._now_ms = float(now_ms)
        self._monotonic = monotonic

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both readings on. Raises ValueError for going back: time does not, see `set_wall_clock`."""
        if seconds < 0:
            raise ValueError("a clock does not run backwards")
        self._now_ms += seconds * 1000
        self._monotonic += seconds

    def set_wall_clock(self, now_ms: int) -> None:
        """Change the wall clock only, forwards or backwards, as an operator or NTP may."""
        self._now_ms = float(now_ms)
