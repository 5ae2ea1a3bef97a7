"""Every metric of Twinlog, once: name, kind, unit, meaning, attributes. docs/metrics.md is generated from
this table.

Names follow OpenTelemetry: its own where it has one, `twinlog.` otherwise; no unit and no `total` in a name.
Counters and histograms are recorded where the thing happens; gauges are observed by a callback when somebody
scrapes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation, UpDownCounter

SOURCE_CLUSTER = "twinlog.source.cluster"
TARGET_CLUSTER = "twinlog.target.cluster"
CLUSTER = "twinlog.cluster"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
ERROR_TYPE = "error.type"
FLOW = (SOURCE_CLUSTER, TARGET_CLUSTER)
"""The attributes of everything that belongs to one flow."""

CALL_BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
AGE_BUCKETS_SECONDS = (
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
)


class Kind(StrEnum):
    COUNTER = "counter"
    UP_DOWN_COUNTER = "up-down counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    name: str
    kind: Kind
    unit: str
    """UCUM: `s`, `By`, `{record}`."""
    description: str
    attributes: tuple[str, ...]
    service: str
    """Who records it; `every` = all four."""
    buckets: tuple[float, ...] = ()
    """Upper bounds, histograms only."""
    mm2_name: str = ""
    """MirrorMaker 2's metric of the same meaning."""


def _over_the_last_seconds(name: str, what: str, mm2_name: str) -> tuple[MetricSpec, MetricSpec, MetricSpec]:
    """Gauges beside a histogram, as MM2 has them: exact over all records of the last 30 s."""
    words = {"min": "Shortest", "max": "Longest", "avg": "Mean"}
    shortest, longest, mean = (
        MetricSpec(
            name=f"{name}.{kind}",
            kind=Kind.GAUGE,
            unit="s",
            description=f"{word} {what} of the records copied in the last 30 s; absent when there were none.",
            attributes=(*FLOW, DESTINATION),
            service="source",
            mm2_name=f"{mm2_name}-{kind}",
        )
        for kind, word in words.items()
    )
    return shortest, longest, mean


