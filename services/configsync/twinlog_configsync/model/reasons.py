"""Why a flow or a topic is not in sync: every reason configsync itself gives, once. Kafka's own come from
the ports.
"""

from enum import StrEnum


class Reason(StrEnum):
    """Stable words of the API; documented in docs/reasons.md."""

    STARTING = "STARTING"
    """The flow's first refresh is under way."""
    SAME_CLUSTER = "SAME_CLUSTER"
    """Both ends of the flow have one cluster id."""
    NO_TOPICS_SELECTED = "NO_TOPICS_SELECTED"
    """No topic of the source passes the flow's rules."""
    REGISTRY_UNREADABLE = "REGISTRY_UNREADABLE"
    """The stored registry was written by a newer version, or is damaged."""
    CONFIGS_UNAUTHORIZED = "CONFIGS_UNAUTHORIZED"
    """The source does not let us read the topic's configuration, so the target topic is not created
    blindly.
    """
    REPLICATION_FACTOR_UNSATISFIABLE = "REPLICATION_FACTOR_UNSATISFIABLE"
    """The target has fewer live brokers than replication.factor."""
    MIN_ISR_ABOVE_REPLICATION_FACTOR = "MIN_ISR_ABOVE_REPLICATION_FACTOR"
    """The target topic would refuse every write."""
    TARGET_NOT_VISIBLE = "TARGET_NOT_VISIBLE"
    """Created, but the target's brokers do not show it yet."""
    PLAN_PENDING = "PLAN_PENDING"
    """In manual mode: changes are planned and wait for `twinlog apply`."""
    NO_AUTHORIZER = "NO_AUTHORIZER"
    """A cluster has no authorizer, so it has no ACLs to read or to set."""
    CHANGES_REFUSED = "CHANGES_REFUSED"
    """The target refused some of the changes."""
    RULES_CHANGED = "RULES_CHANGED"
    """Somebody else changed the rules since they were read."""
    PLAN_STALE = "PLAN_STALE"
    """The world is not as it was when the plan was made."""
    PLAN_UNKNOWN = "PLAN_UNKNOWN"
    """There is no plan of this id, or it is too old to be remembered."""
    SOURCE_LOST = "SOURCE_LOST"
    """The source has none of the topics any more that it had: their copies are kept."""
    SOURCE_REPLACED = "SOURCE_REPLACED"
    """The source is another cluster than before: copies of what it lacks are kept."""
    FAILED_OVER = "FAILED_OVER"
    """A failover is under way or in effect: no copy is deleted."""
    DELETED_AT_SOURCE = "DELETED_AT_SOURCE"
    """The source topic is gone; the target topic stays."""
