"""Converts errors of the client library and of brokers into Twinlog's, by Kafka's numeric codes.

`KAFKA_REASONS` is the complete table: code -> (reason, retriable, meaning for users). docs/reasons.md is
generated from it and from `CLIENT_REASONS`. A code without a row is KAFKA_REFUSED and fatal: an unknown
refusal is shown, not retried for ever.
"""

import ssl
from dataclasses import dataclass, replace

import aiokafka.errors

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.protocol.frames import FrameTooLargeError
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.security.oauth.reading import TokenError


@dataclass(frozen=True, slots=True)
class Reason:
    """One row: the stable name, whether a retry may help, and its meaning."""

    name: str
    retriable: bool
    meaning: str


def _transient(name: str, meaning: str) -> Reason:
    return Reason(name, True, meaning)


def _fatal(name: str, meaning: str) -> Reason:
    return Reason(name, False, meaning)


NO_LEADER = _transient("LEADER_UNAVAILABLE", "the partition's leader is moving")
_COORDINATOR = _transient("COORDINATOR_UNAVAILABLE", "the coordinator is moving or loading")
_GROUP_ACTIVE = _fatal(KafkaReason.GROUP_ACTIVE, "the group has members: stop its consumers first")
_FENCED = _fatal("PRODUCER_FENCED", "another process took over this producer's id")
_TOO_LARGE = _fatal(
    KafkaReason.RECORD_TOO_LARGE,
    "the record or batch is above the topic's max.message.bytes or segment.bytes",
)
_REPLICAS = _transient("NOT_ENOUGH_REPLICAS", "fewer in-sync replicas than min.insync.replicas")
_CORRUPT = _fatal("CORRUPT_BATCH", "the batch does not match its checksum")
_BUSY = _transient("TRANSACTION_BUSY", "the previous transaction of this id is still ending")
_PRODUCER_STATE = _fatal("PRODUCER_STATE_LOST", "the producer's sequence is broken: open a new producer")
_TRANSACTION = _fatal("TRANSACTION_INVALID", "the transaction's state does not allow this")

