"""Our errors as google.rpc.Status and back: the only table between `twinlog.errors` and gRPC codes.

Every error on the wire carries exactly one ErrorInfo (AIP-193): `reason`, `domain` (`<service>.twinlog`) and
the error's metadata. The class travels in the metadata under `class`, so a client gets the same class again.
"""

import contextlib

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from twinlog.errors import (
    ConfigError,
    ConflictError,
    FatalKafkaError,
    KafkaError,
    NotFoundError,
    StateError,
    TransientKafkaError,
    TwinlogError,
    WireFormatError,
)
from twinlog.telemetry.logging import cut


class ExhaustedError(TwinlogError):
    """A bounded resource is used up (too many watchers, a watcher that reads too slowly): try again later."""

    retriable = True
    default_reason = "EXHAUSTED"


class PeerUnavailableError(TwinlogError):
    """A service did not answer: it is down, not reachable, or too slow."""

    retriable = True
    default_reason = "PEER_UNAVAILABLE"


class UnauthenticatedError(TwinlogError):
    """The caller is unknown."""

    default_reason = "NOT_AUTHENTICATED"


class ForbiddenError(TwinlogError):
    """The caller is known and has no right to the call."""

    default_reason = "NOT_AUTHORIZED"


_CODES: tuple[tuple[type[TwinlogError], int], ...] = (
    (ConfigError, code_pb2.INVALID_ARGUMENT),
    (NotFoundError, code_pb2.NOT_FOUND),
    (ConflictError, code_pb2.ABORTED),
    (StateError, code_pb2.FAILED_PRECONDITION),
    (TransientKafkaError, code_pb2.UNAVAILABLE),
    (FatalKafkaError, code_pb2.FAILED_PRECONDITION),
    (KafkaError, code_pb2.UNKNOWN),
    (UnauthenticatedError, code_pb2.UNAUTHENTICATED),
    (ForbiddenError, code_pb2.PERMISSION_DENIED),
    (ExhaustedError, code_pb2.RESOURCE_EXHAUSTED),
    (PeerUnavailableError, code_pb2.UNAVAILABLE),
    (WireFormatError, code_pb2.DATA_LOSS),
    (TwinlogError, code_pb2.INTERNAL),
)
"""The first match wins, so subclasses stand before their parents."""

_CLASSES = {error_class.__name__: error_class for error_class, _ in _CODES}
_CLASS_KEY = "class"
_KAFKA_CODE_KEY = "kafka_code"
_RETRY_SECONDS = 1

MAX_MESSAGE_BYTES = 1_500
MAX_METADATA_BYTES = 300
"""Size of a key or a value."""
MAX_ALL_METADATA_BYTES = 2_000
"""A status travels in HTTP/2 trailers with message and details, and clients accept some 8 KB of them; but
errors repeat text of the caller, which may be much longer. Bytes of the encoded message: a character other
than printable ASCII takes three."""

INTERNAL_MESSAGE = "internal error; the service's log has the details under this error_id"


def status_of(error: TwinlogError, *, service: str) -> status_pb2.Status:
    """The status that carries `error` to a client; its message must hold no secret (see TwinlogError). Long
    texts are cut."""
    error_class, code = next(entry for entry in _CODES if isinstance(error, entry[0]))
    message = _cut(str(error), MAX_MESSAGE_BYTES)
    metadata: dict[str, str] = {}
    left_bytes = MAX_ALL_METADATA_BYTES
    for key, value in error.metadata.items():
        key, value = _cut(key, MAX_METADATA_BYTES), _cut(value, MAX_METADATA_BYTES)
        left_bytes -= _wire_bytes(key) + _wire_bytes(value)
        if left_bytes < 0:
            break
        metadata[key] = value
    metadata[_CLASS_KEY] = error_class.__name__
    if isinstance(error, KafkaError):
        metadata[_KAFKA_CODE_KEY] = str(error.code)
    details = [_pack(_error_info(error.reason, service, metadata))]
    if isinstance(error, ConfigError):
        field = metadata.get("key", metadata.get("field", ""))
        description = _cut(message, MAX_METADATA_BYTES)
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=description)
        details.append(_pack(error_details_pb2.BadRequest(field_violations=[violation])))
    elif error.retriable:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.seconds = _RETRY_SECONDS
        details.append(_pack(retry))
    return status_pb2.Status(code=code, message=message, details=details)


def _wire_bytes(text: str) -> int:
    """The size of a status message on the wire, where gRPC percent-encodes it."""
    return sum(
        1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode(errors="replace"))
        for character in text
    )


def _cut(text: str, limit_bytes: int) -> str:
    """The part of the text that fits so many bytes on the wire, and the number of characters left out."""
    # No character takes more than 12.
    if len(text) * 12 <= limit_bytes:
        return text
    taken = 0
    for index, character in enumerate(text[: limit_bytes + 1]):
        taken += _wire_bytes(character)
        if taken > limit_bytes:
            return cut(text, index)
    return text


