"""Makes the one-partition compacted topics that MM2 and Twinlog keep their records in (mirrormaker2.md
§2.1)."""

from collections.abc import Mapping
from enum import StrEnum

from twinlog.errors import KafkaError
from twinlog.kafka.ports import NewTopic, TopicAdmin
from twinlog.kafka.reasons import KafkaReason

_ASSUME_THERE = frozenset({"UNSUPPORTED_VERSION", "TOPIC_UNAUTHORIZED", "CLUSTER_UNAUTHORIZED"})
"""Reasons after which MM2 continues: somebody else made the topic, or the broker will."""


class TopicMaking(StrEnum):
    CREATED = "CREATED"
    EXISTED = "EXISTED"
    """It is left as it is, whatever its settings."""
    ASSUMED = "ASSUMED"
    """We may not create it; using it will show whether it is there."""


async def ensure_compacted_topic(
    admin: TopicAdmin,
    name: str,
    *,
    replication_factor: int,
    partition_count: int = 1,
    configs: Mapping[str, str] | None = None,
) -> TopicMaking:
    """Create `name` with cleanup.policy=compact unless it is there; never alter one that is.

    `replication_factor` -1 = the broker's default. Raises KafkaError for anything but the refusals MM2
    tolerates (no right to create, old broker).
    """
    topic = NewTopic(
        name=name,
        partition_count=partition_count,
        replication_factor=replication_factor,
        configs={"cleanup.policy": "compact", **(configs or {})},
    )
    described = (await admin.describe_topics([name]))[name]
    if not isinstance(described, KafkaError):
        return TopicMaking.EXISTED
    error = (await admin.create_topics([topic]))[name]
    if error is None:
        return TopicMaking.CREATED
    if error.reason == KafkaReason.TOPIC_EXISTS:
        return TopicMaking.EXISTED
    if error.reason in _ASSUME_THERE:
        return TopicMaking.ASSUMED
    raise error
