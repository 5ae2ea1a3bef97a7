"""Which flows have their tasks in one Python worker. Pure.

A worker of its own costs a flow 45 MB, an event loop and threads: most of what a flow costs that has little
to copy. So where a process has many flows, those with little to copy share workers: sixteen flows one. A flow
that gets more to copy gets a worker of its own with its next epoch, and comes back when the epochs of its
group are renewed.

Invariant: which worker a flow belongs to never changes while the process lives, so the flows of a group are
renewed together, and end up in one worker whatever happened to them meanwhile.
"""

from twinlog_source.partitions.planner import Load

FLOWS_OF_THEIR_OWN = 4
"""So many flows of a process have a worker each: what happens to one is nothing to the others."""
FLOWS_PER_WORKER = 16
SMALL_BYTES_PER_SECOND = 1e6
SMALL_BACKLOG_RECORDS = 10_000
FIRST_RENEWAL_SECONDS = 120.0
"""Flows take minutes to begin where there are many, and those that began alone come together soon."""
STAGGER_SECONDS = 20.0
"""Between the renewals of two groups: each costs a burst of connections."""


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


def seconds_to_renewal(now: float, worker: int, *, longest_seconds: float, is_first: bool = False) -> float:
    """How long an epoch that begins now lasts at most: the whole group is renewed at one time. `now` is
    monotonic; 0 to `longest_seconds`. `is_first`: it is the flow's first one in this process.

    >>> [seconds_to_renewal(now, 0, longest_seconds=600.0) for now in (0.0, 590.0, 600.0)]
    [600.0, 10.0, 600.0]
    >>> seconds_to_renewal(590.0, 1, longest_seconds=600.0)
    30.0
    """
    if longest_seconds <= 0:
        return longest_seconds
    period_seconds = min(longest_seconds, FIRST_RENEWAL_SECONDS) if is_first else longest_seconds
    return period_seconds - (now - worker * STAGGER_SECONDS) % period_seconds
