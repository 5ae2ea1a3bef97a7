"""How fast a backlog drains, from samples of the lag. Pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from twinlog.cli.status.rows import FlowRow

WINDOW_SECONDS = 60.0
SHORTEST_SECONDS = 5.0
"""Over less than this nothing is said."""

DRAINED, DRAINING, LOSING, STEADY, UNKNOWN = "DRAINED", "DRAINING", "LOSING", "STEADY", "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    state: str
    """DRAINED (lag 0), DRAINING, LOSING (the lag grows), STEADY, UNKNOWN."""
    records_per_second: float | None = None
    """By which the lag becomes smaller; negative: larger."""
    seconds_left: float | None = None
    """Until the lag is 0; None unless DRAINING."""


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    """Seconds of a monotonic clock."""
    lag: int | None
    """None: it was not known."""


def drain_of(samples: Iterable[Sample]) -> Drain:
    """By the first and the last known lag of the last minute.

    >>> drain_of([Sample(0.0, 1000), Sample(10.0, 500)])
    Drain(state='DRAINING', records_per_second=50.0, seconds_left=10.0)
    """
    told = list(samples)
    if not told or told[-1].lag is None:
        return Drain(state=UNKNOWN)
    newest = told[-1]
    if newest.lag == 0:
        return Drain(state=DRAINED)
    first = next(each for each in told if each.lag is not None and newest.at - each.at <= WINDOW_SECONDS)
    seconds = newest.at - first.at
    if first.lag is None or newest.lag is None or seconds < SHORTEST_SECONDS:
        return Drain(state=UNKNOWN)
    rate = (first.lag - newest.lag) / seconds
    if rate > 0:
        return Drain(state=DRAINING, records_per_second=rate, seconds_left=newest.lag / rate)
    return Drain(state=LOSING if rate < 0 else STEADY, records_per_second=rate)


def until_the_slowest(drain: Drain, seconds: float | None) -> Drain:
    """With the seconds that the source service tells, if it does, as `twinlog status` shows them: all
    partitions together may drain faster than the one that takes longest."""
    return replace(drain, seconds_left=seconds) if drain.state == DRAINING and seconds else drain


class LagHistory:
    """The samples that `drain_of` may need, of one flow."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> Drain:
        self._samples.append(sample)
        while sample.at - self._samples[0].at > WINDOW_SECONDS:
            self._samples.popleft()
        return drain_of(self._samples)


def drain_told(row: FlowRow) -> Drain:
    """By one answer of the source service, where there are no samples."""
    if row.lag_records == 0:
        return Drain(state=DRAINED)
    if row.falls_behind_per_second:
        return Drain(state=LOSING, records_per_second=-row.falls_behind_per_second)
    if row.caught_up_in_seconds is not None:
        return Drain(state=DRAINING, seconds_left=row.caught_up_in_seconds)
    return Drain(state=UNKNOWN)
