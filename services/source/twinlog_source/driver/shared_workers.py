"""Which flows run their tasks in one Python worker. Pure.

A worker of its own costs a flow 45 MB, an event loop and threads: most of the cost of a flow with little to
copy. So in a process with many flows, up to sixteen flows with little to copy share a worker. A flow that
gets more to copy gets its own worker with its next epoch, and returns when the epochs of its group are
renewed.

Invariant: the worker of a flow never changes while the process lives. So the flows of a group are renewed
together, and end up in one worker whatever happened before.
"""

import math

from twinlog_source.partitions.planner import Load

FLOWS_OF_THEIR_OWN = 4
"""A process with at most this many flows gives each a worker, so that a failure of one does not affect the
others."""
FLOWS_PER_WORKER = 16
SMALL_BYTES_PER_SECOND = 1e6
SMALL_BACKLOG_RECORDS = 10_000
FIRST_RENEWAL_SECONDS = 120.0
"""Flows that began alone are brought together after this time."""
BEGINNING_SECONDS = 240.0
"""In a process with many flows it takes minutes until all have begun. An epoch that begins earlier than this
lasts only to the next such renewal."""
STAGGER_SECONDS = 20.0
"""Time between the renewals of two groups, because each causes a burst of connections."""


def shared_worker(index: int, flows: int) -> int | None:
    """The worker of the flow at this place among the flows of the process; None = one of its own.

    >>> [shared_worker(index, 40) for index in (0, 15, 16, 39)]
    [0, 0, 1, 2]
    >>> shared_worker(0, 4) is None
    True
    """
    return None if flows <= FLOWS_OF_THEIR_OWN else index // FLOWS_PER_WORKER


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


def seconds_to_renewal(
    now: float, worker: int, *, soonest_seconds: float, longest_seconds: float, age_seconds: float
) -> float:
    """How long an epoch that begins now lasts at most: the whole group is renewed at one time, and no epoch
    sooner than after `soonest_seconds`. `now` is monotonic, `age_seconds` that of the process; 0 to
    `longest_seconds`, or `soonest_seconds` more.

    >>> epochs = {"soonest_seconds": 30.0, "longest_seconds": 600.0, "age_seconds": 1000.0}
    >>> [seconds_to_renewal(now, 0, **epochs) for now in (0.0, 560.0, 590.0)]
    [600.0, 40.0, 610.0]
    >>> seconds_to_renewal(580.0, 1, **epochs)
    40.0
    """
    if longest_seconds <= 0:
        return longest_seconds
    is_beginning = age_seconds < BEGINNING_SECONDS
    period_seconds = min(longest_seconds, FIRST_RENEWAL_SECONDS) if is_beginning else longest_seconds
    left_seconds = period_seconds - (now - worker * STAGGER_SECONDS) % period_seconds
    too_soon_seconds = soonest_seconds - left_seconds
    return left_seconds + period_seconds * max(0, math.ceil(too_soon_seconds / period_seconds))
