"""Kafka's reasons on which code decides; `twinlog.kafka.errors` has the table of all."""

from enum import StrEnum


class KafkaReason(StrEnum):
    GROUP_ACTIVE = "GROUP_ACTIVE"
    GROUP_REBALANCED = "GROUP_REBALANCED"
    GROUP_UNKNOWN = "GROUP_UNKNOWN"
    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    REPLICATION_FACTOR_INVALID = "REPLICATION_FACTOR_INVALID"
    TOPIC_EXISTS = "TOPIC_EXISTS"
    TOPIC_UNKNOWN = "TOPIC_UNKNOWN"
