"""Spans and their W3C context between services. Without an exporter, spans cost nothing and a caller's
context is still passed on."""

import re
import uuid
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from twinlog.errors import TwinlogError

REQUEST_ID = "x-request-id"
_SOUND_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CONTEXT_KEYS = frozenset(("traceparent", "tracestate"))
MOST_CONTEXT_CHARACTERS = 512
"""Most characters accepted of a caller's `traceparent` or `tracestate`; W3C requires no more."""

_propagator = TraceContextTextMapPropagator()


def request_id_of(given: str | bytes | None) -> str:
    """The id of a call in the log: the caller's, if it is 1 to 64 of `A-Z a-z 0-9 . _ -`, else a new one."""
    if isinstance(given, str) and _SOUND_REQUEST_ID.fullmatch(given):
        return given
    return uuid.uuid4().hex[:16]


def outgoing_metadata() -> tuple[tuple[str, str], ...]:
    """Metadata of a call to another service: the id of the request being served, and the trace."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    own = structlog.contextvars.get_contextvars().get("request_id")
    return ((REQUEST_ID, request_id_of(own)), *carrier.items())


def incoming_context(metadata: Mapping[str, str | bytes]) -> Context:
    """The trace of a caller; an empty one when it sends none, or one that is too long."""
    carrier = {
        key: value
        for key, value in metadata.items()
        if key in _CONTEXT_KEYS and isinstance(value, str) and len(value) <= MOST_CONTEXT_CHARACTERS
    }
    return _propagator.extract(carrier, Context())


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, str | int | float | bool | Sequence[str]] | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: Context | None = None,
) -> Iterator[Span]:
    """A step of work; records a failure."""
    with trace.get_tracer("twinlog").start_as_current_span(
        name,
        context=parent,
        kind=kind,
        attributes=attributes,
        # An exception's text may hold secrets that logs do not show: its type or reason is enough.
        record_exception=False,
        set_status_on_exception=False,
    ) as started:
        try:
            yield started
        except Exception as error:
            failed(started, error)
            raise


def failed(of: Span, error: Exception) -> None:
    """Mark a span as failed, with the reason of a TwinlogError or the type of another exception."""
    of.set_status(Status(StatusCode.ERROR))
    of.set_attribute("error.type", error.reason if isinstance(error, TwinlogError) else type(error).__name__)


def traceparent() -> str:
    """The current span in W3C's form; empty without one. For receivers that no RPC reaches."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get("traceparent", "")


def linked_to(given: str) -> list[Link]:
    """A link to the span in a `traceparent`; none when it has no valid one."""
    context = trace.get_current_span(incoming_context({"traceparent": given})).get_span_context()
    return [Link(context)] if context.is_valid else []


@contextmanager
def under(context: Context) -> Iterator[None]:
    """Spans that begin meanwhile belong to this context: the work is done on its behalf."""
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


@contextmanager
def detached_span(name: str, attributes: Mapping[str, str | int | float | bool]) -> Iterator[Span]:
    """Like `span`, for a generator: code that runs between two of its steps belongs to its caller."""
    started = trace.get_tracer("twinlog").start_span(name, attributes=attributes)
    try:
        yield started
    except Exception as error:
        failed(started, error)
        raise
    finally:
        started.end()


def add_trace_ids(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor that adds the ids of the current span, so that a trace leads to its log lines."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event.setdefault("trace_id", trace.format_trace_id(context.trace_id))
        event.setdefault("span_id", trace.format_span_id(context.span_id))
    return event
