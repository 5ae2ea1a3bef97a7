"""The source service's reasons as values: why a partition makes no progress, and why a task ends.

`twinlog.reasons` has their meanings and remedies, from which docs/reasons.md is generated.
"""

from collections.abc import Mapping
from enum import StrEnum

STARTING = "STARTING"
"""What is needed is being started."""


class PartitionReason(StrEnum):
    """Why a partition is in its state, as the task reports it or the driver sees it."""

    COMPARING = "COMPARING"
    """The target has records already, which are being compared with the source."""
    DATA_LOSS = "DATA_LOSS"
    DELAYED = "DELAYED"
    """The next records of a RUNNING partition are too young (`Horizon`)."""
    FETCH_UNANSWERED = "FETCH_UNANSWERED"
    LOOP = "LOOP"
    """Somebody else copies the copies back (`Returns`)."""
    NO_POSITION = "NO_POSITION"
    NO_TASK = "NO_TASK"
    NO_TOPICS = "NO_TOPICS"
    OPEN_TRANSACTION = "OPEN_TRANSACTION"
    """A RUNNING partition has copied all that it may; a transaction of the source stays open behind that."""
    ORIGIN_UNKNOWN = "ORIGIN_UNKNOWN"
    """Which records of the source are copies of what the target has already is not known."""
    PAUSED_BY_OPERATOR = "PAUSED_BY_OPERATOR"
    POSITION_UNREADABLE = "POSITION_UNREADABLE"
    QUOTA = "QUOTA"
    ROUTE_NOT_THERE = "ROUTE_NOT_THERE"
    """The topic to which records are routed does not exist yet."""
    ROUTE_REFUSED = "ROUTE_REFUSED"
    START_GROUP_ACTIVE = "START_GROUP_ACTIVE"
    TARGET_OPEN_TRANSACTION = "TARGET_OPEN_TRANSACTION"
    TARGET_SLOW = "TARGET_SLOW"
    """Also of a RUNNING partition: records that were read are not acknowledged."""
    THROTTLED = "THROTTLED"
    TRANSFORM_FAILED = "TRANSFORM_FAILED"
    TRANSFORM_REFUSED = "TRANSFORM_REFUSED"
    NO_FREE_CORE = "NO_FREE_CORE"
    TRUNCATION_SUSPECTED = "TRUNCATION_SUSPECTED"
    """The log may belong to a recreated topic; the driver compares the topic's id."""
    UNTIL_REACHED = "UNTIL_REACHED"
    """A RUNNING partition has reached the end of a finite copy (`Horizon`)."""


class EndReason(StrEnum):
    """Why a task or an epoch ended, or is told to end."""

    END_OF_EPOCH = "END_OF_EPOCH"
    EPOCH_OVER = "EPOCH_OVER"
    LEASE_LOST = "LEASE_LOST"
    NOT_NEEDED = "NOT_NEEDED"
    PLAN_CHANGED = "PLAN_CHANGED"
    REFUSED = "REFUSED"
    SHUTDOWN = "SHUTDOWN"


HELD: Mapping[str, str] = {
    PartitionReason.DELAYED: "its next records are younger than twinlog.delay.seconds",
    PartitionReason.LOOP: "records came back: it is tried whether they also come while nothing is copied",
    PartitionReason.UNTIL_REACHED: "this finite copy has reached its end",
}
"""Messages of partitions that wait on purpose; they are never STALLED."""
