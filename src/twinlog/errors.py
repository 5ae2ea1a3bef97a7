"""Errors by what the caller can do about them. Each has a stable `reason` and says whether a retry may help.

Absence is a value (`None` or an enum), never one of these.
"""

from collections.abc import Mapping


class TwinlogError(Exception):
    """Root of all our errors.

    `reason` is UPPER_SNAKE, stable and documented in docs/reasons.md; `metadata` repeats what is dynamic in
    the message, never a secret.
    """

    retriable: bool = False
    default_reason: str = "INTERNAL"

    def __init__(
        self, message: str, *, reason: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason or self.default_reason
        self.metadata: dict[str, str] = dict(metadata or {})


class ConfigError(TwinlogError):
    """The configuration or a request is wrong: fix it. The message names file, line, key and expectation."""

    default_reason = "INVALID_CONFIG"


class WireFormatError(TwinlogError):
    """Bytes that are not what their place says; metadata holds topic, partition, offset where known."""

    default_reason = "WIRE_FORMAT"


class NotFoundError(TwinlogError):
    """A named thing (flow, topic, group) does not exist."""

    default_reason = "NOT_FOUND"


class ConflictError(TwinlogError):
    """The world changed since it was read: read again, then decide again."""

    default_reason = "CONFLICT"


class StateError(TwinlogError):
    """The thing is in a state that does not allow this (paused, not started)."""

    default_reason = "WRONG_STATE"


class KafkaError(TwinlogError):
    """A broker or client said no. `code` is Kafka's numeric error code, -1 if there is none."""

    default_reason = "KAFKA"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        code: int = -1,
    ) -> None:
        super().__init__(message, reason=reason, metadata=metadata)
        self.code = code


class TransientKafkaError(KafkaError):
    """Try again: broker away, leader moving, time-out."""

    retriable = True
    default_reason = "KAFKA_UNAVAILABLE"


class FatalKafkaError(KafkaError):
    """Will not heal by itself: unauthorised, fenced, unsupported, invalid."""

    default_reason = "KAFKA_REFUSED"
