"""The distribution of a time over records: tasks collect it between two reports, the driver adds it up.

A batch counts with all its records at the time of its newest one, so the cost does not depend on the number
of records.

Minimum, maximum and mean of the last half minute, by topic. Pure: takes `now`.

Filled on the event loop, read from the thread that serves scrapes; `recent` changes nothing.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from twinlog.telemetry.metrics.spec import AGE_BUCKETS_SECONDS


class LatencyBucket(NamedTuple):
    records: int
    sum_seconds: float


NOTHING = LatencyBucket(0, 0.0)


@dataclass(slots=True)
class LatencyHistogram:
    """Empty at first. It has the buckets of the metrics, each with the number of its records and the sum of
    their times."""

    buckets: dict[int, LatencyBucket] = field(default_factory=dict)
    min_seconds: float = float("inf")
    max_seconds: float = 0.0

    def add(self, seconds: float, records: int) -> None:
        """Count records that took this long; a negative time (clock skew) counts as 0."""
        seconds = max(0.0, seconds)
        index = bisect_left(AGE_BUCKETS_SECONDS, seconds)
        count, total = self.buckets.get(index, NOTHING)
        self.buckets[index] = LatencyBucket(count + records, total + seconds * records)
        self.min_seconds = min(self.min_seconds, seconds)
        self.max_seconds = max(self.max_seconds, seconds)

    def add_batch(self, max_timestamp_ms: int, records: int, *, now_ms: int) -> None:
        """Count records with timestamps up to this one as arrived now. Ignored for records without
        timestamps."""
        if max_timestamp_ms >= 0:
            self.add((now_ms - max_timestamp_ms) / 1000, records)

    def merge(self, other: "LatencyHistogram") -> None:
        for index, (records, seconds) in other.buckets.items():
            count, total = self.buckets.get(index, NOTHING)
            self.buckets[index] = LatencyBucket(count + records, total + seconds)
        self.min_seconds = min(self.min_seconds, other.min_seconds)
        self.max_seconds = max(self.max_seconds, other.max_seconds)

    @property
    def records(self) -> int:
        return sum(count for count, _ in self.buckets.values())

    @property
    def sum_seconds(self) -> float:
        return sum(total for _, total in self.buckets.values())

    def samples(self, most: int) -> list[float]:
        """About `most` times with the same distribution, at least one for each bucket in use."""
        records = self.records
        scale = min(1.0, most / records) if records else 1.0
        return [
            total / count
            for count, total in self.buckets.values()
            for _ in range(max(1, round(count * scale)))
        ]

    def take(self) -> "LatencyHistogram | None":
        """Return what was collected since the last call; None when there is nothing."""
        if not self.buckets:
            return None
        taken = LatencyHistogram(self.buckets, self.min_seconds, self.max_seconds)
        self.buckets, self.min_seconds, self.max_seconds = {}, float("inf"), 0.0
        return taken


WINDOW_SECONDS = 30.0
"""The period of MM2's own metrics (metrics.sample.window.ms)."""


@dataclass(slots=True)
class LatencyWindows:
    _by_topic: dict[str, deque[tuple[float, LatencyHistogram]]] = field(default_factory=dict)

    def add(self, topic: str, histogram: LatencyHistogram, now: float) -> None:
        kept = self._by_topic.setdefault(topic, deque())
        while kept and kept[0][0] <= now - WINDOW_SECONDS:
            kept.popleft()
        kept.append((now, histogram))

    def forget(self, now: float) -> None:
        """Drop the topics without records in the window: deleted topics would stay otherwise."""
        for topic in [topic for topic, kept in self._by_topic.items() if kept[-1][0] <= now - WINDOW_SECONDS]:
            del self._by_topic[topic]

    def recent(self, now: float) -> dict[str, LatencyHistogram]:
        """The sum of the whole window; topics without records in it are absent."""
        found = {}
        for topic, kept in list(self._by_topic.items()):
            whole = LatencyHistogram()
            for at, histogram in list(kept):
                if at > now - WINDOW_SECONDS:
                    whole.merge(histogram)
            if whole.records:
                found[topic] = whole
        return found
