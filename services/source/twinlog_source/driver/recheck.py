"""How often a flow checks whether it copies what it should.

Changes from configsync are handled at once; this check finds changes that nobody reports.
"""

from dataclasses import dataclass

RECHECK_SECONDS = 1.0
LONGEST_RECHECK_SECONDS = 3.0
RECHECKS_PER_SECOND = 40
"""How often all flows of a process together check; each flow does so every few seconds."""
LONGEST_QUIET_RECHECK_SECONDS = 10.0
QUIET_RECHECKS_PER_SECOND = 10
"""As `RECHECKS_PER_SECOND`, for flows whose tasks report nothing new."""


def recheck_seconds(flows: int) -> float:
    """Time between two looks of a flow, in a process of so many flows.

    >>> [recheck_seconds(flows) for flows in (1, 40, 100, 1000)]
    [1.0, 1.0, 2.5, 3.0]
    """
    return min(LONGEST_RECHECK_SECONDS, max(RECHECK_SECONDS, flows / RECHECKS_PER_SECOND))


def quiet_recheck_seconds(flows: int) -> float:
    """The same while no task tells anything new.

    >>> [quiet_recheck_seconds(flows) for flows in (1, 10, 40, 100)]
    [1.0, 1.0, 4.0, 10.0]
    """
    return min(LONGEST_QUIET_RECHECK_SECONDS, max(RECHECK_SECONDS, flows / QUIET_RECHECKS_PER_SECOND))


@dataclass(slots=True, kw_only=True)
class Recheck:
    """When a flow checks the next time."""

    flows: int
    """The number of flows in the process."""
    _looked_at: float = float("-inf")
    _news: int = 0
    """The value of `news` at the last check."""

    def is_due(self, now: float, *, news: int, is_changed: bool) -> bool:
        """Whether a check is due; it then counts as done. `now` is in monotonic seconds, `news` counts what
        the tasks have reported, `is_changed` means that configsync has reported a change."""
        seconds = quiet_recheck_seconds(self.flows) if news == self._news else recheck_seconds(self.flows)
        if now < self._looked_at + seconds and not is_changed:
            return False
        self._looked_at, self._news = now, news
        return True
