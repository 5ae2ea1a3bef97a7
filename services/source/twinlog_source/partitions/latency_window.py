"""Minimum, maximum and mean of the last half minute, by topic. Pure: takes `now`.

Filled on the event loop, read from the thread that serves scrapes; `recent` changes nothing.
"""

from collections import deque
from dataclasses import dataclass, field

from twinlog_source.partitions.latency import LatencyHistogram

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
