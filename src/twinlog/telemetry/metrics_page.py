"""The tables of docs/metrics.md: `python -m twinlog.telemetry.metrics_page docs/metrics.md`."""

import sys
from collections.abc import Mapping
from pathlib import Path

from twinlog.telemetry.metrics import METRICS
from twinlog.telemetry.metrics.spec import Kind, MetricSpec
from twinlog.text_tables import markdown, renew

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


def tables() -> Mapping[str, str]:
    """By name."""
    lines: list[str] = []
    for service in dict.fromkeys(spec.service for spec in METRICS):
        title = "Every service" if service == "every" else service
        lines += [f"## {title}", ""]
        for spec in METRICS:
            if spec.service == service:
                lines += [*_entry(spec), ""]
    mm2 = sorted((spec.mm2_name, spec) for spec in METRICS if spec.mm2_name)
    of_mm2 = (
        (f"`{_MBEANS[spec.service]}`", f"`{name}`", f"`{spec.name}`", f"`{prometheus_name(spec)}`")
        for name, spec in mm2
    )
    return {
        "metrics": "\n".join(lines),
        "MirrorMaker 2": markdown(("MBean", "attribute", "metric", "in Prometheus"), of_mm2),
    }


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
    renew(Path(sys.argv[1]), tables())
