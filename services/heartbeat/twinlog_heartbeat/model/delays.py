"""What the heartbeats of one flow prove: whether the path works, and its delay. Pure: every call takes the
time of the wall clock and of a steady clock, which is never set."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from twinlog.model import Flow

# The delay of a flow by the ends of the source's logs, if no heartbeats may be written there. Pure.

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


# Why a path is not known to be alive: all reasons that the heartbeat service itself gives.
#
# Reasons from a broker (KAFKA_TIMEOUT, TOPIC_UNAUTHORIZED, …) are passed on unchanged.


class PathReason(StrEnum):
    """Stable names of the API; docs/reasons.md documents them."""

    STARTING = "STARTING"
    """No heartbeat has been written and seen yet, shortly after the start."""
    HEARTBEATS_DISABLED = "HEARTBEATS_DISABLED"
    """emit.heartbeats.enabled=false for this flow: no heartbeats are written that would prove the path."""
    NOT_REPLICATED = "NOT_REPLICATED"
    """heartbeats.replication.enabled=false and the topic filter does not select heartbeats."""
    HEARTBEAT_MISSING = "HEARTBEAT_MISSING"
    """Heartbeats are written on the source and do not arrive on the target."""
    SAME_CLUSTER = "SAME_CLUSTER"
    """Both clusters of the flow have the same id."""


# Estimates how far the clock of another writer of heartbeats is ahead of ours, from both writers' heartbeats
# on one path. Pure: every call takes `now_ms`.

WINDOW_MS = 300_000
"""Only heartbeats of this time are compared, because clocks drift and are set."""


@dataclass(slots=True)
class LeastOfWindow:
    """The smallest value of the last `WINDOW_MS`."""

    _values: deque[tuple[int, int]] = field(default_factory=deque)
    """(at, value), with rising values: the first is the smallest."""

    def add(self, value: int, now_ms: int) -> None:
        while self._values and self._values[-1][1] >= value:
            self._values.pop()
        self._values.append((now_ms, value))

    def least(self, now_ms: int) -> int | None:
        """None without a value in the window. Changes nothing, because metrics call it from another
        thread."""
        return next((value for at, value in list(self._values) if at > now_ms - WINDOW_MS), None)


@dataclass(slots=True)
class SkewEstimate:
    """Heartbeats of both writers take the same path, so the fastest of each took about the same time. The
    rest of the difference between emission and arrival is the difference of the clocks.

    The precision is the variation of the path's delay.
    """

    _own: LeastOfWindow = field(default_factory=LeastOfWindow)
    _others: LeastOfWindow = field(default_factory=LeastOfWindow)

    def on_observed(self, *, emitted_ms: int, seen_ms: int, own: bool) -> None:
        (self._own if own else self._others).add(seen_ms - emitted_ms, seen_ms)

    def milliseconds(self, now_ms: int) -> int | None:
        """Positive: the other writer's clock is ahead. None while one of the two writers has no heartbeat."""
        own, others = self._own.least(now_ms), self._others.least(now_ms)
        return None if own is None or others is None else own - others


MAX_DELAY_WINDOW_MS = 60_000
"""`max_delay_ms` looks back this far."""
CLOCK_STEP_MS = 1_000
"""Both clocks of a host drift apart by less than this between two heartbeats. If they differ by more, the
wall clock was set."""


class PathState(Enum):
    ALIVE = "ALIVE"
    """A heartbeat arrived recently, however late."""
    SILENT = "SILENT"
    """Heartbeats are written and do not arrive."""
    UNKNOWN = "UNKNOWN"
    """The state is unknown, because no heartbeat could be written or read; the reason tells which."""


