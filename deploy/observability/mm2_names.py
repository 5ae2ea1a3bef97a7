"""Rules by which Prometheus also records Twinlog's metrics under the names that Strimzi gives to MirrorMaker
2's, so that boards and alerts made for those show data. Only who lists the file in `rule_files` has them.
"""

from twinlog.telemetry.metrics import METRICS, Kind, MetricSpec
from twinlog.telemetry.metrics_page import prometheus_name

_PREFIXES = {
    "source": "kafka_connect_mirror_mirrorsourceconnector",
    "checkpoint": "kafka_connect_mirror_mirrorcheckpointconnector",
}
_MILLISECONDS = 1000


def rules() -> str:
    """The file of rules."""
    lines = [
        "# Written by `python -m deploy.observability`: edit deploy/observability/mm2_names.py.",
        "# Opt-in: list this file in `rule_files`. Series are of a topic, not of each of its partitions.",
        "groups:",
        "  - name: mirrormaker2",
        "    rules:",
    ]
    for name, expression in records():
        lines += [
            f"      - record: {name}",
            f"        expr: {expression}",
            "        labels:",
            '          partition: "all"',
        ]
    return "\n".join(lines) + "\n"


def records() -> list[tuple[str, str]]:
    """MM2's name, and what it is made of."""
    return [
        (f"{_PREFIXES[spec.service]}_{spec.mm2_name.replace('-', '_')}", _expression(spec))
        for spec in METRICS
        if spec.service in _PREFIXES and " " not in spec.mm2_name and spec.mm2_name
    ]


def _expression(spec: MetricSpec) -> str:
    topic = "messaging.destination.name" in spec.attributes
    by = "twinlog_source_cluster, twinlog_target_cluster" + (", messaging_destination_name" if topic else "")
    name = prometheus_name(spec)
    if spec.kind is Kind.HISTOGRAM:
        base = name.partition("_bucket")[0]
        value = f"sum by ({by}) (rate({base}_sum[5m])) / sum by ({by}) (rate({base}_count[5m]))"
    else:
        value = f"{'sum' if spec.kind is Kind.COUNTER else 'max'} by ({by}) ({name})"
    if spec.unit == "s":
        value = f"{_MILLISECONDS} * {value}"
    labels = [("source", "twinlog_source_cluster"), ("target", "twinlog_target_cluster")]
    labels += [("topic", "messaging_destination_name")] if topic else []
    for label, origin in labels:
        value = f'label_replace({value}, "{label}", "$1", "{origin}", "(.*)")'
    return value
