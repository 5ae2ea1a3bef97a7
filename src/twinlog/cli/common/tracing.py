"""The trace of a command, which its calls join. Only if OpenTelemetry's variables enable traces and its
exporter is installed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.trace import SpanKind

from twinlog import __version__
from twinlog.telemetry.otlp import open_traces, wanted
from twinlog.telemetry.tracing import incoming_context, span, under


@contextmanager
def traced(command: str, environment: Mapping[str, str]) -> Iterator[None]:
    """Trace the running command. A trace in `TRACEPARENT` is continued, whether or not it is exported."""
    given = incoming_context({"traceparent": environment.get("TRACEPARENT", "")})
    if "TRACES" not in wanted(environment):
        with under(given):
            yield
        return
    exporting = open_traces("cli", __version__, environment)
    try:
        with span(f"twinlog {command}", kind=SpanKind.CLIENT, parent=given):
            yield
    finally:
        exporting.close()
