"""How long an epoch lasts, and how often its end is considered. Pure: takes `now`.

A hand-over costs new connections and dozens of requests. So an epoch lasts as long as its plan
fits; from time to time the plan is compared with the best one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

REPLAN_POLL_SECONDS = 0.25
LONGEST_REPLAN_POLL_SECONDS = 5.0
REPLANS_PER_SECOND = 30
"""How often all flows of a process together compare plans; each flow does so every few seconds."""
FEW_FLOWS = 4
DEMAND_POLL_SECONDS = 1.0
LONGEST_DEMAND_POLL_SECONDS = 5.0
DEMANDS_PER_SECOND = 20
"""How often all flows of a process together check whether they have outgrown their epochs; each flow does so
every few seconds."""


@dataclass(slots=True, kw_only=True)
class EpochSpan:
    """All times are monotonic seconds."""

    began: float
    soonest_seconds: float
    """Before this time the plan is not compared with the best one."""
    longest_seconds: float
    """After this time the epoch ends in any case, but not before `soonest_seconds`."""
    _looks_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._looks_at = self.began + self.soonest_seconds

    def is_over(self, now: float, plan_holds: Callable[[], bool]) -> bool:
        """Whether the next epoch is due. `plan_holds` is called once in `soonest_seconds`."""
        if now >= self._ends_at:
            return True
        if now < self._looks_at:
            return False
        self._looks_at = now + self.soonest_seconds
        return not plan_holds()

    @property
    def _ends_at(self) -> float:
        return self.began + max(self.soonest_seconds, self.longest_seconds)


def spread_seconds(longest_seconds: float, flows: int, random: float) -> float:
    """How long an epoch lasts at most, in a process of so many flows: many that began together do not renew
    their connections together for ever.

    >>> spread_seconds(600.0, 4, 0.5), spread_seconds(600.0, 100, 0.5)
    (600.0, 525.0)
    """
    return longest_seconds * (1 - random / 4) if flows > FEW_FLOWS else longest_seconds


def replan_poll_seconds(flows: int) -> float:
    """How often a flow looks whether its epoch should end, in a process of so many flows.

    >>> [replan_poll_seconds(flows) for flows in (1, 6, 15, 120, 200)]
    [0.25, 0.25, 0.5, 4.0, 5.0]
    """
    return min(LONGEST_REPLAN_POLL_SECONDS, max(REPLAN_POLL_SECONDS, flows / REPLANS_PER_SECOND))


def demand_poll_seconds(flows: int) -> float:
    """How often a flow looks whether it has outgrown its epoch, in a process of so many flows.

    >>> [demand_poll_seconds(flows) for flows in (1, 20, 40, 100)]
    [1.0, 1.0, 2.0, 5.0]
    """
    return min(LONGEST_DEMAND_POLL_SECONDS, max(DEMAND_POLL_SECONDS, flows / DEMANDS_PER_SECOND))
