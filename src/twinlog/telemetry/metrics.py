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
TWINLOG_SERVICE = "twinlog.service"
END = "twinlog.end"
"""`source` or `target`: which of a flow's two clusters."""
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
SERVICE_READY = MetricSpec(
    name="twinlog.service.ready",
    kind=Kind.GAUGE,
    unit="1",
    description="1 while every flow of the process has a known owner, and this process, where it is the "
    "owner, has done its first pass; else 0. As the health name `readiness`.",
    attributes=(TWINLOG_SERVICE,),
    service="every",
)
FLOW_OWNER = MetricSpec(
    name="twinlog.flow.owner",
    kind=Kind.GAUGE,
    unit="1",
    description="1 while this process works at the flow, 0 while it stands by or does not know.",
    attributes=(*FLOW, TWINLOG_SERVICE),
    service="every",
)
FLOW_OWNER_CHANGES = MetricSpec(
    name="twinlog.flow.owner.changes",
    kind=Kind.COUNTER,
    unit="{change}",
    description="Owners that the flow had one after the other, as this process learned of them.",
    attributes=(*FLOW, TWINLOG_SERVICE),
    service="every",
)
CERTIFICATE_EXPIRY = MetricSpec(
    name="twinlog.certificate.expiry",
    kind=Kind.GAUGE,
    unit="s",
    description="Time until the certificate of the gRPC port expires, below 0 afterwards; absent without "
    "TLS.",
    attributes=(),
    service="every",
)
LOGIN_CERTIFICATE_EXPIRY = MetricSpec(
    name="twinlog.login.certificate.expiry",
    kind=Kind.GAUGE,
    unit="s",
    description="Time until the certificate expires with which the process logs in to a cluster; absent where"
    " it shows none.",
    attributes=(CLUSTER,),
    service="every",
)
PROCESS_CPU_TIME = MetricSpec(
    name="process.cpu.time",
    kind=Kind.COUNTER,
    unit="s",
    description="CPU time of the process by `cpu.mode`: user, system; without its tasks.",
    attributes=("cpu.mode",),
    service="every",
)
PROCESS_MEMORY_USAGE = MetricSpec(
    name="process.memory.usage",
    kind=Kind.UP_DOWN_COUNTER,
    unit="By",
    description="Resident memory of the process, without its tasks.",
    attributes=(),
    service="every",
)
PROCESS_FILE_DESCRIPTORS = MetricSpec(
    name="process.unix.file_descriptor.count",
    kind=Kind.UP_DOWN_COUNTER,
    unit="{file_descriptor}",
    description="File descriptors that the process has open.",
    attributes=(),
    service="every",
)
PROCESS_SOCKETS = MetricSpec(
    name="twinlog.process.connections",
    kind=Kind.GAUGE,
    unit="{connection}",
    description="Sockets among them: connections to brokers, peers, callers and Spark, and listeners.",
    attributes=(),
    service="every",
)
PROCESS_UPTIME = MetricSpec(
    name="process.uptime",
    kind=Kind.GAUGE,
    unit="s",
    description="Time since the process began.",
    attributes=(),
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
REPLICATION_FOREIGN = MetricSpec(
    name="twinlog.replication.foreign",
    kind=Kind.COUNTER,
    unit="{record}",
    description="Records that somebody else wrote into a copy, as the copier finds them while it writes."
    " Alert on any.",
    attributes=(*FLOW, DESTINATION),
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
REPLICATION_SOURCE_END = MetricSpec(
    name="twinlog.replication.source.end",
    kind=Kind.GAUGE,
    unit="{offset}",
    description="Last known ends of a topic's partitions on the source, added up: grows while producers "
    "write. Drops while partitions become known after a start.",
    attributes=(*FLOW, DESTINATION),
    service="source",
)
REPLICATION_BEHIND = MetricSpec(
    name="twinlog.replication.behind",
    kind=Kind.GAUGE,
    unit="{partition}",
    description="Partitions that have something left to copy, by `twinlog.state` and reason "
    "(`error.type`, empty while nothing holds them up).",
    attributes=(*FLOW, "twinlog.state", ERROR_TYPE),
    service="source",
)
REPLICATION_STALLED = MetricSpec(
    name="twinlog.replication.stalled",
    kind=Kind.GAUGE,
    unit="s",
    description="Time since a STALLED or FAULTED partition moved last, with its reason; of the 100 that "
    "stand longest in a flow.",
    attributes=(*FLOW, DESTINATION, PARTITION, "twinlog.state", ERROR_TYPE),
    service="source",
)
REPLICATION_THROTTLED = MetricSpec(
    name="twinlog.replication.throttled",
    kind=Kind.GAUGE,
    unit="{task}",
    description="Tasks that a quota of a cluster holds up now, by `twinlog.end`: source, target.",
    attributes=(*FLOW, END),
    service="source",
)
TASKS_MEMORY = MetricSpec(
    name="twinlog.tasks.memory",
    kind=Kind.GAUGE,
    unit="By",
    description="Resident memory of the processes below the service: Spark and its tasks, where they run "
    "on this machine.",
    attributes=(),
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
    attributes=(*FLOW, "twinlog.outcome"),
    service="checkpoint",
)
CHECKPOINT_AGE = MetricSpec(
    name="twinlog.checkpoint.age",
    kind=Kind.GAUGE,
    unit="s",
    description="Time since the last pass over all groups was done; absent before the first, and on a "
    "stand-by.",
    attributes=FLOW,
    service="checkpoint",
)
CHECKPOINT_GROUPS = MetricSpec(
    name="twinlog.checkpoint.groups",
    kind=Kind.GAUGE,
    unit="{group}",
    description="Groups of the flow.",
    attributes=FLOW,
    service="checkpoint",
)
CHECKPOINT_PARTITIONS = MetricSpec(
    name="twinlog.checkpoint.partitions",
    kind=Kind.GAUGE,
    unit="{partition}",
    description="Partitions of groups by `twinlog.verdict`: PRESERVED, EXACT, UP_TO_DATE, FLOOR, NO_SYNC, "
    "...",
    attributes=(*FLOW, "twinlog.verdict"),
    service="checkpoint",
)
CHECKPOINT_FAILURES = MetricSpec(
    name="twinlog.checkpoint.failures",
    kind=Kind.COUNTER,
    unit="{failure}",
    description="Passes and groups that failed, by reason: the next pass tries again.",
    attributes=(*FLOW, ERROR_TYPE),
    service="checkpoint",
)
GROUP_LAG = MetricSpec(
    name="twinlog.group.lag",
    kind=Kind.GAUGE,
    unit="{record}",
    description="Records between a group and the end of the logs on the source, and between its "
    "translated offsets and the ends on the target, by `twinlog.end`; of the 200 groups "
    "that are furthest behind on the source.",
    attributes=(*FLOW, GROUP, END),
    service="checkpoint",
)
FENCED_TOPICS = MetricSpec(
    name="twinlog.failover.fenced",
    kind=Kind.GAUGE,
    unit="{topic}",
    description="Topics to which a failover or failback lets nobody write, by `twinlog.end`: the cluster that"
    " they are on. Absent on a stand-by, and until the record of moves was read.",
    attributes=(*FLOW, END),
    service="checkpoint",
)
OFFSET_SYNC_POSITION = MetricSpec(
    name="twinlog.offset_sync.position",
    kind=Kind.GAUGE,
    unit="{offset}",
    description="Next offset of the offset-syncs topic to read; absent before the first pass over it.",
    attributes=FLOW,
    service="checkpoint",
)
OFFSET_SYNC_READABLE = MetricSpec(
    name="twinlog.offset_sync.readable",
    kind=Kind.GAUGE,
    unit="1",
    description="1 while the offset syncs can be read and have been read once to their end, else 0.",
    attributes=FLOW,
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
CONFIGSYNC_AGE = MetricSpec(
    name="twinlog.configsync.age",
    kind=Kind.GAUGE,
    unit="s",
    description="Time since topics and configurations were last compared as a whole; absent before the "
    "first time, and on a stand-by.",
    attributes=FLOW,
    service="configsync",
)

METRICS: tuple[MetricSpec, ...] = (
    RPC_SERVER_CALL_DURATION,
    WATCH_STREAM_ACTIVE,
    WATCH_DROPPED,
    CLUSTER_REACHABLE,
    SERVICE_READY,
    FLOW_OWNER,
    FLOW_OWNER_CHANGES,
    CERTIFICATE_EXPIRY,
    LOGIN_CERTIFICATE_EXPIRY,
    PROCESS_CPU_TIME,
    PROCESS_MEMORY_USAGE,
    PROCESS_FILE_DESCRIPTORS,
    PROCESS_SOCKETS,
    PROCESS_UPTIME,
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
    REPLICATION_FOREIGN,
    VERIFIED_UNTIL,
    VERIFIED_AGE,
    VERIFIED_DIFFERENCES,
    REPLICATION_LAG_TIME,
    REPLICATION_SOURCE_END,
    REPLICATION_BEHIND,
    REPLICATION_STALLED,
    REPLICATION_THROTTLED,
    TASKS_MEMORY,
    REPLICATION_LANE_RECORDS,
    REPLICATION_THROTTLE,
    OFFSET_SYNC_RECORDS,
    PIPELINE_BATCH_DURATION,
    CHECKPOINT_LATENCY,
    CHECKPOINT_OFFSETS,
    CHECKPOINT_AGE,
    CHECKPOINT_GROUPS,
    CHECKPOINT_PARTITIONS,
    CHECKPOINT_FAILURES,
    GROUP_LAG,
    FENCED_TOPICS,
    OFFSET_SYNC_POSITION,
    OFFSET_SYNC_READABLE,
    TRANSLATION_IO,
    HEARTBEAT_RECORDS,
    HEARTBEAT_DELAY,
    HEARTBEAT_AGE,
    HEARTBEAT_PATH,
    HEARTBEAT_CLOCK_SKEW,
    CONFIGSYNC_CHANGES,
    CONFIGSYNC_DRIFT,
    CONFIGSYNC_TOPICS,
    CONFIGSYNC_AGE,
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


def observed_sum(meter: Meter, spec: MetricSpec, observe: Callable[[], Iterable[Observation]]) -> None:
    """As `gauge`, of a counter or an up-down counter whose value is read where it is kept."""
    create = (
        meter.create_observable_counter
        if spec.kind is Kind.COUNTER
        else meter.create_observable_up_down_counter
    )
    if spec.kind is not Kind.COUNTER:
        _require(spec, Kind.UP_DOWN_COUNTER)

    def callback(_options: CallbackOptions) -> Iterable[Observation]:
        return observe()

    create(spec.name, [callback], spec.unit, spec.description)


def _require(spec: MetricSpec, kind: Kind) -> None:
    if spec.kind is not kind:
        raise ValueError(f"{spec.name} is a {spec.kind}, not a {kind}")
