"""Spans of a task's writes. Each is a trace of its own, linked to the epoch's, because an epoch has thousands
of them. No spans are created if traces are not exported."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link

from twinlog import __version__
from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.model import Flow
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog.telemetry.otlp import open_traces
from twinlog.telemetry.tracing import failed, linked_to
from twinlog_source.task.writing.round import Round

_NANOSECONDS = 1e9


@cache
def export_spans() -> None:
    """Open the exporter of this process, which lives as long as the process: a worker runs many tasks, one
    after the other. Call it after Spark's fork, because it starts a thread."""
    open_traces("source-task", __version__, os.environ)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpans:
    attributes: dict[str, str | int]
    links: Sequence[Link]
    clock: Clock

    @classmethod
    def of(cls, flow: Flow, slot: int, *, traceparent: str, clock: Clock) -> "TaskSpans":
        attributes: dict[str, str | int] = dict(flow_attributes(flow.source, flow.target))
        attributes["twinlog.slot"] = slot
        return cls(attributes=attributes, links=linked_to(traceparent), clock=clock)

    def round(self, done: Round) -> None:
        """A round was committed, or has failed."""
        took_seconds = self.clock.monotonic() - done.began_at
        self._span("round", took_seconds, len(done.positions), done.size_bytes, done.failure)

    def append(
        self, took_seconds: float, partitions: int, size_bytes: int, failure: KafkaError | None
    ) -> None:
        """A request with batches of preserved copies was answered, or lost."""
        self._span("append", took_seconds, partitions, size_bytes, failure)

    def _span(
        self, name: str, took_seconds: float, partitions: int, size_bytes: int, failure: KafkaError | None
    ) -> None:
        span = trace.get_tracer("twinlog").start_span(
            name,
            context=Context(),
            links=self.links,
            start_time=int((self.clock.now_ms() / 1000 - took_seconds) * _NANOSECONDS),
            attributes={**self.attributes, "twinlog.partitions": partitions, "twinlog.bytes": size_bytes},
        )
        if failure is not None:
            failed(span, failure)
        span.end()
