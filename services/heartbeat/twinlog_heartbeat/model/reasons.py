"""Why a path is not known to be alive: every reason the heartbeat service itself gives, once.

Reasons that come from a broker (KAFKA_TIMEOUT, TOPIC_UNAUTHORIZED, …) are passed on as the ports name them.
"""

from enum import StrEnum


class Reason(StrEnum):
    """Stable words of the API; documented in docs/reasons.md."""

    STARTING = "STARTING"
    """No heartbeat has been written and seen yet, and it is too early to worry."""
    HEARTBEATS_DISABLED = "HEARTBEATS_DISABLED"
    """emit.heartbeats.enabled=false for this flow: nobody writes the beats that would prove the path."""
    NOT_REPLICATED = "NOT_REPLICATED"
    """heartbeats.replication.enabled=false and the topic filter does not select heartbeats."""
    HEARTBEAT_MISSING = "HEARTBEAT_MISSING"
    """Beats were written on the source and do not arrive on the target."""
    SAME_CLUSTER = "SAME_CLUSTER"
    """Both ends of the flow have one cluster id."""
