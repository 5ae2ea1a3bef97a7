"""Every RPC passes, outermost first: duration metric, logging context, error mapping, the gate that
identifies the caller, the request, the caller's right, and the audit log.

Invariant: a request is read only after its caller is identified and counted, and within `request_seconds`.
Methods with one request are therefore served as streams of requests, which looks the same on the wire: gRPC
itself would wait for the one request as long as the caller likes, before any check.
"""

import asyncio
import inspect
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_status import rpc_status
from opentelemetry.metrics import Meter
from opentelemetry.trace import SpanKind

from twinlog import __version__
from twinlog.config.security import AuthSettings
from twinlog.errors import ConfigError, TwinlogError
from twinlog.service.access.audit import UNKNOWN_CALLER, Audit
from twinlog.service.access.gate import Gate, last_identified, peer_address
from twinlog.service.access.roles import HEALTH_PREFIX, is_change
from twinlog.service.answering_process import PROCESS_METADATA_KEY, AnsweringProcess
from twinlog.service.errors_wire import ExhaustedError, internal_status, status_of
from twinlog.service.health_calls import HealthCalls
from twinlog.service.waiting import timeout_of_own_time
from twinlog.telemetry import instruments
from twinlog.telemetry.logging import RepeatLimiter
from twinlog.telemetry.metrics.service import RPC_SERVER_CALL_DURATION
from twinlog.telemetry.tracing import REQUEST_ID, incoming_context, request_id_of, span

_log = structlog.stdlib.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
"""The type of `context` in a servicer's methods (mypy's stubs want both type arguments)."""

if TYPE_CHECKING:
    # Not subscriptable at run time.
    _Handler = grpc.RpcMethodHandler[Any, Any]

REQUEST_SECONDS = 10.0
"""Longest time between a call and its request."""

VERSION_METADATA_KEY = "twinlog-version"
"""Every answer carries the server's version."""
SECURITY_METADATA_KEY = "twinlog-security"
"""Every answer carries the port's security; see `GrpcServer`."""


LOG_INTERVAL_SECONDS = 0.2
"""Time between log lines of refused calls of one method and reason: a client that calls in a loop fills no
disk."""


ANSWER_SHARE = 0.9
"""Share of the caller's deadline within which an answer comes: the reason of a delay must reach the caller
before its own deadline, which would only say that the service did not answer."""


def too_late() -> TwinlogError:
    """The refusal when the service knows no reason for the delay."""
    return ExhaustedError(
        "the answer takes longer than the call may last: ask for less at once, or again later",
        reason="CALL_TOO_SHORT",
    )