class Basis(Enum):
    """How a delay was measured."""

    HEARTBEATS = "HEARTBEATS"
    LOG_ENDS = "LOG_ENDS"
    """By the ends of the source's logs, as the source service reads them: no heartbeats can be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Why heartbeats cannot be written or read now."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDelay:
    """The delay of one flow at one moment."""

    flow: Flow
    state: PathState
    last_delay_ms: int | None
    """Of the newest heartbeat, from its emission on the source until it was seen on the target; None before
    the first."""
    max_delay_ms: int | None
    """The largest of the last minute; None when none arrived in it."""
    age_ms: int | None
    """Age of the newest heartbeat that arrived: grows while the path does not work."""
    emitted: int
    """Heartbeats written on the source since the start."""
    observed: int
    """Heartbeats seen on the target since the start."""
    reason: str
    """"" when ALIVE and without problems."""
    message: str
    clock_skew_ms: int | None = None
    """How far the clock of another writer on the path is ahead of ours, estimated; None = unknown."""
    basis: Basis = Basis.HEARTBEATS


@dataclass(slots=True, kw_only=True)
class DelayTracker:
    """The observations of one flow's heartbeats.

    The delay of our own heartbeat is the difference of two readings of this process's clock, so the clusters'
    clocks do not matter. Heartbeats of other writers on the same path (MM2's of the reverse flow) count only
    while we cannot write our own; their delay then includes the difference of the clocks, and is never below
    0.

    If no heartbeats can be written, the ends of the logs from the source service replace them.

    The path is SILENT once no heartbeat has arrived for `silent_after_ms` by the steady clock, because the
    timestamp of a heartbeat may come from another host, or from before the clock was set. `steady_ms` is a
    reading of that clock; by default it equals the wall clock.
    """

    flow: Flow
    started_ms: int
    """From when on a heartbeat can arrive, by the steady clock."""
    silent_after_ms: int
    emitted: int = 0
    observed: int = 0
    _newest_emitted_ms: int | None = None
    """The emission time of the newest heartbeat that arrived."""
    _newest_delay_ms: int | None = None
    _newest_seen_ms: int = 0
    """When it was seen, by the wall clock."""
    _newest_steady_ms: int = 0
    """The same by the steady clock."""
    _alive_at_ms: int | None = None
    """When the last heartbeat arrived that may be a new one, by the steady clock."""
    _write_blocker: Blocker | None = None
    _write_failed_ms: int = 0
    """When that was known, by the wall clock."""
    _watch_blocker: Blocker | None = None
    _read_blocker: Blocker | None = None
    _rules_blocker: Blocker | None = None
    _log_ends: LogEnds | None = None
    _skew: SkewEstimate = field(default_factory=SkewEstimate)
    _recent: deque[tuple[int, int]] = field(default_factory=deque)
    """(seen, delay) of the last minute, by the steady clock, with falling delays: the first is the
    maximum."""

    def on_rules(self, *, silent_after_ms: int, blocker: Blocker | None) -> None:
        """The rules of the flow, and why they prevent its proof; None when they do not."""
        self.silent_after_ms = silent_after_ms
        self._rules_blocker = blocker

    def on_emitted(self) -> None:
        """A heartbeat was written on the source and acknowledged."""
        self.emitted += 1
        self._write_blocker = None

    def on_write_blocker(self, blocker: Blocker, *, at_ms: int) -> None:
        """The source cluster did not accept a heartbeat; known at `at_ms`, by the wall clock."""
        self._write_blocker, self._write_failed_ms = blocker, at_ms

    def on_watch_blocker(self, blocker: Blocker | None) -> None:
        """The target could not be read (or can be again: None)."""
        self._watch_blocker = blocker

    def on_read_blocker(self, blocker: Blocker | None) -> None:
        """The copy of the heartbeats topic could not be read (or can be again: None)."""
        self._read_blocker = blocker

    def on_log_ends(self, ends: LogEnds) -> None:
        """The source service reported the ends of the flow's logs."""
        self._log_ends = ends

    def lacks_beats(self, steady_ms: int) -> bool:
        """Whether something prevents writing heartbeats, and no other writer's heartbeats prove the path."""
        return (self._rules_blocker or self._write_blocker) is not None and not self._is_alive(steady_ms)

    def on_observed(self, *, emitted_ms: int, seen_ms: int, own: bool, steady_ms: int | None = None) -> None:
        """A heartbeat was seen on the target. One that is older than the newest (the log is copied again, or
        the writer's clock was set back) counts, but does not measure a delay."""
        steady_ms = seen_ms if steady_ms is None else steady_ms
        self._skew.on_observed(emitted_ms=emitted_ms, seen_ms=seen_ms, own=own)
        if own and emitted_ms > self._write_failed_ms:
            # Another process of ours writes them now. Without such a heartbeat the error stays: perhaps
            # nobody can write them, and then their absence proves nothing.
            self._write_blocker = None
        if not own and self._write_blocker is None and self._rules_blocker is None:
            return
        self.observed += 1
        if not self._is_newer(emitted_ms, seen_ms, steady_ms):
            # They still arrive: without others they keep the path from becoming SILENT.
            if self._alive_at_ms is None or steady_ms - self._alive_at_ms > self.silent_after_ms // 2:
                self._alive_at_ms = steady_ms
            return
        self._alive_at_ms = self._newest_steady_ms = steady_ms
        self._newest_seen_ms = seen_ms
        delay_ms = max(0, seen_ms - emitted_ms)
        self._newest_emitted_ms = emitted_ms
        self._newest_delay_ms = delay_ms
        self._forget(steady_ms)
        while self._recent and self._recent[-1][1] <= delay_ms:
            self._recent.pop()
        self._recent.append((steady_ms, delay_ms))

    def _is_newer(self, emitted_ms: int, seen_ms: int, steady_ms: int) -> bool:
        """Whether it was written after the newest known one. The timestamp of that one proves nothing if our
        clock was set back since, or was behind it."""
        newest = self._newest_emitted_ms
        if newest is None or emitted_ms > newest or newest > seen_ms:
            return True
        set_by_ms = (seen_ms - self._newest_seen_ms) - (steady_ms - self._newest_steady_ms)
        return set_by_ms < -CLOCK_STEP_MS

    def report(self, now_ms: int, *, steady_ms: int | None = None, away: Blocker | None = None) -> FlowDelay:
        """The state at `now_ms`; `away`: one of the flow's clusters does not answer. Changes nothing, because
        metrics call it from another thread."""
        steady_ms = now_ms if steady_ms is None else steady_ms
        oldest_ms = steady_ms - MAX_DELAY_WINDOW_MS
        recent = (delay_ms for seen_ms, delay_ms in list(self._recent) if seen_ms > oldest_ms)
        by_ends = self._by_log_ends(now_ms, steady_ms, away)
        if by_ends is not None:
            return by_ends
        state, reason, message = self._judge(steady_ms, away)
        delay_ms = self._newest_delay_ms
        # Where none are to come, their age tells nothing.
        has_age = delay_ms is not None and (self._rules_blocker is None or state is PathState.ALIVE)
        return FlowDelay(
            flow=self.flow,
            state=state,
            last_delay_ms=delay_ms,
            max_delay_ms=next(recent, None),
            age_ms=(delay_ms or 0) + max(0, steady_ms - self._newest_steady_ms) if has_age else None,
            emitted=self.emitted,
            observed=self.observed,
            reason=reason,
            message=message,
            clock_skew_ms=self._skew.milliseconds(now_ms),
        )

    def _forget(self, steady_ms: int) -> None:
        while self._recent and self._recent[0][0] <= steady_ms - MAX_DELAY_WINDOW_MS:
            self._recent.popleft()

    def _is_alive(self, steady_ms: int) -> bool:
        return self._alive_at_ms is not None and steady_ms - self._alive_at_ms <= self.silent_after_ms

    def _by_log_ends(self, now_ms: int, steady_ms: int, away: Blocker | None) -> FlowDelay | None:
        """The state by the ends of the logs; None if heartbeats prove the path, or nothing recent is
        known."""
        ends, blocker = self._log_ends, self._rules_blocker or self._write_blocker
        if ends is None or blocker is None or away is not None or self._is_alive(steady_ms):
            return None
        if not ends.is_fresh(now_ms):
            return None
        waits_ms = 0 if ends.waiting_since_ms is None else now_ms - ends.waiting_since_ms
        return FlowDelay(
            flow=self.flow,
            state=PathState.SILENT if waits_ms > self.silent_after_ms else PathState.ALIVE,
            last_delay_ms=ends.delay_ms(now_ms),
            max_delay_ms=None,
            age_ms=None,
            emitted=self.emitted,
            observed=self.observed,
            reason=blocker.reason,
            message=f"no heartbeats, so the delay is computed from the ends of {self.flow.source}'s logs:"
            f" {blocker.message}",
            basis=Basis.LOG_ENDS,
        )

    def _judge(self, steady_ms: int, away: Blocker | None) -> tuple[PathState, str, str]:
        newest = self._alive_at_ms
        if self._is_alive(steady_ms):
            blocker = self._rules_blocker or self._write_blocker
            return PathState.ALIVE, blocker.reason if blocker else "", blocker.message if blocker else ""
        reading = away or self._watch_blocker or self._read_blocker
        blocker = reading or self._rules_blocker or self._write_blocker
        if blocker is not None:
            return PathState.UNKNOWN, blocker.reason, blocker.message
        if newest is None and (self.emitted == 0 or steady_ms - self.started_ms <= self.silent_after_ms):
            return PathState.UNKNOWN, PathReason.STARTING, "no heartbeat has been seen on the target yet"
        since = f"for {(steady_ms - newest) / 1000:.0f} s" if newest is not None else "since the start"
        message = (
            f"heartbeats are written on {self.flow.source}, but none has reached {self.flow.target} {since}"
        )
        return PathState.SILENT, PathReason.HEARTBEAT_MISSING, message
