"""Metrics of heartbeats: written, seen, latency."""

from twinlog.telemetry.metrics.spec import AGE_BUCKETS_SECONDS, FLOW, Kind, MetricSpec

HEARTBEAT_RECORDS = MetricSpec(
    "twinlog.heartbeat.records", Kind.COUNTER, "{record}", (*FLOW, "twinlog.outcome"), "heartbeat",
    "Heartbeats by `twinlog.outcome`: emitted on a cluster, observed on the target.")  # fmt: skip
HEARTBEAT_DELAY = MetricSpec("twinlog.heartbeat.delay", Kind.HISTOGRAM, "s", FLOW, "heartbeat",
    "Time from the emission on the source until it was seen on the target.",
    buckets=AGE_BUCKETS_SECONDS)  # fmt: skip
HEARTBEAT_AGE = MetricSpec("twinlog.heartbeat.age", Kind.GAUGE, "s", FLOW, "heartbeat",
    "Age of the newest heartbeat that arrived: grows while the path does not work.")  # fmt: skip
HEARTBEAT_PATH = MetricSpec("twinlog.heartbeat.path", Kind.GAUGE, "1", (*FLOW, "twinlog.state"), "heartbeat",
    "1 for the state that the path is in, 0 for the others (`twinlog.state`: ALIVE, SILENT, UNKNOWN).",
)  # fmt: skip
HEARTBEAT_CLOCK_SKEW = MetricSpec("twinlog.heartbeat.clock.skew", Kind.GAUGE, "s", FLOW, "heartbeat",
    "How far the clock of another writer of heartbeats on the path is ahead of this service's, estimated; "
    "absent while only one of them writes.")  # fmt: skip
