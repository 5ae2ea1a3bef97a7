"""Why a path is not known to be alive: all reasons that the heartbeat service itself gives.

Reasons from a broker (KAFKA_TIMEOUT, TOPIC_UNAUTHORIZED, …) are passed on unchanged.
"""

from enum import StrEnum


class Reason(StrEnum):
    """Stable names of the API; docs/reasons.md documents them."""

    STARTING = "STARTING"
    """No heartbeat has been written and seen yet, shortly after the start."""
    HEARTBEATS_DISABLED = "HEARTBEATS_DISABLED"
    """emit.heartbeats.enabled=false for this flow: no heartbeats are written that would prove the path."""
    NOT_REPLICATED = "NOT_REPLICATED"
    """heartbeats.replication.enabled=false and the topic filter does not select heartbeats."""
    HEARTBEAT_MISSING = "HEARTBEAT_MISSING"
    """Heartbeats are written on the source and do not arrive on the target."""
    SAME_CLUSTER = "SAME_CLUSTER"
    """Both clusters of the flow have the same id."""
