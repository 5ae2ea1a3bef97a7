"""docs/metrics.md, generated from the table of metrics: `python -m twinlog.telemetry.metrics_page
docs/metrics.md`.
"""

import sys
from pathlib import Path

from twinlog.telemetry.metrics import METRICS
from twinlog.telemetry.metrics.spec import Kind, MetricSpec

_HEAD = """# Metrics

Generated from `src/twinlog/telemetry/metrics/` by `python -m twinlog.telemetry.metrics_page
docs/metrics.md`. Do not edit: a test compares.

Each service serves its metrics for Prometheus at `http://127.0.0.1:PORT/metrics`: source 17411, checkpoint
17412, heartbeat 17413, configsync 17414; `twinlog run` prints them. If a default port is in use, the
service takes a free one and says so in its log (`metrics_address_taken`).
`twinlog.<service>.metrics.listen` sets another address; an empty value turns the metrics of the service off.
The endpoint is plain HTTP without authentication: keep it on loopback or inside a network you trust. On
loopback it accepts only `localhost` and IP addresses as the host of the request, so that web pages of other
sites cannot read it (DNS rebinding). Gauges are computed at each scrape.

To export by OTLP, a service needs the extra `otlp`, which `make install` includes; with wheels of your own:
`pip install --find-links dist 'twinlog-service[otlp]'`. Set OpenTelemetry's own variables:
`OTEL_EXPORTER_OTLP_ENDPOINT` for metrics, traces and logs, `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` and the like
for one of them; `OTEL_TRACES_EXPORTER=none` turns one off. The protocol is gRPC. Without these variables
nothing is exported. If the collector cannot be reached or does not answer, telemetry is dropped and the copy
continues. If OpenTelemetry does not accept a variable, the service logs `telemetry_setting_refused` with its
name, and runs without the signal (metrics, traces or logs) that the variable is for.

- Spans: `prepare epoch`, `hand-over`, `epoch` (source); `round` and `append` (its tasks: a transaction, and
  a request with batches of preserved copies; traces of their own, linked to `prepare epoch`); `checkpoint
  pass`, `move` (checkpoint); `plan`, `apply` (configsync); one for each command of the command line, and one
  for each RPC, joined to its caller's by W3C `traceparent`. A command continues the trace of the variable
  `TRACEPARENT`. A failed span has `error.type`, and never the text of the exception.
- Every call between services carries `x-request-id` and the trace; log lines have `request_id`, `trace_id`
  and `span_id`.
- Exported logs are the lines of the service's own log, with the same secrets removed.

Metrics have the names of OpenTelemetry; the line "in Prometheus" has the name to use in queries. Times are in
seconds, sizes in bytes. Every series has `otel_scope_*` labels; `target_info` has service, instance and
version.

In Prometheus the attributes are labels, with underscores instead of dots: `twinlog_source_cluster`,
`messaging_destination_name`. Only gauges have partition numbers: such a gauge has one series for each
replicated partition of the process.
"""

_STRIMZI = """## Strimzi's board

With `twinlog.metrics.strimzi.cluster = NAME` the services also show the metrics of Strimzi's Grafana
dashboard "Strimzi Kafka Mirror Maker 2", by the names and labels that it uses (`kafka_connect_mirror_…`,
`strimzi_io_kind="KafkaMirrorMaker2"`, `strimzi_io_cluster="NAME"`): choose NAME on the dashboard. Its
connectors and tasks are the flows that a service owns; latencies and ages are those of a topic in the last
half minute, and the latency of checkpoints is the mean since the start. Panels about Connect and the JVM
(producer buffer, offset commit time, outstanding messages, heap, garbage collection, threads) stay empty;
the CPU panel shows Kubernetes' own metric."""

_UNITS_IN_WORDS = {
    "s": "_seconds",
    "By": "_bytes",
    "By/s": "_bytes_per_second",
    "{record}/s": "_per_second",
}
_MBEANS = {
    "source": "kafka.connect.mirror:type=MirrorSourceConnector,source=*,target=*,topic=*,partition=*",
    "checkpoint": "kafka.connect.mirror:type=MirrorCheckpointConnector,source=*,target=*,group=*,topic=*,"
    "partition=*",
}
_HISTOGRAM_SUFFIXES = "_bucket / _sum / _count"


def prometheus_name(spec: MetricSpec) -> str:
    """The name that the Prometheus exporter derives: units in words, `_total` for counters."""
    name = spec.name.replace(".", "_")
    unit = _UNITS_IN_WORDS.get(spec.unit, "")
    match spec.kind:
        case Kind.COUNTER:
            return f"{name}{unit}_total"
        case Kind.HISTOGRAM:
            return f"{name}{unit}{_HISTOGRAM_SUFFIXES}"
        case _:
            return f"{name}{unit}"


def render() -> str:
    """The whole page."""
    lines = [_HEAD]
    for service in dict.fromkeys(spec.service for spec in METRICS):
        title = "Every service" if service == "every" else service
        lines += [f"## {title}", ""]
        for spec in METRICS:
            if spec.service == service:
                lines += [*_entry(spec), ""]
    lines += _mm2_table()
    return "\n".join(lines).rstrip() + "\n"


def _mm2_table() -> list[str]:
    """From MM2's names to ours. The tables above also name MM2's metric for each of ours."""
    rows = sorted((spec.mm2_name, spec) for spec in METRICS if spec.mm2_name)
    return [
        "## From MirrorMaker 2's names",
        "",
        "MM2 shows these by JMX, for each partition, and times in milliseconds.",
        "",
        "| MBean | attribute | metric | in Prometheus |",
        "|---|---|---|---|",
        *(
            f"| `{_MBEANS[spec.service]}` | `{name}` | `{spec.name}` | `{prometheus_name(spec)}` |"
            for name, spec in rows
        ),
        "",
        _STRIMZI,
    ]


def _entry(spec: MetricSpec) -> list[str]:
    lines = [
        f"### `{spec.name}`",
        "",
        spec.description,
        "",
        f"- {spec.kind}, unit `{spec.unit}`; in Prometheus `{prometheus_name(spec)}`",
        f"- attributes: {', '.join(f'`{attribute}`' for attribute in spec.attributes)}",
    ]
    if spec.buckets:
        lines.append(f"- buckets up to: {', '.join(f'{bound:g}' for bound in spec.buckets)}")
    if spec.mm2_name:
        lines.append(f"- MirrorMaker 2: `{spec.mm2_name}`")
    return lines


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render())
