"""The delay of a flow by the ends of the source's logs, if no heartbeats may be written there. Pure."""

from dataclasses import dataclass

FRESH_MS = 30_000
"""What was read longer ago tells nothing about now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """What the source service knows of a flow's logs."""

    read_ms: int
    """When the ends were read."""
    waiting_since_ms: int | None
    """When the oldest record arrived that is not copied; None while everything is copied."""
    copied_delay_ms: int | None
    """From the timestamp of the newest record to its acknowledgement on the target; None before the first."""

    def is_fresh(self, now_ms: int) -> bool:
        return now_ms - self.read_ms <= FRESH_MS

    def delay_ms(self, now_ms: int) -> int | None:
        """The age of the oldest record that is not copied, else the delay of the newest copied one. None if
        nothing was copied since the service started and nothing waits."""
        if self.waiting_since_ms is not None:
            return max(0, now_ms - self.waiting_since_ms)
        return self.copied_delay_ms
