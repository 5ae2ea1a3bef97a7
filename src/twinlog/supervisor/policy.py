"""Decides what happens when a child ends: a restart, or giving up because it cannot work. Pure."""

from dataclasses import dataclass

from twinlog.service.waiting import Backoff

EXIT_BAD_CONFIG = 2
STABLE_SECONDS = 60.0
"""A child that ran this long starts with a fresh back-off."""
CRASHES_TO_REPORT = 3
"""Deaths in a row, each before STABLE_SECONDS, from which a child counts as crashing repeatedly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    after_seconds: float
    crashes_in_a_row: int

    @property
    def keeps_crashing(self) -> bool:
        return self.crashes_in_a_row >= CRASHES_TO_REPORT


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The child reported an invalid configuration, which no restart would change."""

    exit_code: int


class RestartPolicy:
    """The memory of one child.

    Exit code 2 (bad configuration) gives up, unless the child has served before: then the file or the machine
    has changed, and it is better to retry beside the running children than to end them.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._crashes = 0

    def ended(self, exit_code: int, *, ran_seconds: float, has_served: bool) -> Restart | GiveUp:
        if exit_code == EXIT_BAD_CONFIG and not has_served:
            return GiveUp(exit_code=exit_code)
        if ran_seconds >= STABLE_SECONDS:
            self._backoff.reset()
            self._crashes = 0
        self._crashes += 1
        return Restart(after_seconds=self._backoff.next(), crashes_in_a_row=self._crashes)