class RpcBoundary(grpc.aio.ServerInterceptor):
    """Sends only our own statuses: an unmapped exception would show its text to the client."""

    def __init__(
        self,
        *,
        service: str,
        meter: Meter,
        hindrance: Callable[[], TwinlogError] = too_late,
        gate: Gate | None = None,
        security: str = "",
        process: AnsweringProcess | None = None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """`hindrance` is sent to callers whose time is nearly up; `gate` decides access, None = everything is
        allowed; `security` and `process` are sent to every caller."""
        self._service = service
        self._gate = gate or Gate(AuthSettings())
        self._metadata = (
            (VERSION_METADATA_KEY, __version__),
            *(((SECURITY_METADATA_KEY, security),) if security else ()),
            *(((PROCESS_METADATA_KEY, process.metadata()),) if process is not None else ()),
        )
        self._hindrance = hindrance
        self._request_seconds = request_seconds
        self._health = HealthCalls(request_seconds=request_seconds)
        self._limiter = RepeatLimiter(interval_seconds=LOG_INTERVAL_SECONDS)
        self._refusals = RepeatLimiter(interval_seconds=LOG_INTERVAL_SECONDS)
        self._duration = instruments.histogram(meter, RPC_SERVER_CALL_DURATION)

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "_Handler":
        handler: Any = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            return None  # type: ignore[return-value]  # gRPC answers UNIMPLEMENTED
        serializers = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary is not None:
            behaviour = self._call(method, handler.unary_unary, one=True)
            return grpc.stream_unary_rpc_method_handler(behaviour, **serializers)
        if handler.stream_unary is not None:
            behaviour = self._call(method, handler.stream_unary, one=False)
            return grpc.stream_unary_rpc_method_handler(behaviour, **serializers)
        if handler.unary_stream is not None:
            behaviour = self._stream(method, handler.unary_stream, one=True)
            return grpc.stream_stream_rpc_method_handler(behaviour, **serializers)
        behaviour = self._stream(method, handler.stream_stream, one=False)
        return grpc.stream_stream_rpc_method_handler(behaviour, **serializers)

    def _call(self, method: str, behaviour: Callable[[Any, Context], Awaitable[Any]], *, one: bool) -> Any:
        """`one`: the method takes one request, else a stream."""

        async def bounded(requests: AsyncIterator[Any], context: Context) -> Any:
            await context.send_initial_metadata(self._metadata)
            async with self._boundary(method, context, requests, one=one) as request:
                return await self._in_time(behaviour(request, context), context)

        return bounded

    async def _in_time(self, answer: Awaitable[Any], context: Context) -> Any:
        seconds: float | None = context.time_remaining()
        try:
            async with asyncio.timeout(None if seconds is None else seconds * ANSWER_SHARE) as limit:
                return await answer
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._hindrance() from None

    def _stream(self, method: str, behaviour: Callable[[Any, Context], Any], *, one: bool) -> Any:
        if not inspect.isasyncgenfunction(behaviour):
            return self._call(method, behaviour, one=one)

        async def bounded(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            await context.send_initial_metadata(self._metadata)
            async with self._boundary(method, context, requests, one=one) as request:
                async for response in behaviour(request, context):
                    yield response

        return bounded

    async def _one_request(self, requests: AsyncIterator[Any]) -> Any:
        """Raises ConfigError (REQUEST_MISSING, REQUEST_UNREADABLE)."""
        try:
            async with timeout_of_own_time(self._request_seconds):
                return await anext(requests)
        except (StopAsyncIteration, TimeoutError):
            raise ConfigError(
                f"the call sent no request within {self._request_seconds:g} s", reason="REQUEST_MISSING"
            ) from None
        except DecodeError:
            raise ConfigError("the request is none of this method", reason="REQUEST_UNREADABLE") from None

    @asynccontextmanager
    async def _boundary(
        self, method: str, context: Context, requests: AsyncIterator[Any], *, one: bool
    ) -> AsyncIterator[Any]:
        """Yields the one request, or `requests`."""
        if method.startswith(HEALTH_PREFIX):
            async with self._health.request(method, context, requests) as request:
                yield request
            return
        started = time.monotonic()
        code = grpc.StatusCode.OK
        metadata = dict(context.invocation_metadata() or ())
        request_id = request_id_of(metadata.get(REQUEST_ID))
        try:
            with (
                # Calls between tasks and their drivers last an epoch: no span of a call is useful.
                self._span(method, request_id, metadata) if one else nullcontext(),
                structlog.contextvars.bound_contextvars(
                    request_id=request_id, rpc_method=method, peer=context.peer()
                ),
            ):
                try:
                    async with self._admitted(method, context, requests, one=one) as request:
                        yield request
                except (asyncio.CancelledError, grpc.aio.AbortError, GeneratorExit):
                    raise
                except TwinlogError as error:
                    left_out = self._limiter.admit((method, error.reason), now=time.monotonic())
                    if left_out is not None:
                        _log.info("rpc_refused", reason=error.reason, message=str(error), left_out=left_out)
                    await context.abort_with_status(
                        rpc_status.to_status(status_of(error, service=self._service))
                    )
                except Exception as error:
                    if _is_of_a_call_that_is_over(error):
                        with suppress(grpc.aio.InternalError):
                            await context.abort(grpc.StatusCode.CANCELLED)
                        raise asyncio.CancelledError from error
                    error_id = uuid.uuid4().hex[:12]
                    left_out = self._limiter.admit((method, type(error)), now=time.monotonic())
                    if left_out is not None:
                        _log.exception("rpc_failed", error_id=error_id, left_out=left_out)
                    status = internal_status(service=self._service, error_id=error_id)
                    await context.abort_with_status(rpc_status.to_status(status))
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.AbortError:
            code = _status_code(context)
            raise
        finally:
            attributes = {"rpc.method": method.lstrip("/"), "rpc.response.status_code": code.name}
            if code is not grpc.StatusCode.OK:
                attributes["error.type"] = code.name
            self._duration.record(time.monotonic() - started, attributes)

    def _span(
        self, method: str, request_id: str, metadata: Mapping[str, str | bytes]
    ) -> AbstractContextManager[object]:
        return span(
            method.lstrip("/"),
            {"rpc.system": "grpc", "rpc.method": method.lstrip("/"), "twinlog.request.id": request_id},
            kind=SpanKind.SERVER,
            parent=incoming_context(metadata),
        )

    @asynccontextmanager
    async def _admitted(
        self, method: str, context: Context, requests: AsyncIterator[Any], *, one: bool
    ) -> AsyncIterator[Any]:
        """Yields the request of a caller with the right to it; a change is in the audit log, whatever its
        outcome."""
        outcome = "FAILED"
        audit: Audit | None = None
        request: object = None
        try:
            caller = await self._gate.identify(method, context)
            with self._gate.entered(method, caller, context):
                request = await self._one_request(requests) if one else requests
                self._gate.require(method, caller)
                if is_change(method):
                    audit = Audit(method=method, caller=caller, peer=context.peer(), request=request)
                if caller.is_known:
                    structlog.contextvars.bind_contextvars(caller=caller.name)
                try:
                    yield request
                finally:
                    structlog.contextvars.unbind_contextvars("caller")
            outcome = "OK"
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "CANCELLED"
            raise
        except TwinlogError as error:
            outcome = error.reason
            raise
        finally:
            if audit is not None:
                audit.ended(outcome)
            elif is_change(method):
                self._audit_refused(method, outcome, context, request)

    def _audit_refused(self, method: str, outcome: str, context: Context, request: object) -> None:
        """Log refused calls at intervals: an unknown caller must not fill the disk with lines."""
        caller = last_identified() or UNKNOWN_CALLER
        left_out: int | None = 0
        if not caller.is_known:
            request = None
            key = (method, outcome, peer_address(context.peer()))
            left_out = self._refusals.admit(key, now=time.monotonic())
        if left_out is not None:
            audit = Audit(method=method, caller=caller, peer=context.peer(), request=request)
            audit.ended(outcome, left_out=left_out)


def _is_of_a_call_that_is_over(error: BaseException) -> bool:
    """gRPC could not write, as its caller has just died: it cancels the call only a moment later."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_of_a_call_that_is_over, error.exceptions))
    return isinstance(error, grpc.aio.InternalError)


def _status_code(context: Context) -> grpc.StatusCode:
    code: Any = context.code()
    for status in grpc.StatusCode:
        if code in (status, status.value[0]):
            return status
    return grpc.StatusCode.UNKNOWN
