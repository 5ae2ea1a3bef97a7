"""Limits in bytes per second for the task and for single topics, which can change at any time. Pure: takes
`now`.

A bucket may go into debt by one fetch: the task waits after a large batch, and the mean rate stays within the
limit. A fetch is also bounded by the limits, so that a debt is paid within a moment.

How much of the preserved copies may be read and not yet acknowledged. No I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.kafka.raw import FetchSizes
from twinlog_source.partitions.shares import LimitDebt

BUFFERED_BYTES = 64 << 20
"""The limit for all partitions: bytes that are held and not acknowledged."""
LEAST_SHARE_BYTES = 256 << 10
"""What one partition may have, and what one fetch asks of it, however many there are: for less than the usual
batch size a broker would send nothing."""
WHOLE_FETCH_BYTES = 1 << 20
"""What one fetch brings of a partition by default: with a larger share it is not limited."""
FEW = 8
"""While the buffer is full, this many partitions of which nothing is held are fetched at a time: what is held
may be waiting for a leader that does not answer."""
RESERVE_SHARE = 0.25
"""What those partitions may have together, as a share of the limit."""


@dataclass(slots=True)
class ReadShares:
    """Partitions with unacknowledged bytes have equal shares of the limit."""

    most_bytes: int = BUFFERED_BYTES
    held_bytes: int = 0
    """Of all partitions."""
    _active: int = 0
    """How many partitions have unacknowledged bytes."""

    def change(self, before_bytes: int, after_bytes: int) -> None:
        """Of one partition this much was held, and is held now."""
        self.held_bytes += after_bytes - before_bytes
        self._active += (after_bytes > 0) - (before_bytes > 0)

    @property
    def share_bytes(self) -> int:
        """What each partition with unacknowledged bytes may have."""
        return max(self.most_bytes // max(self._active, 1), LEAST_SHARE_BYTES)

    @property
    def is_full(self) -> bool:
        """Whether only a few partitions may be fetched, and only those of which nothing is held."""
        return self.held_bytes >= self.most_bytes

    @property
    def few(self) -> int:
        """How many that are."""
        return FEW if self.held_bytes < self.most_bytes * (1 + RESERVE_SHARE) else 0

    @property
    def room_bytes(self) -> int:
        return self.most_bytes - self.held_bytes

    @property
    def is_overfull(self) -> bool:
        """Whether what was made of earlier answers of the same poll is so much more than was fetched that
        others have to be fetched again."""
        return self.held_bytes >= 2 * self.most_bytes


BURST_SECONDS = 0.25
LEAST_PARTITION_BYTES = 256 << 10
"""The least that one fetch asks of a partition: for less than the usual batch size a broker would send
nothing."""


@dataclass(slots=True, kw_only=True)
class Bucket:
    bytes_per_second: float
    _tokens: float = 0.0
    _at: float | None = None

    def allows(self, now: float) -> bool:
        """Whether the next fetch may begin."""
        if self._at is not None:
            earned = (now - self._at) * self.bytes_per_second
            self._tokens = min(self._tokens + earned, self.burst_bytes)
        self._at = now
        return self._tokens >= 0

    def spend(self, size_bytes: int, now: float) -> None:
        self.allows(now)
        self._tokens -= size_bytes

    def change(self, bytes_per_second: float, now: float) -> None:
        """Change the rate from now on; the balance stays."""
        self.allows(now)
        self.bytes_per_second = bytes_per_second

    @property
    def burst_bytes(self) -> float:
        return self.bytes_per_second * BURST_SECONDS

    def owed_bytes(self, now: float) -> int:
        self.allows(now)
        return max(0, int(-self._tokens))

    @property
    def owed_seconds(self) -> float:
        """The time until the debt is paid."""
        return max(0.0, -self._tokens / self.bytes_per_second)


@dataclass(slots=True, kw_only=True)
class Throttle:
    _whole: Bucket | None = None
    _topics: dict[str, Bucket] = field(default_factory=dict)

    def set_limits(self, bytes_per_second: int, topics: Mapping[str, int], now: float) -> None:
        """Replace all limits; 0 = none."""
        self._whole = _changed(self._whole, bytes_per_second, now)
        limits = ((topic, _changed(self._topics.get(topic), limit, now)) for topic, limit in topics.items())
        self._topics = {topic: bucket for topic, bucket in limits if bucket is not None}

    def owed(self, now: float) -> LimitDebt:
        return LimitDebt(
            bytes=0 if self._whole is None else self._whole.owed_bytes(now),
            topic_bytes={
                topic: owed for topic, bucket in self._topics.items() if (owed := bucket.owed_bytes(now))
            },
        )

    def owe(self, debt: LimitDebt, now: float) -> None:
        """Take over what the tasks before owed."""
        if self._whole is not None:
            self._whole.spend(debt.bytes, now)
        for topic, owed in debt.topic_bytes.items():
            if topic in self._topics:
                self._topics[topic].spend(owed, now)

    @property
    def is_open(self) -> bool:
        """Whether there is no limit."""
        return self._whole is None and not self._topics

    def allows(self, topic: str, now: float) -> bool:
        """Whether a partition of the topic may be fetched now."""
        bucket = self._topics.get(topic)
        return (self._whole is None or self._whole.allows(now)) and (bucket is None or bucket.allows(now))

    def at_once(self, topic: str) -> int | None:
        """How many partitions of a topic with a backlog may be fetched together; None = all."""
        bucket = self._topics.get(topic)
        return None if bucket is None else max(1, int(bucket.burst_bytes // LEAST_PARTITION_BYTES))

    def sizes(self, most_bytes: int) -> FetchSizes:
        """The size limits of a fetch; `most_bytes` where no limit is lower."""
        whole = most_bytes if self._whole is None else max(1, int(self._whole.burst_bytes))
        return FetchSizes(
            max_bytes=min(whole, most_bytes),
            partition_bytes=dict.fromkeys(self._topics, LEAST_PARTITION_BYTES),
        )

    def spend(self, topic: str, size_bytes: int, now: float) -> None:
        """Report how much of a topic was fetched."""
        for bucket in (self._whole, self._topics.get(topic)):
            if bucket is not None:
                bucket.spend(size_bytes, now)


def _changed(bucket: Bucket | None, bytes_per_second: int, now: float) -> Bucket | None:
    if bytes_per_second <= 0:
        return None
    if bucket is None:
        return Bucket(bytes_per_second=bytes_per_second)
    bucket.change(bytes_per_second, now)
    return bucket