KAFKA_REASONS: dict[int, Reason] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: _transient(
        "KAFKA_SERVER_ERROR", "the broker failed without saying why; its log has the cause"
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: _fatal(
        KafkaReason.OFFSET_OUT_OF_RANGE, "the offset is outside the partition's log"
    ),
    ErrorCode.CORRUPT_MESSAGE: _CORRUPT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _fatal(
        KafkaReason.TOPIC_UNKNOWN, "no such topic or partition (or no right to see it)"
    ),
    ErrorCode.INVALID_FETCH_SIZE: _fatal("INVALID_REQUEST", "the broker does not accept the request's sizes"),
    ErrorCode.LEADER_NOT_AVAILABLE: NO_LEADER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: NO_LEADER,
    ErrorCode.REQUEST_TIMED_OUT: _transient("KAFKA_TIMEOUT", "no answer in time"),
    ErrorCode.BROKER_NOT_AVAILABLE: _transient("KAFKA_UNAVAILABLE", "no broker can be reached"),
    ErrorCode.REPLICA_NOT_AVAILABLE: NO_LEADER,
    ErrorCode.MESSAGE_TOO_LARGE: _TOO_LARGE,
    ErrorCode.NETWORK_EXCEPTION: _transient("KAFKA_UNAVAILABLE", "no broker can be reached"),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: _fatal(
        "OFFSET_METADATA_TOO_LARGE", "the commit's metadata is above offset.metadata.max.bytes"
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _COORDINATOR,
    ErrorCode.NOT_COORDINATOR: _COORDINATOR,
    ErrorCode.INVALID_TOPIC_EXCEPTION: _fatal(
        "TOPIC_INVALID",
        "the name is not allowed: Kafka takes letters, digits, '.', '_' and '-', 249 at most, and no name"
        " that differs from another topic's in '.' and '_' only; twinlog.topic.rename gives a copy another"
        " name",
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: _TOO_LARGE,
    ErrorCode.NOT_ENOUGH_REPLICAS: _REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _REPLICAS,
    ErrorCode.ILLEGAL_GENERATION: _GROUP_ACTIVE,
    ErrorCode.INVALID_GROUP_ID: _fatal("GROUP_INVALID", "the group id is not allowed"),
    ErrorCode.UNKNOWN_MEMBER_ID: _GROUP_ACTIVE,
    ErrorCode.INVALID_SESSION_TIMEOUT: _fatal(
        "SESSION_TIMEOUT_REFUSED", "the session timeout is outside the broker's limits"
    ),
    ErrorCode.REBALANCE_IN_PROGRESS: _GROUP_ACTIVE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _fatal("TOPIC_UNAUTHORIZED", "an ACL for the topic is missing"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _fatal("GROUP_UNAUTHORIZED", "an ACL for the group is missing"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _fatal(
        "CLUSTER_UNAUTHORIZED", "an ACL for the cluster is missing"
    ),
    ErrorCode.INVALID_TIMESTAMP: _fatal(
        "TIMESTAMP_REFUSED", "the record's timestamp is outside what the topic accepts"
    ),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: _fatal(
        "SASL_MECHANISM_REFUSED", "the broker does not offer this sasl.mechanism"
    ),
    ErrorCode.ILLEGAL_SASL_STATE: _fatal("AUTHENTICATION_FAILED", "the broker refused the credentials"),
    ErrorCode.UNSUPPORTED_VERSION: _fatal("UNSUPPORTED_VERSION", "the broker is too old for this request"),
    ErrorCode.TOPIC_ALREADY_EXISTS: _fatal(KafkaReason.TOPIC_EXISTS, "the topic exists already"),
    ErrorCode.INVALID_PARTITIONS: _fatal(
        "PARTITIONS_INVALID", "the partition count is not above the present one"
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: _fatal(
        KafkaReason.REPLICATION_FACTOR_INVALID, "the replication factor is above the number of brokers"
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: _fatal(
        KafkaReason.REPLICATION_FACTOR_INVALID, "the replicas cannot be placed"
    ),
    ErrorCode.INVALID_CONFIG: _fatal("CONFIG_REFUSED", "the broker does not accept a configuration value"),
    ErrorCode.NOT_CONTROLLER: _transient("CONTROLLER_MOVED", "the controller is moving"),
    ErrorCode.INVALID_REQUEST: _fatal("INVALID_REQUEST", "the broker does not accept the request"),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _fatal(
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "the topic's message format is too old for this: set its message.format.version to 0.11 or newer",
    ),
    ErrorCode.POLICY_VIOLATION: _fatal("POLICY_VIOLATION", "a policy of the cluster refuses it"),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: _PRODUCER_STATE,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: _PRODUCER_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.INVALID_TXN_STATE: _TRANSACTION,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: _TRANSACTION,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: _fatal(
        "TRANSACTION_TIMEOUT_REFUSED", "transaction.timeout.ms is above the broker's maximum"
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: _BUSY,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: _FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _fatal(
        "TRANSACTION_UNAUTHORIZED", "an ACL for the transactional id is missing"
    ),
    ErrorCode.SECURITY_DISABLED: _fatal("NO_AUTHORIZER", "the cluster has no authorizer, so it has no ACLs"),
    ErrorCode.OPERATION_NOT_ATTEMPTED: _transient(
        "NOT_ATTEMPTED", "not tried because another partition of the request failed"
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: _transient(
        "STORAGE_ERROR", "a disk of the broker failed; another replica takes over"
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: _fatal(
        "AUTHENTICATION_FAILED", "the broker refused the credentials"
    ),
    ErrorCode.UNKNOWN_PRODUCER_ID: _PRODUCER_STATE,
    ErrorCode.REASSIGNMENT_IN_PROGRESS: _transient(
        "REASSIGNMENT_IN_PROGRESS", "the partition's replicas are being moved"
    ),
    ErrorCode.NON_EMPTY_GROUP: _GROUP_ACTIVE,
    ErrorCode.GROUP_ID_NOT_FOUND: _fatal(KafkaReason.GROUP_UNKNOWN, "no such group"),
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: _transient(
        "FETCH_SESSION_LOST", "the broker forgot the fetch session"
    ),
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: _transient(
        "FETCH_SESSION_LOST", "the broker forgot the fetch session"
    ),
    ErrorCode.LISTENER_NOT_FOUND: NO_LEADER,
    ErrorCode.TOPIC_DELETION_DISABLED: _fatal("TOPIC_DELETION_DISABLED", "delete.topic.enable is off"),
    ErrorCode.FENCED_LEADER_EPOCH: NO_LEADER,
    ErrorCode.UNKNOWN_LEADER_EPOCH: NO_LEADER,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: _fatal(
        "CODEC_REFUSED", "the topic does not take this compression"
    ),
    ErrorCode.OFFSET_NOT_AVAILABLE: NO_LEADER,
    ErrorCode.MEMBER_ID_REQUIRED: _GROUP_ACTIVE,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: NO_LEADER,
    ErrorCode.FENCED_INSTANCE_ID: _GROUP_ACTIVE,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: _GROUP_ACTIVE,
    ErrorCode.INVALID_RECORD: _fatal(
        KafkaReason.RECORD_INVALID, "the broker refuses the record, e.g. no key on a compacted topic"
    ),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: _transient(
        "OFFSETS_UNSTABLE", "a transaction with offsets is still open"
    ),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: _transient(
        "QUOTA_EXCEEDED", "a quota of the cluster is used up for the moment"
    ),
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: _fatal(
        "AUTHENTICATION_FAILED", "the broker cannot read the principal"
    ),
    ErrorCode.SNAPSHOT_NOT_FOUND: _fatal("SNAPSHOT_UNKNOWN", "no such snapshot"),
    ErrorCode.UNKNOWN_TOPIC_ID: _transient("TOPIC_CHANGED", "the topic was deleted, or created again"),
    ErrorCode.INCONSISTENT_TOPIC_ID: _transient("TOPIC_CHANGED", "the topic was deleted, or created again"),
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: _transient(
        "FETCH_SESSION_LOST", "the broker forgot the fetch session"
    ),
    ErrorCode.FENCED_MEMBER_EPOCH: _GROUP_ACTIVE,
    ErrorCode.UNRELEASED_INSTANCE_ID: _GROUP_ACTIVE,
    ErrorCode.STALE_MEMBER_EPOCH: _GROUP_ACTIVE,
    ErrorCode.TRANSACTION_ABORTABLE: _transient(
        "TRANSACTION_ABORTABLE", "abort the transaction, then try again"
    ),
}
"""Kafka's protocol error codes."""

TIMEOUT = _transient("KAFKA_TIMEOUT", "no answer in time")
UNAVAILABLE = _transient("KAFKA_UNAVAILABLE", "no broker can be reached")
AUTHENTICATION_FAILED = _fatal("AUTHENTICATION_FAILED", "the broker refused the credentials")
TOKEN_REFUSED = _fatal(
    "LOGIN_TOKEN_REFUSED", "no token for the login: check sasl.oauthbearer.* and sasl.jaas.config"
)
TOKEN_UNAVAILABLE = _transient(
    "LOGIN_TOKEN_UNAVAILABLE", "no token for the login now: the token server or file gives none"
)
TLS_UNTRUSTED = _fatal("TLS_UNTRUSTED", "the broker's certificate is not trusted: check the truststore")
TLS_FAILED = _transient("TLS_FAILED", "no TLS connection: check ports, protocol and certificates")
OFFSET_UNKNOWN = _transient("OFFSET_UNKNOWN", "the record was written, but its offset is not known")
HANGING_TRANSACTION = _transient(
    "HANGING_TRANSACTION",
    "an earlier transaction of this producer was never ended there; Twinlog ends it once its outcome is"
    " certain, see docs/states.md",
)
CLOSED = _transient("CLIENT_CLOSED", "the client was closed while the call ran")
ANSWER_TOO_LARGE = _fatal(
    "ANSWER_TOO_LARGE",
    "the broker's answer is larger than Twinlog reads: a batch of the source may have 256 MiB at most",
)
UNSUPPORTED = _fatal("UNSUPPORTED_VERSION", "the broker is too old for this request")
GROUP_REBALANCED = _transient(
    KafkaReason.GROUP_REBALANCED,
    "the group's members changed; records that were not committed are read again",
)
REFUSED = _fatal("KAFKA_REFUSED", "the broker or client refused it")

CLIENT_REASONS = (
    TIMEOUT,
    UNAVAILABLE,
    AUTHENTICATION_FAILED,
    TOKEN_REFUSED,
    TOKEN_UNAVAILABLE,
    TLS_UNTRUSTED,
    TLS_FAILED,
    OFFSET_UNKNOWN,
    HANGING_TRANSACTION,
    CLOSED,
    ANSWER_TOO_LARGE,
    UNSUPPORTED,
    GROUP_REBALANCED,
    REFUSED,
)
"""Failures that no broker reported."""

_AIOKAFKA_REASONS: tuple[tuple[type[Exception], Reason], ...] = (
    (aiokafka.errors.AuthenticationFailedError, AUTHENTICATION_FAILED),
    (aiokafka.errors.AuthenticationMethodNotSupported, KAFKA_REASONS[33]),
    (aiokafka.errors.ProducerFenced, _FENCED),
    (aiokafka.errors.ProducerClosed, CLOSED),
    (aiokafka.errors.KafkaTimeoutError, TIMEOUT),
    (aiokafka.errors.IncompatibleBrokerVersion, UNSUPPORTED),
    (aiokafka.errors.UnsupportedCodecError, KAFKA_REASONS[76]),
    (aiokafka.errors.RecordTooLargeError, _TOO_LARGE),
    (aiokafka.errors.KafkaUnavailableError, UNAVAILABLE),
    (NotImplementedError, UNSUPPORTED),
    (TimeoutError, TIMEOUT),
    (ssl.SSLCertVerificationError, TLS_UNTRUSTED),
    (ssl.SSLError, TLS_FAILED),
    (OSError, UNAVAILABLE),
    (EOFError, UNAVAILABLE),
)
"""aiokafka's exceptions without a code, the most specific first."""

KAFKA_CLIENT_ERRORS = (
    aiokafka.errors.KafkaError,
    NotImplementedError,
    OSError,
    EOFError,
    TokenError,
)
"""What calls into the client library raise (TimeoutError and SSLError are OSErrors); catch these, then
`translate`."""


def translate(error: BaseException, doing: str, *, alias: str = "", node_id: int | None = None) -> KafkaError:
    """Twinlog's error for a client's exception; the caller raises it `from` the original, or keeps it as a
    value. `doing` names the attempt and its object: "read orders-3". `node_id`: of the one broker that was
    asked; others may well be up."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, TokenError):
        reason = TOKEN_REFUSED if error.refused else TOKEN_UNAVAILABLE
        return _make(reason, doing, alias=alias, detail=str(error))
    if isinstance(error, aiokafka.errors.BrokerResponseError):
        return from_code(error.errno, doing, alias=alias, detail=_detail(error))
    if isinstance(error, FrameTooLargeError) or isinstance(error.__cause__, FrameTooLargeError):
        return _make(ANSWER_TOO_LARGE, doing, alias=alias, detail=str(error.__cause__ or error))
    reason = _reason_of(error)
    if reason is UNAVAILABLE and node_id is not None:
        reason = replace(UNAVAILABLE, meaning=f"broker {node_id} cannot be reached")
    return _make(reason, doing, alias=alias, detail=_detail(error))


def _reason_of(error: BaseException) -> Reason:
    for kind, reason in _AIOKAFKA_REASONS:
        if isinstance(error, kind):
            return reason
    return UNAVAILABLE if getattr(error, "retriable", False) else REFUSED


def from_code(code: int, doing: str, *, alias: str = "", detail: str = "") -> KafkaError:
    """The error for a protocol error code."""
    return _make(KAFKA_REASONS.get(code, REFUSED), doing, alias=alias, detail=detail, code=code)


def from_reason(reason: Reason, doing: str, *, alias: str = "", detail: str = "") -> KafkaError:
    """The error for a failure that only the client noticed (a deadline, an answer without an offset)."""
    return _make(reason, doing, alias=alias, detail=detail)


def _make(reason: Reason, doing: str, *, alias: str, detail: str, code: int = -1) -> KafkaError:
    where = f"cluster {alias}: " if alias else ""
    more = f" ({detail})" if detail else ""
    metadata = {"cluster": alias, "doing": doing, "detail": detail}
    kind = TransientKafkaError if reason.retriable else FatalKafkaError
    return kind(
        f"{where}{doing}: {reason.meaning}{more}",
        reason=reason.name,
        metadata={key: text for key, text in metadata.items() if text},
        code=code,
    )


def _detail(error: BaseException) -> str:
    text = str(error).strip()
    name = type(error).__name__
    if isinstance(error.__cause__, ValueError):
        text += f": {error.__cause__}"  # A broker's answer that could not be read ended the connection.
    if not text:
        return name
    return text if text.startswith((name, "[")) else f"{name}: {text}"
