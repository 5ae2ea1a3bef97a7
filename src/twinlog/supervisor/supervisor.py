"""Decides which children run: one that ends is started again, and all end in order. Pure."""

import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twinlog.backoff import Backoff

EXIT_CLEAN = 0
EXIT_FAILED = 1
EXIT_BAD_CONFIG = 2
STABLE_SECONDS = 60.0
"""A child that ran this long starts with a fresh back-off."""
CRASHES_TO_REPORT = 3
"""Deaths in a row, each before STABLE_SECONDS, from which a child counts as crashing repeatedly."""
PROBE = "probe"
"""The child that ends with 0 once all others serve."""
_SIGNALLED = 128
_CLEAN_ENDS = (0, _SIGNALLED + signal.SIGTERM)
"""A child that does not handle signals yet ends by the SIGTERM itself: it had nothing to drain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """What the end of a child means, as a line of the log."""

    level: str
    event: str
    values: dict[str, Any]


@dataclass(slots=True)
class _Child:
    backoff: Backoff
    start_at: float
    """Monotonic seconds."""
    is_running: bool = False
    is_told: bool = False
    """Whether it got its SIGTERM."""
    started: float = 0.0
    crashes: int = 0


_ONE_REQUEST_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class Supervision:
    """The children of a run, by name."""

    names: Sequence[str]
    new_backoff: Callable[[], Backoff]
    grace_seconds: float
    """Longest time from the stop to a child's end."""
    exit_code: int = EXIT_CLEAN
    """0 when every child that ran at the stop ended with 0 by itself; 1 when one had to be killed or ended
    otherwise; 2 when one refused the configuration before all had served."""
    has_served: bool = False
    kill_at: float | None = None
    """When what still runs is killed; None = not stopping."""
    _children: dict[str, _Child] = field(init=False)

    def __post_init__(self) -> None:
        self._children = {name: _Child(self.new_backoff(), 0.0) for name in (*self.names, PROBE)}

    @property
    def is_stopping(self) -> bool:
        return self.kill_at is not None

    @property
    def is_over(self) -> bool:
        return self.is_stopping and not self.running

    @property
    def running(self) -> list[str]:
        return [name for name, child in self._children.items() if child.is_running]

    def stop(self, now: float) -> bool:
        """Begin the stop; asked again later, cut it short, and return True. What arrives within a second is
        one request: `timeout` signals the process, and then its group."""
        if self.kill_at is None:
            self.kill_at = now + self.grace_seconds
        elif now >= self.kill_at - self.grace_seconds + _ONE_REQUEST_SECONDS:
            self.exit_code = self.exit_code or EXIT_FAILED
            self.kill_at = now
            return True
        return False

    def to_start(self, now: float) -> list[str]:
        """The children to be started now; they count as running from then on."""
        if self.is_stopping:
            return []
        due = [
            name for name, child in self._children.items() if not child.is_running and child.start_at <= now
        ]
        for name in due:
            child = self._children[name]
            child.is_running, child.is_told, child.started = True, False, now
        return due

    def signals(self, now: float) -> list[tuple[str, signal.Signals]]:
        """What to send to whom: a SIGTERM once, and SIGKILL when the time is over."""
        if self.kill_at is None:
            return []
        if now >= self.kill_at:
            return [(name, signal.SIGKILL) for name in self.running]
        found = []
        for name in self.running:
            if not self._children[name].is_told:
                self._children[name].is_told = True
                found.append((name, signal.SIGTERM))
        return found

    def wait_seconds(self, now: float) -> float | None:
        """How long nothing has to be done, if no child ends and no signal comes."""
        if self.kill_at is not None:
            return max(0.0, self.kill_at - now) if now < self.kill_at else None
        next_start = min(
            (child.start_at for child in self._children.values() if not child.is_running), default=math.inf
        )
        return None if next_start == math.inf else max(0.0, next_start - now)

    def ended(self, name: str, exit_code: int, now: float) -> ChildEnd | None:
        """Take note of a child's end."""
        child = self._children[name]
        child.is_running = False
        if name == PROBE and (self.is_stopping or exit_code == EXIT_CLEAN):
            self.has_served = self.has_served or exit_code == EXIT_CLEAN
            child.start_at = math.inf
            return None
        values: dict[str, Any] = {"name": name, "exit_code": exit_code}
        if self.kill_at is not None:
            is_killed = now >= self.kill_at
            is_clean = exit_code in _CLEAN_ENDS and not is_killed
            self.exit_code = self.exit_code or (EXIT_CLEAN if is_clean else EXIT_FAILED)
            return ChildEnd(
                level="info" if is_clean else "error",
                event="service_stopped",
                values=values | {"killed": is_killed},
            )
        if exit_code == EXIT_BAD_CONFIG and not self.has_served and name != PROBE:
            # No restart would change that. Once all have served, the file or the machine has changed, and it
            # is better to try again beside the running children than to end them.
            self.exit_code = EXIT_BAD_CONFIG
            self.stop(now)
            return ChildEnd(level="error", event="service_refused_to_start", values=values)
        if now - child.started >= STABLE_SECONDS:
            child.backoff.reset()
            child.crashes = 0
        child.crashes += 1
        after_seconds = child.backoff.next()
        child.start_at = now + after_seconds
        keeps_crashing = child.crashes >= CRASHES_TO_REPORT
        values |= {"crashes_in_a_row": child.crashes, "restart_in_seconds": round(after_seconds, 2)}
        if exit_code == _SIGNALLED + signal.SIGKILL:
            values["cause"] = "killed by a user, or by the system because of its memory"
        return ChildEnd(
            level="error" if keeps_crashing else "warning",
            event="service_keeps_crashing" if keeps_crashing else "service_ended",
            values=values,
        )
