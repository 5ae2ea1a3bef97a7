"""Kafka's error codes with Kafka's names, and the sets of them that several modules use."""

from typing import Final

from kio.schema.errors import ErrorCode as ErrorCode

LEADER_MOVED: Final = frozenset(
    (
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.network_exception,
        ErrorCode.kafka_storage_error,
        ErrorCode.listener_not_found,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    )
)
"""After one of these, read the metadata again: the partition may have another leader, or the topic may be
another one."""

COORDINATOR_MOVED: Final = frozenset(
    (
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    )
)
