"""Whether a task may still write: the lease that its driver gave it, as the task sees it. Pure: takes `now`.

A process that was stopped for long finds old messages of its driver waiting when it continues, so the time of
the last message alone says nothing. The task also notes that it is awake; a pause between two notes that is
longer than the lease ends the lease for good, as somebody else may copy by now.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class DriverLease:
    """Times are monotonic seconds."""

    seconds: float
    _heard_at: float
    _awake_at: float = field(init=False)
    _is_over: bool = False

    def __post_init__(self) -> None:
        self._awake_at = self._heard_at

    def heard(self, now: float) -> None:
        """The driver said something."""
        if self.holds(now):
            self._heard_at = now

    def awake(self, now: float) -> None:
        """To be called far more often than once in a lease."""
        if self.holds(now):
            self._awake_at = now

    def holds(self, now: float) -> bool:
        """False for ever once the driver, or this process, was silent for the lease."""
        if now - min(self._heard_at, self._awake_at) >= self.seconds:
            self._is_over = True
        return not self._is_over
