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
17412, heartbeat 17413, configsync 17414; `twinlog run` prints them. Where a default port is in use, the
service takes a free one and says so in its log (`metrics_address_taken`).
`twinlog.<service>.metrics.listen` says another address; empty turns the metrics of the service off. The
endpoint is plain HTTP without authentication: keep it on loopback or inside a network you trust. On loopback
it answers to `localhost` and numbers only, so that no web page of somebody else's reads it. Gauges are
computed when somebody scrapes.

OTLP: `pip install 'twinlog-service[otlp]'`, then OpenTelemetry's own variables say where to:
`OTEL_EXPORTER_OTLP_ENDPOINT` for metrics, traces and logs, `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` and its like
for one of them, `OTEL_TRACES_EXPORTER=none` against one; the protocol is gRPC. Without them nothing is
exported. A collector that is away, or does not answer, costs dropped telemetry and never a pause of the copy.
A variable that OpenTelemetry does not accept costs the signal that it is about: the service logs
`telemetry_setting_refused` with the variable, and runs without.

- spans: `prepare epoch`, `hand-over`, `epoch` (source); `round` and `append` (its tasks: a transaction, and
  a request with batches of preserved copies; traces of their own, linked to `prepare epoch`); `checkpoint
  pass`, `move` (checkpoint); `plan`, `apply` (configsync); one for each command of the command line, and one
  for each RPC, joined to its caller's by W3C `traceparent`. A command continues the trace of the variable
  `TRACEPARENT`. A failed span has `error.type` and no text of the exception.
- every call between services carries `x-request-id` and the trace; log lines have `request_id`, `trace_id`
  and `span_id`.
- exported logs are the lines of stdout, redacted as those are.

Names are OpenTelemetry's; the line "in Prometheus" has the name to use in queries. Times are seconds, sizes
bytes.
`otel_scope_*` labels come with every series, `target_info` names service, instance and version.

Labels carry what the dotted attributes say with dots as underscores: `twinlog_source_cluster`,
`messaging_destination_name`. Partition numbers are only on gauges; the number of series of one of them is the
number of replicated partitions of the process.
"""

_STRIMZI = """## Strimzi's board

With `twinlog.metrics.strimzi.cluster = NAME` the services also show what Strimzi's Grafana board
"Strimzi Kafka Mirror Maker 2" asks for, by its names and labels (`kafka_connect_mirror_…`,
`strimzi_io_kind="KafkaMirrorMaker2"`, `strimzi_io_cluster="NAME"`): choose NAME on the board. Connectors and
tasks are flows at which a service works, latencies and ages are of a topic and the last half minute, and the
latency of checkpoints is the mean since the start. Panels of Connect's and Java's inside (producer buffer,
offset commit time, outstanding messages, heap, garbage collection, threads) stay empty, and the processor's
is Kubernetes' own."""

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
    """The name that the Prometheus exporter gives it: units in words, `_total` for counters."""
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
    """From MM2's names to ours; each metric above has the way back."""
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