RPC_SERVER_CALL_DURATION = MetricSpec(
    name="rpc.server.call.duration",
    kind=Kind.HISTOGRAM,
    unit="s",
    description="Time an RPC took on the server, streams from start to end.",
    attributes=("rpc.method", "rpc.response.status_code", ERROR_TYPE),
    service="every",
    buckets=CALL_BUCKETS_SECONDS,
)
WATCH_STREAM_ACTIVE = MetricSpec(
    name="twinlog.watch.stream.active",
    kind=Kind.UP_DOWN_COUNTER,
    unit="{stream}",
    description="Watch streams that are open now.",
    attributes=("rpc.method",),
    service="every",
)
WATCH_DROPPED = MetricSpec(
    name="twinlog.watch.dropped",
    kind=Kind.COUNTER,
    unit="{stream}",
    description="Watch streams that were ended because their reader was too slow; they start again.",
    attributes=("rpc.method",),
    service="every",
)
CLUSTER_REACHABLE = MetricSpec(
    name="twinlog.cluster.reachable",
    kind=Kind.GAUGE,
    unit="1",
    description="1 when the last probe of the cluster succeeded, 0 when it failed; absent before the first.",
    attributes=(CLUSTER,),
    service="every",
)
REPLICATION_RECORDS = MetricSpec(
    name="twinlog.replication.records",
    kind=Kind.COUNTER,
    unit="{record}",
    description="Records copied and acknowledged (committed) on the target.",
    attributes=(*FLOW, DESTINATION),
    service="source",
    mm2_name="record-count",
)
REPLICATION_IO = MetricSpec(
    name="twinlog.replication.io",
    kind=Kind.COUNTER,
    unit="By",
    description="Bytes of record batches copied and acknowledged on the target.",
    attributes=(*FLOW, DESTINATION),
    service="source",
    mm2_name="byte-count",
)
REPLICATION_LATENCY = MetricSpec(
    name="twinlog.replication.latency",
    kind=Kind.HISTOGRAM,
    unit="s",
    description="Source timestamp of a record to its acknowledgement on the target. A sample of the records: "
    "at most about a hundred a second for each topic and task, distributed as all of them.",
    attributes=(*FLOW, DESTINATION),
    service="source",
    buckets=AGE_BUCKETS_SECONDS,
    mm2_name="replication-latency-ms",
)
REPLICATION_RECORD_AGE = MetricSpec(
    name="twinlog.replication.record.age",
    kind=Kind.HISTOGRAM,
    unit="s",
    description="Age of a record when it was read from the source. Samples: see twinlog.replication.latency.",
    attributes=(*FLOW, DESTINATION),
    service="source",
    buckets=AGE_BUCKETS_SECONDS,
    mm2_name="record-age-ms",
)
REPLICATION_LATENCY_MIN, REPLICATION_LATENCY_MAX, REPLICATION_LATENCY_AVG = _over_the_last_seconds(
    "twinlog.replication.latency", "latency", "replication-latency-ms"
)
REPLICATION_RECORD_AGE_MIN, REPLICATION_RECORD_AGE_MAX, REPLICATION_RECORD_AGE_AVG = _over_the_last_seconds(
    "twinlog.replication.record.age", "age when read", "record-age-ms"
)
REPLICATION_RECORDS_RATE = MetricSpec(
    name="twinlog.replication.records.rate",
    kind=Kind.GAUGE,
    unit="{record}/s",
    description="Records copied per second, over the last five seconds.",
    attributes=(*FLOW, DESTINATION),
    service="source",
    mm2_name="record-rate",
)
REPLICATION_IO_RATE = MetricSpec(
    name="twinlog.replication.io.rate",
    kind=Kind.GAUGE,
    unit="By/s",
    description="Bytes of record batches copied per second, over the last five seconds.",
    attributes=(*FLOW, DESTINATION),
    service="source",
    mm2_name="byte-rate",
)
REPLICATION_TRANSACTIONS = MetricSpec(
    name="twinlog.replication.transactions",
    kind=Kind.COUNTER,
    unit="{transaction}",
    description="Rounds of the copy by `twinlog.outcome`: committed, aborted. Transactions if exactly once.",
    attributes=(*FLOW, "twinlog.outcome"),
    service="source",
)
REPLICATION_LAG = MetricSpec(
    name="twinlog.replication.lag",
    kind=Kind.GAUGE,
    unit="{record}",
    description="End of the source log that may be copied, less the next offset to copy; control records and "
    "what compaction took count too. Absent while one of the two is not known.",
    attributes=(*FLOW, DESTINATION, PARTITION),
    service="source",
    mm2_name="records-lag of the consumer",
)
REPLICATION_PARTITIONS = MetricSpec(
    name="twinlog.replication.partitions",
    kind=Kind.GAUGE,
    unit="{partition}",
    description="Replicated partitions by `twinlog.state`: RUNNING, PAUSED, BACKOFF, FAULTED, WAITING, "
    "STALLED.",
    attributes=(*FLOW, "twinlog.state"),
    service="source",
)
REPLICATION_FAILURES = MetricSpec(
    name="twinlog.replication.failures",
    kind=Kind.COUNTER,
    unit="{failure}",
    description="Failures by reason, of partitions, rounds and the flow: after each the copy tries again.",
    attributes=(*FLOW, ERROR_TYPE),
    service="source",
)
VERIFIED_UNTIL = MetricSpec(
    name="twinlog.verified.until",
    kind=Kind.GAUGE,
    unit="{offset}",
    description="Source offset up to which the standing proof has found the copy complete and equal.",
    attributes=(*FLOW, DESTINATION, PARTITION),
    service="source",
)
VERIFIED_AGE = MetricSpec(
    name="twinlog.verified.age",
    kind=Kind.GAUGE,
    unit="s",
    description="How long ago that was found; absent before the first time.",
    attributes=(*FLOW, DESTINATION, PARTITION),
    service="source",
)
VERIFIED_DIFFERENCES = MetricSpec(
    name="twinlog.verified.differences",
    kind=Kind.GAUGE,
    unit="{record}",
    description="Records that differ, as the newest proof of each partition has found them, by"
    " `twinlog.kind`: MISSING, DUPLICATE, FOREIGN, CHANGED, ORDER. Alert above 0.",
    attributes=(*FLOW, DESTINATION, "twinlog.kind"),
    service="source",
)
REPLICATION_LOST = MetricSpec(
    name="twinlog.replication.lost",
    kind=Kind.COUNTER,
    unit="{record}",
    description="Source offsets that can never be copied (`error.type`: RETENTION, TRUNCATION, ...).",
    attributes=(*FLOW, DESTINATION, ERROR_TYPE),
    service="source",
)
REPLICATION_LAG_TIME = MetricSpec(
    name="twinlog.replication.lag.time",
    kind=Kind.GAUGE,
    unit="s",
    description="Age of the oldest record of a partition that is not copied, to a few seconds; 0 when "
    "all are, absent while it is not known.",
    attributes=(*FLOW, DESTINATION, PARTITION),
    service="source",
)
REPLICATION_LANE_RECORDS = MetricSpec(
    name="twinlog.replication.lane.records",
    kind=Kind.COUNTER,
    unit="{record}",
    description="Records by how they were copied (`twinlog.lane`: UNOPENED, or why they were opened).",
    attributes=(*FLOW, DESTINATION, "twinlog.lane"),
    service="source",
)
REPLICATION_THROTTLE = MetricSpec(
    name="twinlog.replication.throttle",
    kind=Kind.GAUGE,
    unit="By/s",
    description="Limit of a flow (no destination) or of one topic; absent without one.",
    attributes=(*FLOW, DESTINATION),
    service="source",
)
OFFSET_SYNC_RECORDS = MetricSpec(
    name="twinlog.offset_sync.records",
    kind=Kind.COUNTER,
    unit="{record}",
    description="Offset syncs written.",
    attributes=(*FLOW, DESTINATION),
    service="source",
)
PIPELINE_BATCH_DURATION = MetricSpec(
    name="twinlog.pipeline.batch.duration",
    kind=Kind.HISTOGRAM,
    unit="s",
    description="Length of a Spark epoch; `_count` is the number of epochs that ended.",
    attributes=FLOW,
    service="source",
    buckets=AGE_BUCKETS_SECONDS,
)
CHECKPOINT_LATENCY = MetricSpec(
    name="twinlog.checkpoint.latency",
    kind=Kind.HISTOGRAM,
    unit="s",
    description="Time between reading a group's offsets on the source and the checkpoint's acknowledgement.",
    attributes=FLOW,
    service="checkpoint",
    buckets=AGE_BUCKETS_SECONDS,
    mm2_name="checkpoint-latency-ms",
)
CHECKPOINT_OFFSETS = MetricSpec(
    name="twinlog.checkpoint.offsets",
    kind=Kind.COUNTER,
    unit="{offset}",
    description="Group offsets considered, by verdict (`twinlog.outcome`: exact, floor, no_sync, ...).",
    attributes=(*FLOW, GROUP, "twinlog.outcome"),
    service="checkpoint",
)
TRANSLATION_IO = MetricSpec(
    name="twinlog.translation.io",
    kind=Kind.COUNTER,
    unit="By",
    description="Bytes read from both logs to translate offsets exactly.",
    attributes=FLOW,
    service="checkpoint",
)
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
    description="Emission on the source to sight on the target.",
    attributes=FLOW,
    service="heartbeat",
    buckets=AGE_BUCKETS_SECONDS,
)
HEARTBEAT_AGE = MetricSpec(
    name="twinlog.heartbeat.age",
    kind=Kind.GAUGE,
    unit="s",
    description="Age of the newest heartbeat that arrived: grows while the path is cut.",
    attributes=FLOW,
    service="heartbeat",
)
CONFIGSYNC_CHANGES = MetricSpec(
    name="twinlog.configsync.changes",
    kind=Kind.COUNTER,
    unit="{change}",
    description="Changes of the target (`twinlog.resource.type`: topic, partitions, config, acl, quota; "
    "`twinlog.outcome`: applied, drift_reverted, refused).",
    attributes=(*FLOW, "twinlog.resource.type", "twinlog.outcome"),
    service="configsync",
)
CONFIGSYNC_DRIFT = MetricSpec(
    name="twinlog.configsync.drift",
    kind=Kind.GAUGE,
    unit="{change}",
    description="Changes that would bring the target in step and are not made: refused by it, or waiting for "
    "`twinlog apply` (`twinlog.resource.type`: topics, configs, acls, quotas).",
    attributes=(*FLOW, "twinlog.resource.type"),
    service="configsync",
)
CONFIGSYNC_TOPICS = MetricSpec(
    name="twinlog.configsync.topics",
    kind=Kind.GAUGE,
    unit="{topic}",
    description="Topics of a flow by state.",
    attributes=(*FLOW, "twinlog.state"),
    service="configsync",
)

