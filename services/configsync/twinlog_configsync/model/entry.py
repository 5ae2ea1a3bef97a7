"""One topic of a flow as the registry knows it: both sides, generation, and whether it can be copied."""

from dataclasses import dataclass
from enum import StrEnum


class TopicState(StrEnum):
    """Whether a replicated topic can be copied."""

    READY = "READY"
    WAITING = "WAITING"
    DELETED_AT_SOURCE = "DELETED_AT_SOURCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLimits:
    """What the copy must respect on the target topic. Defaults are Kafka's own, until the topic was
    described.
    """

    max_message_bytes: int = 1_048_588
    compression_type: str = "producer"
    timestamp_type: str = "CreateTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    source_topic: str
    target_topic: str
    partition_count: int
    """On the source."""
    target_partition_count: int = 0
    """On the target; 0 until it exists. Never above it, so the copy may trust it."""
    source_topic_id: str = ""
    target_topic_id: str = ""
    generation: int = 1
    """Raised whenever the source topic was deleted and created again."""
    created_after_start: bool = False
    """First seen after the flow's registry was settled: copied from its first record whatever the reset
    policy.
    """
    state: TopicState = TopicState.WAITING
    reason: str = ""
    message: str = ""
    limits: TargetLimits = TargetLimits()
    source_cleanup_policy: str = ""
    """As the source says it; "" while its configuration cannot be read."""
    selected: bool = True
    """False once no rule selects it any more: kept for its generation, not told to watchers."""
    deleted_at_ms: int | None = None
    """Wall clock when the source topic was first missed."""
    kept: str = ""
    """Why the copy is not deleted after the source topic, which was lost and not deleted: SOURCE_LOST or
    SOURCE_REPLACED.
    """
