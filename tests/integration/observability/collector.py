"""A collector of OTLP in the test's own process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(slots=True)
class Collected:
    metrics: set[str] = field(default_factory=set)
    spans: list[Any] = field(default_factory=list)
    origins: dict[bytes, str] = field(default_factory=dict)
    """`service.name` of each span, by its id."""
    events: set[str] = field(default_factory=set)
    everything: bytearray = field(default_factory=bytearray)
    """All that came, as it came."""


class Collector:
    """One for all three signals: their methods have one name, so it tells them apart by the request."""

    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._collected.everything += request.SerializeToString()
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            self._collected.metrics |= {
                metric.name
                for resource in request.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            }
            return metrics_service_pb2.ExportMetricsServiceResponse()
        if isinstance(request, trace_service_pb2.ExportTraceServiceRequest):
            for resource in request.resource_spans:
                names = {each.key: each.value.string_value for each in resource.resource.attributes}
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    self._collected.spans.append(span)
                    self._collected.origins[span.span_id] = names["service.name"]
            return trace_service_pb2.ExportTraceServiceResponse()
        self._collected.events |= {
            record.body.string_value
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        }
        return logs_service_pb2.ExportLogsServiceResponse()


@asynccontextmanager
async def collector() -> AsyncIterator[tuple[str, Collected]]:
    collected = Collected()
    server = grpc.aio.server()
    servicer = Collector(collected)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(servicer, server)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(servicer, server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"http://127.0.0.1:{port}", collected
    finally:
        await server.stop(0)
