"""Limits in bytes per second, for the task and for single topics, changed at any time. Pure: takes `now`.

A bucket may go into debt by one fetch, so a large fetch is paid for by waiting after it, and the mean rate
holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

BURST_SECONDS = 0.25


@dataclass(slots=True, kw_only=True)
class Bucket:
    bytes_per_second: float
    _tokens: float = 0.0
    _at: float | None = None

    def allows(self, now: float) -> bool:
        """Whether the next fetch may begin."""
        if self._at is not None:
            earned = (now - self._at) * self.bytes_per_second
            self._tokens = min(self._tokens + earned, self.bytes_per_second * BURST_SECONDS)
        self._at = now
        return self._tokens >= 0

    def spend(self, size_bytes: int, now: float) -> None:
        self.allows(now)
        self._tokens -= size_bytes


@dataclass(slots=True, kw_only=True)
class Throttle:
    _whole: Bucket | None = None
    _topics: dict[str, Bucket] = field(default_factory=dict)

    def set_limits(self, bytes_per_second: int, topics: Mapping[str, int]) -> None:
        """Replace all limits; 0 = none."""
        self._whole = Bucket(bytes_per_second=bytes_per_second) if bytes_per_second > 0 else None
        self._topics = {topic: Bucket(bytes_per_second=limit) for topic, limit in topics.items() if limit > 0}

    def allows(self, topic: str, now: float) -> bool:
        """Whether a partition of the topic may be fetched now."""
        bucket = self._topics.get(topic)
        return (self._whole is None or self._whole.allows(now)) and (bucket is None or bucket.allows(now))

    def spend(self, topic: str, size_bytes: int, now: float) -> None:
        """Say how much was fetched of a topic."""
        for bucket in (self._whole, self._topics.get(topic)):
            if bucket is not None:
                bucket.spend(size_bytes, now)
