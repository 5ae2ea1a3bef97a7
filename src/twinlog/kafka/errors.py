"""Converts errors of the client library and of brokers into Twinlog's, by Kafka's numeric codes.

A code without a row in `twinlog.reasons` is KAFKA_REFUSED and fatal: an unknown refusal is shown, not retried
for ever.
"""

import ssl
from dataclasses import replace

import aiokafka.errors

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.protocol.frames import FrameTooLargeError
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.security.oauth.reading import TokenError
from twinlog.reasons import KAFKA, Reason

KAFKA_REASONS: dict[int, Reason] = {code: reason for reason in KAFKA.reasons for code in reason.codes}
"""By Kafka's protocol error codes."""
_NAMED = {reason.name: reason for reason in reversed(KAFKA.reasons)}

ANSWER_TOO_LARGE = _NAMED["ANSWER_TOO_LARGE"]
AUTHENTICATION_FAILED = _NAMED["AUTHENTICATION_FAILED"]
CLOSED = _NAMED["CLIENT_CLOSED"]
GROUP_REBALANCED = _NAMED[KafkaReason.GROUP_REBALANCED]
HANGING_TRANSACTION = _NAMED["HANGING_TRANSACTION"]
NO_LEADER = _NAMED["LEADER_UNAVAILABLE"]
OFFSET_UNKNOWN = _NAMED["OFFSET_UNKNOWN"]
REFUSED = _NAMED["KAFKA_REFUSED"]
TIMEOUT = _NAMED["KAFKA_TIMEOUT"]
TLS_FAILED = _NAMED["TLS_FAILED"]
TLS_UNTRUSTED = _NAMED["TLS_UNTRUSTED"]
TOKEN_REFUSED = _NAMED["LOGIN_TOKEN_REFUSED"]
TOKEN_UNAVAILABLE = _NAMED["LOGIN_TOKEN_UNAVAILABLE"]
UNAVAILABLE = _NAMED["KAFKA_UNAVAILABLE"]
UNSUPPORTED = _NAMED["UNSUPPORTED_VERSION"]

_AIOKAFKA_REASONS: tuple[tuple[type[Exception], Reason], ...] = (
    (aiokafka.errors.AuthenticationFailedError, AUTHENTICATION_FAILED),
    (aiokafka.errors.AuthenticationMethodNotSupported, KAFKA_REASONS[33]),
    (aiokafka.errors.ProducerFenced, KAFKA_REASONS[90]),
    (aiokafka.errors.ProducerClosed, CLOSED),
    (aiokafka.errors.KafkaTimeoutError, TIMEOUT),
    (aiokafka.errors.IncompatibleBrokerVersion, UNSUPPORTED),
    (aiokafka.errors.UnsupportedCodecError, KAFKA_REASONS[76]),
    (aiokafka.errors.RecordTooLargeError, KAFKA_REASONS[10]),
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
    detail = _detail(error, named=reason is not UNAVAILABLE)
    if reason is UNAVAILABLE and node_id is not None:
        reason = replace(UNAVAILABLE, meaning=f"broker {node_id} cannot be reached")
        if isinstance(error, aiokafka.errors.NodeNotReadyError):
            detail = ""  # It says only that.
    return _make(reason, doing, alias=alias, detail=detail)


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


def _detail(error: BaseException, *, named: bool = True) -> str:
    """`named`: with the class name also of an exception of aiokafka's."""
    text = str(error).strip()
    name = type(error).__name__
    if isinstance(error.__cause__, ValueError):
        text += f": {error.__cause__}"  # A broker's answer that could not be read ended the connection.
    if isinstance(error, aiokafka.errors.KafkaError) and not named:
        return text.removeprefix(name).removeprefix(": ")
    if not text:
        return name
    return text if text.startswith((name, "[")) else f"{name}: {text}"