def internal_status(*, service: str, error_id: str) -> status_pb2.Status:
    """The status of a defect: a fixed text and an id, which the log has beside the traceback."""
    info = _error_info("INTERNAL", service, {"error_id": error_id, _CLASS_KEY: TwinlogError.__name__})
    return status_pb2.Status(
        code=code_pb2.INTERNAL, message=f"{INTERNAL_MESSAGE}: {error_id}", details=[_pack(info)]
    )


def error_from_rpc(failure: grpc.RpcError, *, peer: str = "the service") -> TwinlogError:
    """The error behind a failed call; `peer` names the other side in our own messages.

    A status without ErrorInfo comes from gRPC itself (peer away, deadline, unknown method); its code decides.
    """
    status = _status_from(failure)
    if status is not None:
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
                return _rebuild(info, status.message)
    return _from_bare_code(failure, peer)


def _status_from(failure: grpc.RpcError) -> status_pb2.Status | None:
    # from_call raises ValueError when code and details contradict each other; ignore the details then.
    with contextlib.suppress(ValueError, AttributeError):
        return rpc_status.from_call(failure)
    return None


def _rebuild(info: error_details_pb2.ErrorInfo, message: str) -> TwinlogError:
    metadata = dict(info.metadata)
    error_class = _CLASSES.get(metadata.pop(_CLASS_KEY, ""), TwinlogError)
    code = metadata.pop(_KAFKA_CODE_KEY, "-1")
    if issubclass(error_class, KafkaError):
        number = int(code) if code.lstrip("-").isdecimal() else -1
        return error_class(message, reason=info.reason, metadata=metadata, code=number)
    return error_class(message, reason=info.reason, metadata=metadata)


def _from_bare_code(failure: grpc.RpcError, peer: str) -> TwinlogError:
    code = (
        failure.code() if isinstance(failure, grpc.Call | grpc.aio.AioRpcError) else grpc.StatusCode.UNKNOWN
    )
    details = (failure.details() if isinstance(failure, grpc.Call | grpc.aio.AioRpcError) else "") or ""
    metadata = {"peer": peer, "grpc_code": code.name}
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            cause = details.rpartition("last error: ")[2].removeprefix("UNKNOWN: ")
            tls = _tls_failure(cause)
            if tls:
                return PeerUnavailableError(
                    f"{peer} is not taken for what it says: {tls}", reason="TLS_FAILED", metadata=metadata
                )
            if any(mark in cause for mark in _CLOSED) and not cause.startswith(_STREAM_ENDED):
                cause += " (if it speaks TLS: does it take this client's certificate, or miss one?)"
            return PeerUnavailableError(f"{peer} is not reachable: {cause}", metadata=metadata)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return PeerUnavailableError(
                f"{peer} did not answer in time", reason="PEER_TIMEOUT", metadata=metadata
            )
        case grpc.StatusCode.UNIMPLEMENTED:
            return StateError(
                f"{peer} does not know this method: is it another service, or another version? ({details})",
                reason="UNIMPLEMENTED",
                metadata=metadata,
            )
        case _:
            kind = NotFoundError if code is grpc.StatusCode.NOT_FOUND else TwinlogError
            return kind(f"{peer}: {code.name}: {details}", reason=f"GRPC_{code.name}", metadata=metadata)


_CLOSED = ("Socket closed", "Connection reset by peer", "Broken pipe")
"""gRPC's messages for a connection that the other side closed during its setup; which one depends on the
moment."""
_STREAM_ENDED = "Stream removed"
"""Before such a message: the connection had been set up, and its peer ended during a call."""

_TLS_FAILURES = (
    (
        "certificate has expired",
        "its certificate has expired: renew the file that its twinlog.tls.certificate.file names",
    ),
    ("not yet valid", "its certificate is not valid yet: compare the clocks of both machines"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "its certificate does not come from a CA that is known here: see twinlog.tls.ca.file",
    ),
    (
        "Hostname Verification",
        "its certificate is for another host: see twinlog.<service>.tls.server.name",
    ),
    (
        "certificate signature failure",
        "its certificate does not come from a CA that is known here: see twinlog.tls.ca.file",
    ),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS: compare the twinlog.tls keys of both sides"),
    ("handshake failed", "the TLS handshake failed: compare the twinlog.tls keys of both sides"),
)


def _tls_failure(cause: str) -> str:
    """The meaning of gRPC's message for a failed handshake; empty for any other failure."""
    return next((words for mark, words in _TLS_FAILURES if mark in cause), "")


def _error_info(reason: str, service: str, metadata: dict[str, str]) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain=f"{service}.twinlog", metadata=metadata)


def _pack(message: object) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)  # type: ignore[arg-type]  # any generated message
    return packed
