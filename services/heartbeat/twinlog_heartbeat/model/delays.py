"""What the beats of one flow prove: is the path alive, and how long does it take. Pure: every call takes
the time, of the wall clock and of one that is never set."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from twinlog.model import Flow
from twinlog_heartbeat.model.log_ends import LogEnds
from twinlog_heartbeat.model.reasons import Reason
from twinlog_heartbeat.model.skew import SkewEstimate

MAX_DELAY_WINDOW_MS = 60_000
"""`max_delay_ms` looks back this far."""
CLOCK_STEP_MS = 1_000
"""Both clocks of a host drift apart by less than this between two beats: by more, the wall clock was set."""


class PathState(Enum):
    ALIVE = "ALIVE"
    """A beat arrived lately, however late."""
    SILENT = "SILENT"
    """Beats are written and do not arrive."""
    UNKNOWN = "UNKNOWN"
    """Nothing can be said: no beat could be written or looked for; the reason says which."""


class Basis(Enum):
    """What a delay was measured by."""

    HEARTBEATS = "HEARTBEATS"
    LOG_ENDS = "LOG_ENDS"
    """The ends of the source's logs, as the source service reads them: no beats can be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Why beats cannot be written, or cannot be looked for, right now."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDelay:
    """The delay of one flow as of one moment."""

    flow: Flow
    state: PathState
    last_delay_ms: int | None
    """From the emission on the source to the sight on the target, newest beat; None before the first."""
    max_delay_ms: int | None
    """Largest of the last minute; None when none arrived in it."""
    age_ms: int | None
    """Since the emission of the newest beat that arrived: grows while the path is cut."""
    emitted: int
    """Beats written on the source since the start."""
    observed: int
    """Beats seen on the target since the start."""
    reason: str
    """"" when ALIVE and nothing is wrong."""
    message: str
    clock_skew_ms: int | None = None
    """How far the clock of another writer on the path is ahead of ours, estimated; None = not known."""
    basis: Basis = Basis.HEARTBEATS


@dataclass(slots=True, kw_only=True)
class DelayTracker:
    """The record of one flow's beats.

    A delay is the difference of two readings of one process's clock when the beat is our own, so the clocks
    of the clusters do not matter. Beats of others on the same path (MM2's of the reverse flow) only count as
    sign of life while we cannot write our own; their delay then includes the difference of the clocks and is
    never below 0.

    Where no beats can be written, what the source service knows of the ends of the logs stands in for them.

    The path is SILENT once no beat has arrived for `silent_after_ms`, on a clock that is never set: what a
    beat says of the time may come from another host, or from before the clock was set. `steady_ms` is a
    reading of that clock; left out: as the wall clock.
    """

    flow: Flow
    started_ms: int
    """On the steady clock."""
    silent_after_ms: int
    emitted: int = 0
    observed: int = 0
    _newest_emitted_ms: int | None = None
    """Emission time of the newest beat that arrived."""
    _newest_delay_ms: int | None = None
    _newest_seen_ms: int = 0
    """When it was seen, on the wall clock."""
    _newest_steady_ms: int = 0
    """And on the steady one."""
    _alive_at_ms: int | None = None
    """When the last beat arrived that may be a new one, on the steady clock."""
    _write_blocker: Blocker | None = None
    _watch_blocker: Blocker | None = None
    _read_blocker: Blocker | None = None
    _rules_blocker: Blocker | None = None
    _log_ends: LogEnds | None = None
    _skew: SkewEstimate = field(default_factory=SkewEstimate)
    _recent: deque[tuple[int, int]] = field(default_factory=deque)
    """(seen, delay) of the last minute, on the steady clock, delays falling from left to right: the first is
    the maximum."""

    def on_rules(self, *, silent_after_ms: int, blocker: Blocker | None) -> None:
        """The rules of the flow, and why they keep it from being proven; None when they do not."""
        self.silent_after_ms = silent_after_ms
        self._rules_blocker = blocker

    def on_emitted(self) -> None:
        """A beat was written on the source and acknowledged."""
        self.emitted += 1
        self._write_blocker = None

    def on_write_blocker(self, blocker: Blocker) -> None:
        """The source cluster did not take a beat."""
        self._write_blocker = blocker

    def on_watch_blocker(self, blocker: Blocker | None) -> None:
        """The target could not be read (or can be again: None)."""
        self._watch_blocker = blocker

    def on_read_blocker(self, blocker: Blocker | None) -> None:
        """The copy of the heartbeats topic could not be read (or can be again: None)."""
        self._read_blocker = blocker

    def on_log_ends(self, ends: LogEnds) -> None:
        """What the source service knows of the flow's logs."""
        self._log_ends = ends

    def lacks_beats(self, steady_ms: int) -> bool:
        """Whether something keeps beats from being written, and none of others prove the path."""
        return (self._rules_blocker or self._write_blocker) is not None and not self._is_alive(steady_ms)

    def on_observed(self, *, emitted_ms: int, seen_ms: int, own: bool, steady_ms: int | None = None) -> None:
        """A beat was seen on the target. Older ones than the newest (a log that is copied again, or the
        writer's clock was set back) count, and measure no delay."""
        steady_ms = seen_ms if steady_ms is None else steady_ms
        self._skew.on_observed(emitted_ms=emitted_ms, seen_ms=seen_ms, own=own)
        if not own and self._write_blocker is None and self._rules_blocker is None:
            return
        self.observed += 1
        if not self._is_newer(emitted_ms, seen_ms, steady_ms):
            # They arrive all the same: alone they must not let the path fall silent.
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
        """Whether it was written after the newest one that is known. The stamp of that one says nothing if
        our clock was set back since it was seen, or had not come so far."""
        newest = self._newest_emitted_ms
        if newest is None or emitted_ms > newest or newest > seen_ms:
            return True
        set_by_ms = (seen_ms - self._newest_seen_ms) - (steady_ms - self._newest_steady_ms)
        return set_by_ms < -CLOCK_STEP_MS

    def report(self, now_ms: int, *, steady_ms: int | None = None, away: Blocker | None = None) -> FlowDelay:
        """What is known at `now_ms`; `away`: one of the flow's clusters does not answer. Changes nothing:
        metrics ask from another thread."""
        steady_ms = now_ms if steady_ms is None else steady_ms
        oldest_ms = steady_ms - MAX_DELAY_WINDOW_MS
        recent = (delay_ms for seen_ms, delay_ms in list(self._recent) if seen_ms > oldest_ms)
        by_ends = self._by_log_ends(now_ms, steady_ms, away)
        if by_ends is not None:
            return by_ends
        state, reason, message = self._judge(steady_ms, away)
        delay_ms = self._newest_delay_ms
        return FlowDelay(
            flow=self.flow,
            state=state,
            last_delay_ms=delay_ms,
            max_delay_ms=next(recent, None),
            age_ms=None if delay_ms is None else delay_ms + max(0, steady_ms - self._newest_steady_ms),
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
        """What the ends of the logs say; None where beats prove the path, or nothing fresh is known."""
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
            message=f"the delay is from the ends and timestamps of {self.flow.source}'s logs, without"
            f" heartbeats: {blocker.message}",
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
            return PathState.UNKNOWN, Reason.STARTING, "no heartbeat has been seen on the target yet"
        since = f"for {(steady_ms - newest) / 1000:.0f} s" if newest is not None else "since the start"
        message = (
            f"heartbeats are written on {self.flow.source} but none has reached {self.flow.target} {since}: "
            f"`twinlog status` says whether {self.flow} is paused, stands still or does not copy heartbeats"
        )
        return PathState.SILENT, Reason.HEARTBEAT_MISSING, message
