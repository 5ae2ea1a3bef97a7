"""Metrics of continuous verification."""

from twinlog.telemetry.metrics.spec import DESTINATION, FLOW, PARTITION, Kind, MetricSpec

VERIFIED_UNTIL = MetricSpec(
    name="twinlog.verified.until",
    kind=Kind.GAUGE,
    unit="{offset}",
    description="Source offset up to which continuous verification has found the copy equal to its source.",
    attributes=(*FLOW, DESTINATION, PARTITION),
    service="source",
)
VERIFIED_AGE = MetricSpec(
    name="twinlog.verified.age",
    kind=Kind.GAUGE,
    unit="s",
    description="Time since the last result of continuous verification; absent before the first.",
    attributes=(*FLOW, DESTINATION, PARTITION),
    service="source",
)
VERIFIED_DIFFERENCES = MetricSpec(
    name="twinlog.verified.differences",
    kind=Kind.GAUGE,
    unit="{record}",
    description="Records that differ, by the latest verification of each partition and by `twinlog.kind`:"
    " MISSING, DUPLICATE, FOREIGN, CHANGED, ORDER. Alert above 0.",
    attributes=(*FLOW, DESTINATION, "twinlog.kind"),
    service="source",
)

METRICS: tuple[MetricSpec, ...] = (
    VERIFIED_UNTIL,
    VERIFIED_AGE,
    VERIFIED_DIFFERENCES,
)
