"""How long to wait for the answers on one connection, and how long a broker throttles it. Pure: takes `now`,
in seconds of the event loop.

A broker answers the requests of a connection one after the other, and reads nothing from it while it
throttles its client (KIP-219). So the time of the oldest request begins at the last event on the connection:
the request was written, the answer before it came, a throttle ended, or bytes moved.
"""

from dataclasses import dataclass

SLOWEST_BYTES_PER_SECOND = 4096
"""A connection that moves fewer bytes than this during a whole time-out makes no progress."""
LONGEST_THROTTLE_SECONDS = 60.0
"""A throttle is respected for at most this long; then the broker is asked again. Kafka's own throttles last
up to the window of its quotas: by default 10 s for bytes, 1 s for requests."""


def throttle_seconds(throttle_ms: int) -> float:
    """For how long to respect a throttle; 0 for none."""
    return min(max(throttle_ms, 0) / 1000, LONGEST_THROTTLE_SECONDS)


@dataclass(slots=True)
class Patience:
    """Invariant: `left_seconds` is above 0 as long as something moved within the last time-out."""

    timeout_seconds: float
    throttled_until: float = 0.0
    """The loop time at which the broker reads from the connection again."""
    _since: float = 0.0
    _moved_bytes: int = 0

    def answered(self, now: float, *, moved_bytes: int, throttle_ms: int) -> None:
        """An answer arrived. `moved_bytes`: sent and received since the connection was opened."""
        self._since = now
        self._moved_bytes = moved_bytes
        if throttle_ms > 0:
            self.throttled_until = max(self.throttled_until, now + throttle_seconds(throttle_ms))

    def is_throttled(self, now: float) -> bool:
        return now < self.throttled_until

    def left_seconds(self, now: float, *, sent_at: float, moved_bytes: int) -> float:
        """How much longer to wait for the answer to the oldest request; 0 or less: it will not arrive."""
        left = max(self._since, sent_at, self.throttled_until) + self.timeout_seconds - now
        if left > 0:
            return left
        if moved_bytes - self._moved_bytes < SLOWEST_BYTES_PER_SECOND * self.timeout_seconds:
            return left
        self._since = now
        self._moved_bytes = moved_bytes
        return self.timeout_seconds
