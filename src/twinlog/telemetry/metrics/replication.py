"""Metrics of the copy, from the source service and its tasks."""

from twinlog.telemetry.metrics.spec import (
    AGE_BUCKETS_SECONDS,
    DESTINATION,
    END,
    ERROR_TYPE,
    FLOW,
    PARTITION,
    SLOT,
    Kind,
    MetricSpec,
)


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
    description="Time from the source timestamp of a record to its acknowledgement on the target. A sample: "
    "at most about a hundred records a second for each topic and task, with the same distribution.",
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
    description="Offsets from the next one to copy to the end of what may be copied, including control "
    "records and offsets that compaction removed. Absent while one of the two is unknown.",
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
    description="Failures of partitions, rounds and the flow, by reason; the copy retries after each.",
    attributes=(*FLOW, ERROR_TYPE),
    service="source",
)
REPLICATION_LOST = MetricSpec(
    name="twinlog.replication.lost",
    kind=Kind.COUNTER,
    unit="{record}",
    description="Source offsets whose records were lost (`error.type`: RETENTION, TOPIC_RECREATED,"
    " TARGET_RECREATED, TARGET_TRUNCATED); not those that an operator skipped, or that only the target still"
    " has.",
    attributes=(*FLOW, DESTINATION, ERROR_TYPE),
    service="source",
)
REPLICATION_FOREIGN = MetricSpec(
    name="twinlog.replication.foreign",
    kind=Kind.COUNTER,
    unit="{record}",
    description="Foreign records (of other producers) that the source service has found in copies."
    " Alert above 0.",
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
REPLICATION_OVERDUE = MetricSpec(
    name="twinlog.replication.overdue",
    kind=Kind.GAUGE,
    unit="s",
    description="Age of the oldest record of a flow that is not copied although nobody holds it back: the"
    " largest twinlog.replication.lag.time, without partitions that are PAUSED or have reached the end of a"
    " finite copy, and without twinlog.delay.seconds. Absent while no age is known.",
    attributes=FLOW,
    service="source",
)
REPLICATION_SOURCE_END = MetricSpec(
    name="twinlog.replication.source.end",
    kind=Kind.GAUGE,
    unit="{offset}",
    description="Sum of the last known ends of a topic's partitions on the source: grows while producers "
    "write. Not for heartbeats. Drops while partitions become known after a start.",
    attributes=(*FLOW, DESTINATION),
    service="source",
)
REPLICATION_BEHIND = MetricSpec(
    name="twinlog.replication.behind",
    kind=Kind.GAUGE,
    unit="{partition}",
    description="Partitions with records that are not copied yet, without heartbeats, by `twinlog.state` and "
    "reason (`error.type`, empty if nothing delays them).",
    attributes=(*FLOW, "twinlog.state", ERROR_TYPE),
    service="source",
)
DESIRED_WORKERS = MetricSpec(
    name="twinlog.desired.workers",
    kind=Kind.GAUGE,
    unit="{worker}",
    description="Tasks with which the flow would keep up, for an autoscaler: more than it has while it falls "
    "behind. 0 on standby. See docs/standby.md.",
    attributes=FLOW,
    service="source",
)
SLOT_LAG = MetricSpec(
    name="twinlog.slot.lag",
    kind=Kind.GAUGE,
    unit="{record}",
    description="Source offsets that the partitions of a task have still to copy, as known last, by the "
    "number of its slot.",
    attributes=(*FLOW, SLOT),
    service="source",
)
REPLICATION_STALLED = MetricSpec(
    name="twinlog.replication.stalled",
    kind=Kind.GAUGE,
    unit="s",
    description="Time since the position of a STALLED or FAULTED partition last moved, with its reason; of "
    "the 100 partitions of a flow with the longest times.",
    attributes=(*FLOW, DESTINATION, PARTITION, "twinlog.state", ERROR_TYPE),
    service="source",
)
REPLICATION_THROTTLED = MetricSpec(
    name="twinlog.replication.throttled",
    kind=Kind.GAUGE,
    unit="{task}",
    description="Tasks that a quota of a cluster is delaying now, by `twinlog.end`: source, target.",
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

METRICS: tuple[MetricSpec, ...] = (
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
    REPLICATION_LAG_TIME,
    REPLICATION_OVERDUE,
    REPLICATION_SOURCE_END,
    REPLICATION_BEHIND,
    DESIRED_WORKERS,
    SLOT_LAG,
    REPLICATION_STALLED,
    REPLICATION_THROTTLED,
    TASKS_MEMORY,
    REPLICATION_LANE_RECORDS,
    REPLICATION_THROTTLE,
    OFFSET_SYNC_RECORDS,
    PIPELINE_BATCH_DURATION,
)
