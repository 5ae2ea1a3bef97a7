"""Kafka's reasons on which code decides; `twinlog.kafka.errors` has the table of all."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class KafkaReason(StrEnum):
    GROUP_ACTIVE = "GROUP_ACTIVE"
    GROUP_REBALANCED = "GROUP_REBALANCED"
    GROUP_UNKNOWN = "GROUP_UNKNOWN"
    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
    RECORD_INVALID = "RECORD_INVALID"
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    REPLICATION_FACTOR_INVALID = "REPLICATION_FACTOR_INVALID"
    TOPIC_CHANGED = "TOPIC_CHANGED"
    TOPIC_EXISTS = "TOPIC_EXISTS"
    TOPIC_UNKNOWN = "TOPIC_UNKNOWN"


REFUSALS: Final[Mapping[str, str]] = {
    "AUTHENTICATION_FAILED": "refuses the login",
    "SASL_MECHANISM_REFUSED": "refuses the login",
    "TLS_FAILED": "takes no TLS connection",
}
"""How a cluster is away that answers, but refuses: waiting does not mend that."""


def no_answer(alias: str, reason: str) -> str:
    """Tell that a cluster is away, for this reason.

    >>> no_answer("B", "KAFKA_TIMEOUT"), no_answer("B", "AUTHENTICATION_FAILED")
    ('B does not answer', 'B refuses the login')
    """
    return f"{alias} {REFUSALS.get(reason, 'does not answer')}"
