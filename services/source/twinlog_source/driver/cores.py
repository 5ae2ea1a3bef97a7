"""How Spark's cores are shared among the flows of a process, and which worker runs a task. Pure.

A worker is a Python process that has a core of Spark for itself. A worker of its own costs a flow 45 MB, an
event loop and threads: most of the cost of a flow with little to copy. So in a process with many flows, up to
sixteen flows with little to copy share a worker.

Invariant: every flow has a slot, none has more than it needs, and no core is without a slot while a flow
needs another one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from twinlog_source.partitions.planner import Load

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


def cores_needed(needs: Mapping[K, Need]) -> int:
    """Cores with which every flow has what it needs.

    >>> cores_needed({"A": Need(3), "B": Need(1, is_small=True), "C": Need(1, is_small=True)})
    4
    """
    small = sum(need.is_small for need in needs.values())
    return sum(need.slots for need in needs.values() if not need.is_small) + math.ceil(
        small / FLOWS_PER_WORKER
    )


def share_cores(needs: Mapping[K, Need], cores: int) -> Mapping[K, int]:
    """The slots of each flow: equal parts of the cores, but for flows that need less.

    >>> share_cores({"A": Need(8), "B": Need(8), "C": Need(1)}, 6)
    {'C': 1, 'A': 2, 'B': 3}
    >>> share_cores({"A": Need(8), "B": Need(8), "C": Need(1)}, 2)
    {'C': 1, 'A': 1, 'B': 1}
    """
    left = max(0, cores - cores_needed({each: Need(1, need.is_small) for each, need in needs.items()}))
    shares: dict[K, int] = {}
    for each in sorted(needs, key=lambda each: (needs[each].slots, str(each))):
        more = min(needs[each].slots - 1, left // (len(needs) - len(shares)))
        shares[each] = 1 + more
        left -= more
    return shares


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
