"""Four corrections to aiokafka 0.14, applied once per process before its first client is made.

They act on module objects of the library because every client, also the one inside its producer, must have
them:

1. Metadata requests ask brokers not to create topics. aiokafka leaves the flag on, so with Kafka's default
   `auto.create.topics.enable=true` merely reading a deleted topic would bring it back, empty.
2. Error codes that the library does not know are registered with their number and whether a retry may help;
   without
   it they all become `UnknownError` -1, not retriable.
3. Log lines that would show a password are dropped: at DEBUG it prints every request, also SaslAuthenticate.
4. Its other lines are logged at DEBUG: each failure reaches the caller as an error and is reported there,
   once.
"""

import functools
import logging

import aiokafka.client
import aiokafka.errors
from aiokafka.protocol.metadata import MetadataRequest

from twinlog.kafka.codes import ErrorCode

_LOGGERS = (
    "aiokafka",
    "aiokafka.conn",
    "aiokafka.cluster",
    "aiokafka.producer.producer",
    "aiokafka.producer.sender",
    "aiokafka.producer.transaction_manager",
)
_RETRIABLE_CODES = {
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    80: "PREFERRED_LEADER_NOT_AVAILABLE",
    84: "ELECTION_NOT_NEEDED",
    88: "UNSTABLE_OFFSET_COMMIT",
    89: "THROTTLING_QUOTA_EXCEEDED",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
}
_FINAL_CODES = {
    73: "TOPIC_DELETION_DISABLED",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    81: "GROUP_MAX_SIZE_REACHED",
    82: "FENCED_INSTANCE_ID",
    87: "INVALID_RECORD",
    90: "PRODUCER_FENCED",
    97: "PRINCIPAL_DESERIALIZATION_FAILURE",
    120: "TRANSACTION_ABORTABLE",
}
_STALE_METADATA_CODES = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)


@functools.cache
def apply_aiokafka_fixes() -> None:
    """Apply the corrections of the module's docstring. Further calls do nothing."""
    aiokafka.client.MetadataRequest = functools.partial(MetadataRequest, allow_auto_topic_creation=False)
    for code, name in (_RETRIABLE_CODES | _FINAL_CODES).items():
        aiokafka.errors.kafka_errors.setdefault(code, _error_class(code, name))
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_quieter)


def _error_class(code: int, name: str) -> type[aiokafka.errors.BrokerResponseError]:
    attributes = {
        "errno": code,
        "message": name,
        "description": name.replace("_", " ").capitalize(),
        "retriable": code in _RETRIABLE_CODES,
        "invalid_metadata": code in _STALE_METADATA_CODES,
    }
    return type(name.title().replace("_", "") + "Error", (aiokafka.errors.BrokerResponseError,), attributes)


def _quieter(record: logging.LogRecord) -> bool:
    """Drop lines that may contain credentials, log the others at DEBUG."""
    if any("Sasl" in type(argument).__name__ for argument in _arguments(record)):
        return False
    if record.levelno > logging.DEBUG:
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def _arguments(record: logging.LogRecord) -> tuple[object, ...]:
    return record.args if isinstance(record.args, tuple) else ()
