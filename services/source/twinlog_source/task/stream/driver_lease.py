"""Whether a task may still write: the lease from its driver. Pure: takes `now`.

A process that was suspended finds old messages of its driver waiting when it continues, so the time of the
last message alone proves nothing. The task also notes at short intervals that it is awake. If two notes are
further apart than the lease, the lease is over for good, because another task may copy by now.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class DriverLease:
    """Times are in monotonic seconds."""

    seconds: float
    _heard_at: float
    _awake_at: float = field(init=False)
    _is_over: bool = False

    def __post_init__(self) -> None:
        self._awake_at = self._heard_at

    def heard(self, now: float) -> None:
        """A message of the driver arrived."""
        if self.holds(now):
            self._heard_at = now

    def awake(self, now: float) -> None:
        """Call it far more often than once per lease."""
        if self.holds(now):
            self._awake_at = now

    def holds(self, now: float) -> bool:
        """False for ever once the driver was silent, or this process suspended, for longer than the lease."""
        if now - min(self._heard_at, self._awake_at) >= self.seconds:
            self._is_over = True
        return not self._is_over
