"""Metrics of continuous verification."""

from twinlog.telemetry.metrics.spec import DESTINATION, FLOW, PARTITION, Kind, MetricSpec

VERIFIED_UNTIL = MetricSpec(
    "twinlog.verified.until", Kind.GAUGE, "{offset}", (*FLOW, DESTINATION, PARTITION), "source",
    "Source offset up to which continuous verification has found the copy equal to its source.")  # fmt: skip
VERIFIED_AGE = MetricSpec("twinlog.verified.age", Kind.GAUGE, "s", (*FLOW, DESTINATION, PARTITION), "source",
    "Time since the last result of continuous verification; absent before the first.")  # fmt: skip
VERIFIED_DIFFERENCES = MetricSpec(
    "twinlog.verified.differences", Kind.GAUGE, "{record}", (*FLOW, DESTINATION, "twinlog.kind"), "source",
    "Records that differ, by the latest verification of each partition and by `twinlog.kind`: MISSING, "
    "DUPLICATE, FOREIGN, CHANGED, ORDER. Alert above 0.")  # fmt: skip
