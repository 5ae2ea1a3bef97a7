"""Exports metrics, traces and logs by OTLP, when OpenTelemetry's own variables ask for it.

A signal is exported when OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL_EXPORTER_OTLP_<SIGNAL>_ENDPOINT, is set;
OTEL_<SIGNAL>_EXPORTER=none and OTEL_SDK_DISABLED=true turn it off. Everything else (headers, interval,
sampling, certificates) is the SDK's and is read from its variables. The protocol is gRPC.

Invariants:
- the service never waits for a collector. Queues are bounded and drop, separate threads send, and at the end
  of the process they share `FLUSH_SECONDS`;
- a variable that the SDK does not accept costs only the signal that it concerns, and a warning.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
from opentelemetry import trace
from opentelemetry._logs import SeverityNumber

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

FLUSH_SECONDS = 2.0
SIGNALS = ("METRICS", "TRACES", "LOGS")
OWN_LOGGER = "opentelemetry"
"""Lines of this logger are not exported: a failed line would report itself for ever."""

_log = structlog.stdlib.get_logger(__name__)


def wanted(environment: Mapping[str, str]) -> frozenset[str]:
    """The signals that the variables ask for.

    >>> sorted(wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317", "OTEL_LOGS_EXPORTER": "none"}))
    ['METRICS', 'TRACES']
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return frozenset()
    return frozenset(
        signal
        for signal in SIGNALS
        if (
            environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
            or environment.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
        )
        and "otlp" in environment.get(f"OTEL_{signal}_EXPORTER", "otlp").split(",")
    )


@dataclass(slots=True)
class Otlp:
    """The exporters; `close` ends them within `FLUSH_SECONDS`, whatever the collector does."""

    metric_readers: list[Any] = field(default_factory=list)
    ends: list[Callable[[], object]] = field(default_factory=list)
    """Called by `close`, each in a thread of its own."""

    def close(self) -> None:
        threads = [threading.Thread(target=end, name="otlp-flush", daemon=True) for end in self.ends]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + FLUSH_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def open_traces(service: str, version: str, environment: Mapping[str, str]) -> Otlp:
    """Traces only, for a process that is no service, when the variables ask for them and are accepted; else
    nothing, and no log line."""
    otlp = Otlp()
    if "TRACES" not in wanted(environment):
        return otlp
    with suppress(Exception):  # not installed, or a variable that the SDK does not accept
        _open_traces(otlp, resource_of(service, version))
    return otlp


def resource_of(service: str, version: str, **more: str) -> "Resource":
    """The resource of this process, in OpenTelemetry's attributes."""
    from opentelemetry.sdk.resources import Resource

    return Resource.create(
        {
            "service.name": f"twinlog-{service}",
            "service.namespace": "twinlog",
            "service.version": version,
            **more,
        }
    )


def open_otlp(signals: frozenset[str], *, resource: "Resource") -> Otlp:
    """Exporters of these signals. A signal with invalid variables is logged and left out; without the package
    all are."""
    otlp = Otlp()
    exported = []
    for signal in sorted(signals):
        try:
            _OPENERS[signal](otlp, resource)
        except ImportError:
            _log.error(
                "otlp_not_installed",
                reason="OTLP_NOT_INSTALLED",
                signals=sorted(signals),
                remedy="pip install 'twinlog-service[otlp]'",
            )
            return otlp
        except Exception as error:  # noqa: BLE001 (the SDK raises of many kinds; none may stop a service)
            refused_setting(signal, error)
        else:
            exported.append(signal)
    if exported:
        _log.info("otlp_exporting", signals=exported)
    return otlp


def refused_setting(signal: str, error: Exception) -> None:
    """Log that the SDK refused its variables for a signal, which is left out. Its errors name no variable, so
    the remedy names those that are set."""
    names = ", ".join(sorted(name for name in os.environ if name.startswith("OTEL_")))
    _log.warning(
        "telemetry_setting_refused",
        reason="TELEMETRY_SETTING_INVALID",
        signal=signal,
        message=f"{str(error) or type(error).__name__}; {signal.lower()} are not exported",
        remedy=f"correct or unset what is wrong of {names}",
    )


def _open_metrics(otlp: Otlp, _resource: "Resource") -> None:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    otlp.metric_readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))


def _open_traces(otlp: Otlp, resource: "Resource") -> None:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    otlp.ends.append(provider.shutdown)


def _open_logs(otlp: Otlp, resource: "Resource") -> None:
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    logs = LoggerProvider(resource=resource, shutdown_on_exit=False)
    logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    handler = LogExport(logs.get_logger("twinlog").emit)
    logging.getLogger().addHandler(handler)
    otlp.ends.append(logs.shutdown)


_OPENERS = {"METRICS": _open_metrics, "TRACES": _open_traces, "LOGS": _open_logs}


class LogExport(logging.Handler):
    """Passes every line of the process to `emit` in the form of stdout: redacted, with its keys as
    attributes. A line that fails follows `logging`'s rule for such errors (`handleError`) and never
    raises."""

    def __init__(self, emit: Callable[..., object]) -> None:
        super().__init__()
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._export(record)
        except Exception:  # noqa: BLE001 (as every handler of `logging`: a line never fails who writes it)
            self.handleError(record)

    def _export(self, record: logging.LogRecord) -> None:
        if record.name.startswith(OWN_LOGGER):
            return
        # The formatter of stdout is the only place that redacts.
        stdout = next((each for each in logging.getLogger().handlers if each is not self), None)
        if stdout is None:
            return
        try:
            event: dict[str, Any] = json.loads(stdout.format(record))
        except ValueError:
            event = {"event": stdout.format(record)}
        self._emit(
            timestamp=int(record.created * 1e9),
            severity_number=_SEVERITIES.get(record.levelname, SeverityNumber.INFO),
            severity_text=record.levelname,
            body=str(event.pop("event", "")),
            attributes={
                key: value if isinstance(value, str | int | float | bool) else json.dumps(value, default=str)
                for key, value in event.items()
                if value is not None
            },
        )


_SEVERITIES = {
    "DEBUG": SeverityNumber.DEBUG,
    "INFO": SeverityNumber.INFO,
    "WARNING": SeverityNumber.WARN,
    "ERROR": SeverityNumber.ERROR,
    "CRITICAL": SeverityNumber.FATAL,
}
