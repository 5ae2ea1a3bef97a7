"""Metrics of heartbeats: written, seen, latency."""

from twinlog.telemetry.metrics.spec import AGE_BUCKETS_SECONDS, FLOW, Kind, MetricSpec

HEARTBEAT_RECORDS = MetricSpec(
    name="twinlog.heartbeat.records",
    kind=Kind.COUNTER,
    unit="{record}",
    description="Heartbeats by `twinlog.outcome`: emitted on a cluster, observed on the target.",
    attributes=(*FLOW, "twinlog.outcome"),
    service="heartbeat",
)
HEARTBEAT_DELAY = MetricSpec(
    name="twinlog.heartbeat.delay",
    kind=Kind.HISTOGRAM,
    unit="s",
    description="Time from the emission on the source until it was seen on the target.",
    attributes=FLOW,
    service="heartbeat",
    buckets=AGE_BUCKETS_SECONDS,
)
HEARTBEAT_AGE = MetricSpec(
    name="twinlog.heartbeat.age",
    kind=Kind.GAUGE,
    unit="s",
    description="Age of the newest heartbeat that arrived: grows while the path does not work.",
    attributes=FLOW,
    service="heartbeat",
)
HEARTBEAT_PATH = MetricSpec(
    name="twinlog.heartbeat.path",
    kind=Kind.GAUGE,
    unit="1",
    description="1 for the state that the path is in, 0 for the others (`twinlog.state`: ALIVE, SILENT, "
    "UNKNOWN).",
    attributes=(*FLOW, "twinlog.state"),
    service="heartbeat",
)
HEARTBEAT_CLOCK_SKEW = MetricSpec(
    name="twinlog.heartbeat.clock.skew",
    kind=Kind.GAUGE,
    unit="s",
    description="How far the clock of another writer of heartbeats on the path is ahead of this service's, "
    "estimated; absent while only one of them writes.",
    attributes=FLOW,
    service="heartbeat",
)

METRICS: tuple[MetricSpec, ...] = (
    HEARTBEAT_RECORDS,
    HEARTBEAT_DELAY,
    HEARTBEAT_AGE,
    HEARTBEAT_PATH,
    HEARTBEAT_CLOCK_SKEW,
)
