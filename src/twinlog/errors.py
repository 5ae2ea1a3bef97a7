"""Errors by what the caller can do. Each has a stable `reason` and tells whether a retry may help.

Absence is a value (`None` or an enum), never an error.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

_T = TypeVar("_T")


class TwinlogError(Exception):
    """The base of all of Twinlog's errors.

    `reason` is UPPER_SNAKE, stable, and documented in docs/reasons.md; `metadata` repeats the variable parts
    of the message, never a secret.
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

    def __init__(self, message: str, *, key: str = "", **more: Any) -> None:
        """`key`: of the metadata, the key of the file, option or argument that is wrong."""
        super().__init__(message, **more)
        if key:
            self.metadata["key"] = key


class WireFormatError(TwinlogError):
    """Bytes that do not have the expected format; metadata has topic, partition and offset where known."""

    default_reason = "WIRE_FORMAT"


class NotFoundError(TwinlogError):
    """A named thing (flow, topic, group) does not exist."""

    default_reason = "NOT_FOUND"


class ConflictError(TwinlogError):
    """The state has changed since it was read: read it again, then decide again."""

    default_reason = "CONFLICT"


class StateError(TwinlogError):
    """The object is in a state that does not allow this (paused, not started)."""

    default_reason = "WRONG_STATE"


class KafkaError(TwinlogError):
    """A broker or client refused or failed. `code` is Kafka's numeric error code, -1 if there is none."""

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
    """Try again: broker down, leader moving, time-out."""

    retriable = True
    default_reason = "KAFKA_UNAVAILABLE"


class FatalKafkaError(KafkaError):
    """Retrying does not help: unauthorised, fenced, unsupported, invalid."""

    default_reason = "KAFKA_REFUSED"


def required(answer: _T | KafkaError) -> _T:
    """What a cluster said of one thing among many. Raises what it said instead."""
    if isinstance(answer, KafkaError):
        raise answer
    return answer


def first_of(failure: Exception) -> Any:
    """The first leaf of an exception group, which is what the group is of: it caused the cancellation of the
    others. Any other exception is one itself."""
    while isinstance(failure, ExceptionGroup):
        failure = failure.exceptions[0]
    return failure