METRICS: tuple[MetricSpec, ...] = (
    RPC_SERVER_CALL_DURATION,
    WATCH_STREAM_ACTIVE,
    WATCH_DROPPED,
    CLUSTER_REACHABLE,
    REPLICATION_RECORDS,
    REPLICATION_IO,
    REPLICATION_RECORDS_RATE,
    REPLICATION_IO_RATE,
    REPLICATION_LATENCY,
    REPLICATION_LATENCY_MIN,
    REPLICATION_LATENCY_MAX,
    REPLICATION_LATENCY_AVG,
    REPLICATION_RECORD_AGE,
    REPLICATION_RECORD_AGE_MIN,
    REPLICATION_RECORD_AGE_MAX,
    REPLICATION_RECORD_AGE_AVG,
    REPLICATION_TRANSACTIONS,
    REPLICATION_LAG,
    REPLICATION_PARTITIONS,
    REPLICATION_FAILURES,
    REPLICATION_LOST,
    VERIFIED_UNTIL,
    VERIFIED_AGE,
    VERIFIED_DIFFERENCES,
    REPLICATION_LAG_TIME,
    REPLICATION_LANE_RECORDS,
    REPLICATION_THROTTLE,
    OFFSET_SYNC_RECORDS,
    PIPELINE_BATCH_DURATION,
    CHECKPOINT_LATENCY,
    CHECKPOINT_OFFSETS,
    TRANSLATION_IO,
    HEARTBEAT_RECORDS,
    HEARTBEAT_DELAY,
    HEARTBEAT_AGE,
    CONFIGSYNC_CHANGES,
    CONFIGSYNC_DRIFT,
    CONFIGSYNC_TOPICS,
)


