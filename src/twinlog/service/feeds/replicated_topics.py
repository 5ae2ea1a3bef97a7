"""One topic of a flow with configsync's decision. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from twinlog.model import Flow, TopicPartition


class TopicState(StrEnum):
    READY = "READY"
    WAITING = "WAITING"
    DELETED_AT_SOURCE = "DELETED_AT_SOURCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedTopic:
    """One topic of a flow, with the fields of the API's message of the same name."""

    flow: Flow
    source_topic: str
    target_topic: str
    partition_count: int
    target_partition_count: int
    source_topic_id: str
    target_topic_id: str
    generation: int
    created_after_start: bool
    state: TopicState
    """WAITING also stands for a state that this version does not know: such a topic is not copied."""
    reason: str
    message: str
    target_max_message_bytes: int
    target_compression_type: str
    target_timestamp_type: str
    source_cleanup_policy: str

    @property
    def copyable_partition_count(self) -> int:
        """Partitions that may be copied now: those on both sides of a READY topic."""
        if self.state is not TopicState.READY:
            return 0
        return min(self.partition_count, self.target_partition_count)


Topics = Mapping[str, ReplicatedTopic]
"""By source topic."""


def copyable_partitions(topics: Topics) -> frozenset[TopicPartition]:
    """Partitions that exist on both sides."""
    return frozenset(
        TopicPartition(topic.source_topic, number)
        for topic in topics.values()
        for number in range(topic.copyable_partition_count)
    )
