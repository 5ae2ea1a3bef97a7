"""The registry's entry for one topic of a flow: both sides, generation, and whether it can be copied."""

from dataclasses import dataclass
from enum import StrEnum


class TopicState(StrEnum):
    """Whether a replicated topic can be copied."""

    READY = "READY"
    WAITING = "WAITING"
    DELETED_AT_SOURCE = "DELETED_AT_SOURCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLimits:
    """The limits of the target topic for its copy. Kafka's defaults until the topic was described."""

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
    """On the target; 0 until it exists. Never above the real number, so the copy may rely on it."""
    source_topic_id: str = ""
    target_topic_id: str = ""
    generation: int = 1
    """Raised whenever the source topic was deleted and created again."""
    created_after_start: bool = False
    """First seen after the flow's registry was complete: copied from its first record, whatever the reset
    policy."""
    state: TopicState = TopicState.WAITING
    reason: str = ""
    message: str = ""
    limits: TargetLimits = TargetLimits()
    source_cleanup_policy: str = ""
    """As the source reports it; "" while its configuration cannot be read."""
    selected: bool = True
    """False once no rule selects it any more: kept for its generation, not sent to watchers."""
    deleted_at_ms: int | None = None
    """When the source topic was first missing, by the wall clock."""
    kept: str = ""
    """Why the copy is not deleted, although the source topic is missing: the source was lost, and the topic
    not deleted. SOURCE_LOST or SOURCE_REPLACED."""
