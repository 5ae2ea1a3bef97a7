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


# How long a partition has been behind, computed from observations of its log's end. Pure.
#
# A busy partition always has records in flight, so "the time since there was a lag" would grow for ever.
# Instead this is the age of the oldest record that is not copied: it arrived after the newest moment at
# which the log was seen to end at or before the position. The precision is the interval of the observations,
# a few seconds.
#
# Without such a moment (the process began with a lag), the timestamp of the first record that is not copied
# is used. Without that the age is unknown, which is not 0.

MOST_SIGHTINGS = 32


@dataclass(slots=True, kw_only=True)
class LagTime:
    sightings: list[tuple[float, int]] = field(default_factory=list)
    """When the log was seen to end where, rising; all but the first are after the position."""
    _position: int = 0
    _caught_up: bool = False
    _written: tuple[int, float] | None = None
    """An offset at or before the position, and when its record was written."""

    def observe(self, position: int, end_offset: int, seen_at: float) -> None:
        """The partition is copied up to `position`; its log ended at `end_offset` at `seen_at`."""
        seen = self.sightings
        if seen and end_offset < seen[-1][1]:
            seen.clear()  # Another log of the same name, or a log that lost its tail.
            self._written = None
        if position < self._position:
            self._written = None
        self._position, self._caught_up = position, end_offset <= position
        if self._caught_up:
            seen.clear()
            self._written = None
        if not seen or end_offset > seen[-1][1]:
            seen.append((seen_at, end_offset))
        while len(seen) > 1 and seen[1][1] <= position:
            seen.pop(0)
        if len(seen) > MOST_SIGHTINGS:
            # Drop observations in the middle: a long lag is known less precisely.
            self.sightings = [*seen[:-1:2], seen[-1]]

    @property
    def needs_timestamp(self) -> bool:
        """Whether the partition is behind, and was never seen without a lag."""
        return self._is_unanchored and self._written is None

    def note_written(self, position: int, at: float) -> None:
        """The record at or before `position` was written at `at`; later records are hardly older."""
        if self._is_unanchored and position <= self._position:
            self._written = position, at

    def began(self, now: float) -> float | None:
        """The earliest time at which the oldest record that is not copied can have arrived; None when all are
        copied, or it is unknown."""
        if self._caught_up or not self.sightings:
            return None
        if not self._is_unanchored:
            return min(now, self.sightings[0][0])
        return None if self._written is None else min(now, self._written[1])

    def seconds(self, now: float) -> float | None:
        """The highest possible age of the oldest record that is not copied; 0 when all are copied, None when
        unknown."""
        if self._caught_up:
            return 0.0
        began = self.began(now)
        return None if began is None else now - began

    @property
    def _is_unanchored(self) -> bool:
        return not self._caught_up and bool(self.sightings) and self.sightings[0][1] > self._position