def flow_attributes(source: str, target: str) -> dict[str, str]:
    return {SOURCE_CLUSTER: source, TARGET_CLUSTER: target}


def counter(meter: Meter, spec: MetricSpec) -> Counter:
    _require(spec, Kind.COUNTER)
    return meter.create_counter(spec.name, spec.unit, spec.description)


def up_down_counter(meter: Meter, spec: MetricSpec) -> UpDownCounter:
    _require(spec, Kind.UP_DOWN_COUNTER)
    return meter.create_up_down_counter(spec.name, spec.unit, spec.description)


def histogram(meter: Meter, spec: MetricSpec) -> Histogram:
    _require(spec, Kind.HISTOGRAM)
    return meter.create_histogram(
        spec.name, spec.unit, spec.description, explicit_bucket_boundaries_advisory=spec.buckets
    )


def gauge(meter: Meter, spec: MetricSpec, observe: Callable[[], Iterable[Observation]]) -> None:
    """Register `observe`, called at each scrape **in another thread**: it only reads, and never waits."""
    _require(spec, Kind.GAUGE)

    def callback(_options: CallbackOptions) -> Iterable[Observation]:
        return observe()

    meter.create_observable_gauge(spec.name, [callback], spec.unit, spec.description)


def _require(spec: MetricSpec, kind: Kind) -> None:
    if spec.kind is not kind:
        raise ValueError(f"{spec.name} is a {spec.kind}, not a {kind}")
