"""The backlog of a flow, and whether producers still write: all of its partitions together. Pure.

Invariant: heartbeats do not count, because there are always new ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.standing import FlowFacts, PartitionStanding
from twinlog_source.partitions.states import PartitionState
from twinlog_source.reasons import HELD


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    records: int | None
    """Offsets that are not copied; None while unknown for a partition."""
    last_known_records: int
    """The last known number for each partition, added up; partitions that were never known add nothing."""
    unknown_partitions: int
    began_at: float | None
    """When the oldest record arrived that is not copied, in monotonic seconds; None = there is none, or
    unknown."""
    caught_up_in_seconds: float | None
    """Until the last partition has caught up at its present pace; None if that is unknown for one of them."""
    falls_behind_per_second: float
    """By how many records a second the lag grows of partitions that run, are not held on purpose, and have
    been behind for `BEHIND_SECONDS`; 0 while it does not grow."""
    source_grew_at: float | None
    """When a log of the source was last seen to grow, in monotonic seconds; None: not yet."""


BEHIND_SECONDS = 30.0
"""A lag that grows is trouble when its oldest record is older: the lag of a busy flow goes up and down all
the time."""


def backlog_of(told: Sequence[tuple[PartitionRow, PartitionStanding]], facts: FlowFacts) -> Backlog:
    data = [(row, standing) for row, standing in told if not row.is_heartbeats]
    are_known = facts.positions_known
    lags = [standing.lag_records for _, standing in data if standing.lag_records is not None]
    began = [at for row, _ in data if (at := row.lag_time.began(facts.now)) is not None]
    left = [each for _, standing in data if (each := standing.caught_up_in_seconds) is not None]
    ages_known = all(standing.lag_seconds is not None for _, standing in data)
    grows = sum(
        row.catch_up.shrinks_per_second(facts.now) or 0.0
        for row, standing in data
        if standing.state == PartitionState.RUNNING
        and standing.reason not in HELD
        and (standing.lag_seconds or 0.0) > facts.delay_seconds + BEHIND_SECONDS
    )
    return Backlog(
        records=sum(lags) if len(lags) == len(data) and are_known else None,
        last_known_records=sum(row.last_known_lag or 0 for row, _ in data),
        unknown_partitions=len(data) - len(lags),
        began_at=min(began) if began and ages_known else None,
        caught_up_in_seconds=max(left, default=0.0) if len(left) == len(data) and are_known else None,
        falls_behind_per_second=max(0.0, -grows),
        source_grew_at=max((row.grew_at for row, _ in data if row.grew_at is not None), default=None),
    )
