"""How long an epoch lasts, how often its end is considered, and on which cores. Pure: takes `now`.

A hand-over costs new connections and dozens of requests. So an epoch lasts as long as its plan
fits; from time to time the plan is compared with the best one.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from twinlog.backoff import Pace
from twinlog_source.partitions.planner import Load

REPLANS = Pace(shortest_seconds=0.25, longest_seconds=5.0, per_second=30)
"""How often a flow looks whether its epoch should end."""
DEMANDS = Pace(shortest_seconds=1.0, longest_seconds=5.0, per_second=20)
"""How often a flow looks whether it has outgrown its epoch."""
FEW_FLOWS = 4


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


# How Spark's cores are shared among the flows of a process, and which worker runs a task. Pure.
#
# A worker is a Python process that has a core of Spark for itself. A worker of its own costs a flow 45 MB,
# an event loop and threads: most of the cost of a flow with little to copy. So in a process with many flows,
# up to sixteen flows with little to copy share a worker.
#
# On a cluster, records that Spark changes need cores, too: one beside each worker, for the job through which
# they flow, and one of the process for records that fail, and for what it shows and compares itself.
#
# Invariant: every flow has a slot, none has more than it needs, and no core is without a slot while a flow
# needs another one; but for flows whose slots take two, to which an odd one is of no use.

FLOWS_OF_THEIR_OWN = 4
"""A process with at most this many flows gives each a worker, so that a failure of one does not affect the
others."""
FLOWS_PER_WORKER = 16
SMALL_BYTES_PER_SECOND = 1e6
SMALL_BACKLOG_RECORDS = 10_000

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Need:
    """What a flow would use."""

    slots: int
    is_small: bool = False
    """Its one task may share a worker."""
    has_pipes: bool = False
    """Spark changes records of it, with a core of its own beside each slot."""
    follows_cores: bool = field(default=False, repr=False)
    """The file does not limit its slots: there are not more than cores."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a worker that will stay."""

    large: int = 0
    small: int = 0


def is_small(load: Load) -> bool:
    """Whether a flow with this load may share a worker.

    >>> is_small(Load(bytes_per_second=1e3)), is_small(Load(bytes_per_second=1e7))
    (True, False)
    >>> is_small(Load(is_behind=True)), is_small(Load(first_backlog_records=1_000_000))
    (False, False)
    """
    return not (
        load.is_behind
        or load.bytes_per_second > SMALL_BYTES_PER_SECOND
        or load.first_backlog_records > SMALL_BACKLOG_RECORDS
    )


def workers_needed(needs: Mapping[K, Need]) -> int:
    """Workers with which every flow has what it needs.

    >>> workers_needed({"A": Need(3), "B": Need(1, is_small=True), "C": Need(1, is_small=True)})
    4
    """
    small = sum(need.is_small for need in needs.values())
    return sum(need.slots for need in needs.values() if not need.is_small) + math.ceil(
        small / FLOWS_PER_WORKER
    )


def cores_needed(needs: Mapping[K, Need]) -> int:
    """The same of cores.

    >>> cores_needed({"A": Need(3), "B": Need(1, is_small=True)})
    4
    >>> cores_needed({"A": Need(3, has_pipes=True)})
    7
    """
    pipes = sum(need.slots for need in needs.values() if need.has_pipes)
    return workers_needed(needs) + pipes + (pipes > 0)


