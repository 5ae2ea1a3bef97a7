"""How often a task and its driver exchange messages when there is nothing new. Pure.

Every message wakes threads on both sides, whatever it contains. With many flows in a process, that is much of
the cost of idling.
"""

from twinlog.backoff import Pace

LONGEST_ALIVE_SECONDS = 3.0
ALIVES_PER_LEASE = 4
LONGEST_REPORT_SECONDS = 3.0
"""Less than the silence after which a task's report counts as old (`standing.SILENT_SECONDS`)."""
REPORTS = Pace(shortest_seconds=1.0, longest_seconds=LONGEST_REPORT_SECONDS, per_second=10)
"""Of a task."""
_REPORTS_MISSED = 5
"""A task that misses fewer reports may only be slow."""


def alive_seconds(lease_seconds: float) -> float:
    """How long the driver says nothing at most: a task hears it several times in its lease.

    >>> [round(alive_seconds(lease), 1) for lease in (1, 5, 10, 60)]
    [0.2, 1.2, 2.5, 3.0]
    """
    return min(LONGEST_ALIVE_SECONDS, lease_seconds / ALIVES_PER_LEASE)


LONGEST_WITHOUT_TASK_SECONDS = 120.0
"""How long a slot may be without a task: longer than Spark and a task that gets ready take, also while a
cluster does not answer."""


def frozen_seconds(stalled_seconds: float) -> float:
    """The silence after which a task counts as frozen; `stalled_seconds` is `twinlog.stalled.seconds`.

    >>> [frozen_seconds(stalled) for stalled in (1, 30)]
    [15.0, 30]
    """
    return max(stalled_seconds, _REPORTS_MISSED * LONGEST_REPORT_SECONDS)
