"""The state of one partition that users see: state, reason and lag. Pure.

RPCs, metrics and watches all call `standing_of`, so they cannot differ. A task's report counts while the task
is heard; what the driver itself knows (positions, log ends, pauses) always counts.

Invariant: unknown is None, never 0.

The states of a partition, as operators know them.

The backlog of a flow, and whether producers still write: all of its partitions together. Pure.

Invariant: heartbeats do not count, because there are always new ones.

Up to where a translated copy has the source's offsets. Pure.

It had them until it became translated. Where either log lost its tail since then, other records are at those
offsets now, so an offset from there on is not the same any more.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition
from twinlog_source.log.facts import CopyFact
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.orders import PartitionState
from twinlog_source.partitions.rows import PartitionRow, Shortened
from twinlog_source.reasons import HELD, STARTING, PartitionReason

SILENT_SECONDS = 5.0
"""Tasks report every second; a task that was silent for this long has ended or lost its connection."""
END_VALID_SECONDS = 15.0
"""A log end that was read longer ago does not tell the present lag."""

TARGET_QUOTA = f"a quota of the target delays the copy ({PartitionReason.TARGET_SLOW})"
QUOTA_SECONDS = 15.0
"""Brokers throttle for moments, again and again; for this long a quota counts as the cause of a delay."""

SLOW_SECONDS = 3.0
"""A partition without progress for this long waits for a quota of the source that delayed its task."""
TRIES_SECONDS = 20.0
"""For so long, which is more than a request may take, a partition without progress waits for what its task
waited for before it tried again."""

KEEPS_UP_SECONDS = 2.0
"""A partition whose oldest uncopied record is younger than this counts as caught up; a busy one is never more
than that."""

UNANSWERED = frozenset((PartitionReason.TARGET_SLOW, "LEADER_UNAVAILABLE"))
"""A round may be under way that the target has not answered."""
STANDS = frozenset((PartitionState.STALLED, PartitionState.FAULTED))
_MAY_STALL = frozenset((PartitionState.RUNNING, PartitionState.BACKOFF, PartitionState.WAITING))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFacts:
    """What applies to all partitions of a flow at one moment."""

    now: float
    """Monotonic seconds."""
    now_ms: int
    """The same moment as wall-clock time."""
    idle_reason: str
    """Why the flow as a whole does not copy; empty while it does."""
    idle_message: str
    positions_known: bool
    """Whether the table has the newest positions: this process moves them, or follows the owner."""
    is_owned: bool
    """Whether this process copies the flow. Otherwise the faults that it knows are old."""
    stalled_seconds: float
    delay_seconds: float
    """For how long records are held back on purpose."""
    source: str
    """Alias of the source cluster."""
    is_paused: Callable[[TopicPartition], bool]
    is_limited: Callable[[TopicPartition], bool]
    """Whether an operator's limit applies to it."""
    heard_at: Callable[[int], float | None]
    """When the task of each slot last reported."""
    source_throttled_at: Callable[[int], float | None]
    """When a quota of the source last delayed the task of each slot."""
    target_throttled_at: Callable[[int], float | None]
    slow_slots: frozenset[int]
    """Slots that wait for the target with some of their partitions."""

    def wall_ms(self, at: float) -> int:
        """The wall-clock milliseconds of a moment in monotonic seconds."""
        return self.now_ms - int((self.now - at) * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStanding:
    """The state of a partition now, as users see it."""

    state: PartitionState
    reason: str = ""
    message: str = ""
    lag_records: int | None = None
    """Offsets from the position to the end of what may be copied; None = unknown."""
    lag_seconds: float | None = None
    """The age of the oldest record that is not copied; None = unknown."""
    caught_up_in_seconds: float | None = None
    """0 = it has caught up, or keeps up with producers; None = unknown, or never at this pace."""
    stalled_since: float | None = None
    """When a STALLED partition last made progress, in monotonic seconds."""


def idle_words(
    problem: TwinlogError | None, *, is_copied: bool, is_owned: bool, has_partitions: bool, was_copied: bool
) -> tuple[str, str]:
    """Reason and message for a flow that does not copy, whose epoch may have ended with `problem`; empty
    while it copies. `was_copied`: since this process took it over."""
    if problem is not None:
        return problem.reason, str(problem)
    if is_copied:
        return "", ""
    if not is_owned:
        return STARTING, "this process is taking over the flow"
    if not has_partitions:
        return (
            PartitionReason.NO_TOPICS,
            "no topic of this flow can be copied yet: `twinlog topics` shows why",
        )
    return STARTING, f"the {'next' if was_copied else 'first'} epoch is getting ready"


def lag_of(row: PartitionRow, facts: FlowFacts) -> int | None:
    """Offsets that are not copied; None when the position or the log's end is not known now."""
    if row.position is None or row.end is None or not facts.positions_known:
        return None
    return None if facts.now - row.end_at > END_VALID_SECONDS else max(0, row.end - row.position)


def standing_of(row: PartitionRow, facts: FlowFacts) -> PartitionStanding:
    lag = lag_of(row, facts)
    lag_seconds = None if lag is None else row.lag_time.seconds(facts.now)
    state, reason, message = _word(row, facts)
    may_stall = state in _MAY_STALL and reason not in HELD
    since = row.stall.since(facts.stalled_seconds, now=facts.now) if may_stall else None
    if since is not None:
        reason, message = _waits_for(row, facts, state, reason, message)
        state = PartitionState.STALLED
        # Without the number of seconds, which would grow: watchers get changes only.
        message = f"no progress for {facts.stalled_seconds:g} s or longer: {message}"
    elif state == PartitionState.RUNNING and not reason and row.open_transaction:
        reason, message = PartitionReason.OPEN_TRANSACTION, row.open_transaction
    elif state == PartitionState.RUNNING and not reason and row.waits_for_transaction:
        message = "waits for an open transaction of the source"
    elif (
        (state == PartitionState.RUNNING and not reason and not message)
        and _held_by_source_quota(row, facts)
        and row.stall.since(SLOW_SECONDS, now=facts.now) is not None
    ):
        reason, message = PartitionReason.QUOTA, f"a quota of {facts.source} delays the copy"
    elif reason == PartitionReason.NO_TASK:
        if row.slot is None:
            reason, message = STARTING, "the next epoch copies it, too"
        elif facts.heard_at(row.slot) is None:
            # Its epoch has just begun: a task that never reports becomes STALLED, or its epoch fails.
            reason, message = STARTING, "its task has not reported yet"
    return PartitionStanding(
        state=state,
        reason=reason,
        message=message,
        lag_records=lag,
        lag_seconds=lag_seconds,
        caught_up_in_seconds=_caught_up_in(row, state, lag, lag_seconds, facts),
        stalled_since=since,
    )


def _caught_up_in(
    row: PartitionRow, state: PartitionState, lag: int | None, lag_seconds: float | None, facts: FlowFacts
) -> float | None:
    if lag == 0:
        return 0.0
    if lag is None or state != PartitionState.RUNNING:
        return None
    if lag_seconds is not None and lag_seconds <= KEEPS_UP_SECONDS + facts.delay_seconds:
        return 0.0
    return row.catch_up.seconds(lag, facts.now)


def _word(row: PartitionRow, facts: FlowFacts) -> tuple[PartitionState, str, str]:
    """State, reason and message, before the check for progress."""
    if row.blocker is not None and facts.is_owned:
        is_fault = row.blocker.reason not in (PartitionReason.COMPARING, STARTING)
        state = PartitionState.FAULTED if is_fault else PartitionState.WAITING
        return state, row.blocker.reason, row.blocker.message
    report = row.report
    is_faulted = report is not None and report.state == PartitionState.FAULTED and facts.is_owned
    if report is not None and (is_faulted or _is_heard(row, facts)):
        if report.reason == PartitionReason.TARGET_SLOW and _held_by_target_quota(row, facts):
            return report.state, PartitionReason.QUOTA, TARGET_QUOTA
        return report.state, report.reason, report.message
    if facts.is_paused(row.partition):
        return PartitionState.PAUSED, PartitionReason.PAUSED_BY_OPERATOR, ""
    if facts.idle_reason:
        return PartitionState.WAITING, facts.idle_reason, facts.idle_message
    return PartitionState.WAITING, PartitionReason.NO_TASK, "no Spark task copies it now"


def _is_heard(row: PartitionRow, facts: FlowFacts) -> bool:
    heard_at = None if row.slot is None else facts.heard_at(row.slot)
    return heard_at is not None and facts.now - heard_at <= SILENT_SECONDS


def told_target_end(row: PartitionRow, facts: FlowFacts, *, exactly_once: bool) -> int | None:
    """The end of what the flow has written to a copy, as others may count on it: 0 = nothing; None = not
    known. A task that is silent, or whose last write is not answered, may have written meanwhile."""
    is_sure = exactly_once and _is_heard(row, facts) and row.task_reason not in UNANSWERED
    return 0 if row.wrote_nothing and is_sure else row.target_end


def _held_by_target_quota(row: PartitionRow, facts: FlowFacts) -> bool:
    return row.slot is not None and _is_recent(facts.target_throttled_at(row.slot), facts)


def _held_by_source_quota(row: PartitionRow, facts: FlowFacts) -> bool:
    return row.slot is not None and _is_recent(facts.source_throttled_at(row.slot), facts)


def _is_recent(at: float | None, facts: FlowFacts) -> bool:
    return at is not None and facts.now - at <= QUOTA_SECONDS


def _waits_for(
    row: PartitionRow, facts: FlowFacts, state: PartitionState, reason: str, message: str
) -> tuple[str, str]:
    """Why a partition makes no progress: a quota, the task's report, or what the driver itself sees."""
    if not reason:
        if _held_by_target_quota(row, facts):
            return PartitionReason.QUOTA, TARGET_QUOTA
        if _held_by_source_quota(row, facts):
            return PartitionReason.QUOTA, f"a quota of {facts.source} delays the copy"
    if reason:
        return reason, message or reason
    if message:
        # Of a partition that runs: Spark has its records.
        return "SPARK_UNAVAILABLE", message
    if row.waited_for is not None:
        why, words, tried_at = row.waited_for
        if facts.now - tried_at <= TRIES_SECONDS:
            return why, words or why
    problem = row.end_problem
    if problem is not None:
        return problem.reason, f"source {facts.source}: {problem}"
    if row.slot in facts.slow_slots:
        return PartitionReason.TARGET_SLOW, "its task waits for the target to acknowledge other partitions"
    if facts.is_limited(row.partition):
        return PartitionReason.THROTTLED, "a limit that an operator set leaves no bytes for it"
    return (
        PartitionReason.FETCH_UNANSWERED,
        f"source {facts.source} has not answered the fetch of its next records",
    )


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


_SOURCE_LOST = "TRUNCATION"


def translated_since(copy: CopyFact, losses: Iterable[Shortened], gaps: Iterable[Gap]) -> int:
    """From which source offset on a translated copy has offsets of its own. `losses`: of the target, not
    recorded yet; `gaps`: the ledger of the flow."""
    since = copy.since
    if copy.preserved or since <= 0:
        return since
    lost = [min(since, loss.end_offset) for loss in losses]
    cut = [gap.from_offset for gap in gaps if gap.partition == copy.partition and gap.reason == _SOURCE_LOST]
    return min([since, *lost, *cut])
