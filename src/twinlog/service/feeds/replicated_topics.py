"""One topic of a flow with configsync's decision, as it stands in the registry. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from twinlog.model import TopicPartition
from twinlog.selection import TopicSelector
from twinlog.wire.stored_json import read_fields

REGISTRY = "a record of configsync"
"""For errors."""


class TopicState(StrEnum):
    """Whether a replicated topic can be copied."""

    READY = "READY"
    WAITING = "WAITING"
    DELETED_AT_SOURCE = "DELETED_AT_SOURCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLimits:
    """The limits of the target topic for its copy. Kafka's defaults until the topic was described."""

    max_message_bytes: int = 1_048_588
    compression_type: str = "producer"
    timestamp_type: str = "CreateTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedTopic:
    """Both sides of a topic, its generation, and whether it can be copied."""

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
    limits: TopicLimits = TopicLimits()
    source_cleanup_policy: str = ""
    """As the source reports it; "" while its configuration cannot be read."""
    selected: bool = True
    """False once no rule selects it any more: kept for its generation, and not copied."""
    deleted_at_ms: int | None = None
    """When the source topic was first missing, by the wall clock."""
    kept: str = ""
    """Why the copy is not deleted, although the source topic is missing: the source was lost, and the topic
    not deleted. SOURCE_LOST or SOURCE_REPLACED."""

    routed_from: str = ""
    """There is no such topic on the source: records of this one go to the copy (`feeds/routes.py`)."""

    @property
    def copyable_partition_count(self) -> int:
        """Partitions that may be copied now: those on both sides of a READY topic."""
        if self.state is not TopicState.READY:
            return 0
        return min(self.partition_count, self.target_partition_count)


def left_out(topics: Iterable[ReplicatedTopic], selector: TopicSelector) -> tuple[str, ...]:
    """The source topics that are copied, and that these rules leave out, by name."""
    return tuple(
        sorted(
            each.source_topic
            for each in topics
            if each.selected
            and each.state is not TopicState.DELETED_AT_SOURCE
            and not each.routed_from
            and not selector.selects(each.source_topic)
        )
    )


class StoredRoute(NamedTuple):
    source_topic: str
    """The topic whose records take the route."""
    instead_of: str = ""
    """The id of a topic of the target that is gone, and is to be created again."""

    def is_gone(self, known: ReplicatedTopic | None) -> bool:
        """Whether its topic was deleted after it was last asked for."""
        return known is not None and is_gone(known) and self.was_there(known)

    def was_there(self, known: ReplicatedTopic | None) -> bool:
        """Whether the topic that was asked for last was seen on the target."""
        return known is not None and known.target_topic_id not in ("", self.instead_of)


def is_gone(known: ReplicatedTopic) -> bool:
    """Whether the topic of a route was there, and is not any more."""
    return bool(known.routed_from and known.target_topic_id) and not known.target_partition_count


Topics = Mapping[str, ReplicatedTopic]
"""By source topic."""


def copyable_partitions(topics: Topics) -> frozenset[TopicPartition]:
    """Partitions that exist on both sides."""
    return frozenset(
        TopicPartition(topic.source_topic, number)
        for topic in topics.values()
        for number in range(topic.copyable_partition_count)
    )


def decode_topic(fields: Mapping[str, Any]) -> ReplicatedTopic:
    """The topic of a stored record. Raises as `read_fields`."""
    # In a state that this version does not know nothing is copied.
    known = fields["state"] if fields["state"] in TopicState.__members__ else TopicState.WAITING
    return read_fields(ReplicatedTopic, {**fields, "state": known})