def deal(wanted: Mapping[K, int], cores: int, *, costs: Mapping[K, int] | None = None) -> Mapping[K, int]:
    """Cores by need: equal parts, but for those that want less. `costs`: of each that counts for more than a
    core.

    >>> deal({"A": 8, "B": 8, "C": 1}, 6)
    {'C': 1, 'A': 2, 'B': 3}
    """
    left, dealt, cost_of = max(0, cores), dict[K, int](), costs or dict.fromkeys(wanted, 1)
    for each in sorted(wanted, key=lambda each: (wanted[each] * cost_of[each], str(each))):
        dealt[each] = min(wanted[each], left // (len(wanted) - len(dealt)) // cost_of[each])
        left -= dealt[each] * cost_of[each]
    return dealt


def share_cores(needs: Mapping[K, Need], cores: int) -> Mapping[K, int]:
    """The slots of each flow: equal parts of the cores, but for flows that need less.

    >>> share_cores({"A": Need(8), "B": Need(8), "C": Need(1)}, 6)
    {'C': 1, 'A': 2, 'B': 3}
    >>> share_cores({"A": Need(8), "B": Need(8), "C": Need(1)}, 2)
    {'C': 1, 'A': 1, 'B': 1}
    >>> share_cores({"A": Need(8, has_pipes=True), "B": Need(8)}, 8)
    {'B': 3, 'A': 2}
    """
    least = {each: replace(need, slots=1) for each, need in needs.items()}
    more = deal(
        {each: need.slots - 1 for each, need in needs.items()},
        cores - cores_needed(least),
        costs={each: 1 + need.has_pipes for each, need in needs.items()},
    )
    return {each: 1 + slots for each, slots in more.items()}


def affordable(needs: Mapping[K, Need], cores: int) -> Mapping[K, Need]:
    """What the flows need of workers so that each has the cores that it takes beside them.

    >>> affordable({"A": Need(8, has_pipes=True), "B": Need(8)}, 8)
    {'A': Need(slots=2, is_small=False, has_pipes=False), 'B': Need(slots=3, is_small=False, has_pipes=False)}
    """
    shares = share_cores(needs, cores)
    return {each: replace(need, slots=shares[each], has_pipes=False) for each, need in needs.items()}


def choose_worker(workers: Mapping[int, Tasks], *, is_small: bool) -> int:
    """The worker that a task joins; `workers` is not empty.

    >>> choose_worker({1: Tasks(large=1), 2: Tasks(), 3: Tasks(small=2)}, is_small=False)
    2
    >>> choose_worker({1: Tasks(large=1), 2: Tasks(), 3: Tasks(small=2)}, is_small=True)
    3
    >>> choose_worker({1: Tasks(large=2), 2: Tasks(large=1), 3: Tasks(small=16)}, is_small=True)
    3
    """

    def order(number: int) -> tuple[int, int, int]:
        tasks = workers[number]
        if is_small and not tasks.large and 0 < tasks.small < FLOWS_PER_WORKER:
            return -1, -tasks.small, number
        return tasks.large, tasks.small, number

    return min(workers, key=order)


# How often a flow checks whether it copies what it should.
#
# Changes from configsync are handled at once; this check finds changes that nobody reports.

RECHECKS = Pace(shortest_seconds=1.0, longest_seconds=3.0, per_second=40)
QUIET_RECHECKS = Pace(shortest_seconds=1.0, longest_seconds=30.0, per_second=2)
"""For flows all of whose partitions have tasks, which report nothing new."""


@dataclass(slots=True, kw_only=True)
class Recheck:
    """When a flow checks the next time."""

    flows: int
    """The number of flows in the process."""
    _looked_at: float = float("-inf")
    _news: int = 0
    """The value of `news` at the last check."""

    def is_due(self, now: float, *, news: int, is_whole: bool, is_changed: bool) -> bool:
        """Whether a check is due; it then counts as done. `now` is in monotonic seconds, `news` counts what
        the tasks have reported, `is_whole` means that each partition has a task, `is_changed` that configsync
        has reported a change.

        >>> recheck = Recheck(flows=10)
        >>> [recheck.is_due(now, news=1, is_whole=True, is_changed=False) for now in (0, 4, 5, 6)]
        [True, False, True, False]
        >>> [recheck.is_due(now, news=1, is_whole=False, is_changed=False) for now in (6, 6.5, 7)]
        [True, False, True]
        >>> recheck.is_due(8, news=2, is_whole=True, is_changed=False)
        True
        """
        pace = QUIET_RECHECKS if is_whole and news == self._news else RECHECKS
        if now < self._looked_at + pace.seconds(self.flows) and not is_changed:
            return False
        self._looked_at, self._news = now, news
        return True
