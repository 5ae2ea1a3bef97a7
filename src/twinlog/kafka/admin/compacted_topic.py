"""Creates the compacted topics with one partition in which MM2 and Twinlog keep their records
(mirrormaker2.md §2.1)."""

from collections.abc import Mapping
from enum import StrEnum

from twinlog.errors import KafkaError
from twinlog.kafka.ports import NewTopic, TopicAdmin
from twinlog.kafka.reasons import KafkaReason

_ASSUME_THERE = frozenset({"UNSUPPORTED_VERSION", "TOPIC_UNAUTHORIZED", "CLUSTER_UNAUTHORIZED"})
"""Reasons after which MM2 continues: somebody else created the topic, or the broker will."""


class TopicMaking(StrEnum):
    CREATED = "CREATED"
    EXISTED = "EXISTED"
    """It existed, and was not changed, whatever its settings."""
    ASSUMED = "ASSUMED"
    """No right to create it; its use will show whether it exists."""


async def ensure_compacted_topic(
    admin: TopicAdmin,
    name: str,
    *,
    replication_factor: int,
    partition_count: int = 1,
    configs: Mapping[str, str] | None = None,
) -> TopicMaking:
    """Create `name` with cleanup.policy=compact unless it exists; never change an existing one.

    `replication_factor` -1 = the broker's default. Raises KafkaError except for the refusals that MM2
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
