"""How often a task and its driver exchange messages when there is nothing new. Pure.

Every message wakes threads on both sides, whatever it contains. With many flows in a process, that is much of
the cost of idling.
"""

LONGEST_ALIVE_SECONDS = 3.0
ALIVES_PER_LEASE = 4
LONGEST_REPORT_SECONDS = 3.0
"""Less than the silence after which a task's report counts as old (`standing.SILENT_SECONDS`)."""
SHORTEST_REPORT_SECONDS = 1.0
REPORTING_FLOWS_PER_SECOND = 10
_REPORTS_MISSED = 5
"""A task that misses fewer reports may only be slow."""


def alive_seconds(lease_seconds: float) -> float:
    """How long the driver says nothing at most: a task hears it several times in its lease.

    >>> [round(alive_seconds(lease), 1) for lease in (1, 5, 10, 60)]
    [0.2, 1.2, 2.5, 3.0]
    """
    return min(LONGEST_ALIVE_SECONDS, lease_seconds / ALIVES_PER_LEASE)


def report_seconds(flows: int) -> float:
    """Time between two reports of a task, in a process of so many flows.

    >>> [report_seconds(flows) for flows in (1, 10, 20, 100)]
    [1.0, 1.0, 2.0, 3.0]
    """
    return min(LONGEST_REPORT_SECONDS, max(SHORTEST_REPORT_SECONDS, flows / REPORTING_FLOWS_PER_SECOND))


LONGEST_WITHOUT_TASK_SECONDS = 120.0
"""How long a slot may be without a task: longer than Spark and a task that gets ready take, also while a
cluster does not answer."""


def frozen_seconds(stalled_seconds: float) -> float:
    """The silence after which a task counts as frozen; `stalled_seconds` is `twinlog.stalled.seconds`.

    >>> [frozen_seconds(stalled) for stalled in (1, 30)]
    [15.0, 30]
    """
    return max(stalled_seconds, _REPORTS_MISSED * LONGEST_REPORT_SECONDS)
