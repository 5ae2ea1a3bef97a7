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
    "twinlog.replication.records", Kind.COUNTER, "{record}", (*FLOW, DESTINATION), "source",
    "Records copied and acknowledged (committed) on the target.", mm2_name="record-count")  # fmt: skip
REPLICATION_IO = MetricSpec("twinlog.replication.io", Kind.COUNTER, "By", (*FLOW, DESTINATION), "source",
    "Bytes of record batches copied and acknowledged on the target.", mm2_name="byte-count")  # fmt: skip
REPLICATION_RECORDS_RATE = MetricSpec(
    "twinlog.replication.records.rate", Kind.GAUGE, "{record}/s", (*FLOW, DESTINATION), "source",
    "Records copied per second, over the last five seconds.", mm2_name="record-rate")  # fmt: skip
REPLICATION_IO_RATE = MetricSpec(
    "twinlog.replication.io.rate", Kind.GAUGE, "By/s", (*FLOW, DESTINATION), "source",
    "Bytes of record batches copied per second, over the last five seconds.",
    mm2_name="byte-rate")  # fmt: skip
REPLICATION_LATENCY = MetricSpec(
    "twinlog.replication.latency", Kind.HISTOGRAM, "s", (*FLOW, DESTINATION), "source",
    "Time from the source timestamp of a record to its acknowledgement on the target. A sample: at most "
    "about a hundred records a second for each topic and task, with the same distribution.",
    buckets=AGE_BUCKETS_SECONDS, mm2_name="replication-latency-ms")  # fmt: skip
REPLICATION_LATENCY_MIN, REPLICATION_LATENCY_MAX, REPLICATION_LATENCY_AVG = _over_the_last_seconds(
    "twinlog.replication.latency", "latency", "replication-latency-ms"
)
REPLICATION_RECORD_AGE = MetricSpec(
    "twinlog.replication.record.age", Kind.HISTOGRAM, "s", (*FLOW, DESTINATION), "source",
    "Age of a record when it was read from the source. Samples: see twinlog.replication.latency.",
    buckets=AGE_BUCKETS_SECONDS, mm2_name="record-age-ms")  # fmt: skip
REPLICATION_RECORD_AGE_MIN, REPLICATION_RECORD_AGE_MAX, REPLICATION_RECORD_AGE_AVG = _over_the_last_seconds(
    "twinlog.replication.record.age", "age when read", "record-age-ms"
)
REPLICATION_TRANSACTIONS = MetricSpec(
    "twinlog.replication.transactions", Kind.COUNTER, "{transaction}", (*FLOW, "twinlog.outcome"), "source",
    "Rounds of the copy by `twinlog.outcome`: committed, aborted. Transactions if exactly once.")  # fmt: skip
REPLICATION_LAG = MetricSpec(
    "twinlog.replication.lag", Kind.GAUGE, "{record}", (*FLOW, DESTINATION, PARTITION), "source",
    "Offsets from the next one to copy to the end of what may be copied, including control records and "
    "offsets that compaction removed. Absent while one of the two is unknown.",
    mm2_name="records-lag of the consumer")  # fmt: skip
REPLICATION_PARTITIONS = MetricSpec(
    "twinlog.replication.partitions", Kind.GAUGE, "{partition}", (*FLOW, "twinlog.state"), "source",
    "Replicated partitions by `twinlog.state`: RUNNING, PAUSED, BACKOFF, FAULTED, WAITING, STALLED.",
)  # fmt: skip
REPLICATION_FAILURES = MetricSpec(
    "twinlog.replication.failures", Kind.COUNTER, "{failure}", (*FLOW, ERROR_TYPE), "source",
    "Failures of partitions, rounds and the flow, by reason; the copy retries after each.")  # fmt: skip
REPLICATION_LOST = MetricSpec(
    "twinlog.replication.lost", Kind.COUNTER, "{record}", (*FLOW, DESTINATION, ERROR_TYPE), "source",
    "Source offsets whose records were lost (`error.type`: RETENTION, TOPIC_RECREATED, TARGET_RECREATED, "
    "TARGET_TRUNCATED, CORRUPT_BATCH); not those that an operator skipped, or that only the target still "
    "has.")  # fmt: skip
REPLICATION_GAPS = MetricSpec(
    "twinlog.replication.gaps", Kind.GAUGE, "{offset}", (*FLOW, DESTINATION, ERROR_TYPE), "source",
    "Lost source offsets that nobody has acknowledged (`twinlog gaps`), by reason. Alert above 0.",
)  # fmt: skip
REPLICATION_FOREIGN = MetricSpec(
    "twinlog.replication.foreign", Kind.COUNTER, "{record}", (*FLOW, DESTINATION), "source",
    "Foreign records (of other producers) that the source service has found in copies.",
)  # fmt: skip
REPLICATION_FOREIGN_OPEN = MetricSpec(
    "twinlog.replication.foreign.open", Kind.GAUGE, "{record}", (*FLOW, DESTINATION), "source",
    "Foreign records in copies that nobody has acknowledged (`twinlog foreign`). Alert above 0.",
)  # fmt: skip
REPLICATION_LAG_TIME = MetricSpec(
    "twinlog.replication.lag.time", Kind.GAUGE, "s", (*FLOW, DESTINATION, PARTITION), "source",
    "Age of the oldest record of a partition that is not copied, to a few seconds; 0 when all are, absent "
    "while it is not known.")  # fmt: skip
REPLICATION_OVERDUE = MetricSpec("twinlog.replication.overdue", Kind.GAUGE, "s", FLOW, "source",
    "Age of the oldest record of a flow that is not copied although nobody holds it back: the largest "
    "twinlog.replication.lag.time, without partitions that are PAUSED or have reached the end of a finite "
    "copy, and without twinlog.delay.seconds. Absent while no age is known.")  # fmt: skip
REPLICATION_SOURCE_END = MetricSpec(
    "twinlog.replication.source.end", Kind.GAUGE, "{offset}", (*FLOW, DESTINATION), "source",
    "Sum of the last known ends of a topic's partitions on the source: grows while producers write. Not for "
    "heartbeats. Drops while partitions become known after a start.")  # fmt: skip
REPLICATION_BEHIND = MetricSpec(
    "twinlog.replication.behind", Kind.GAUGE, "{partition}", (*FLOW, "twinlog.state", ERROR_TYPE), "source",
    "Partitions with records that are not copied yet, without heartbeats, by `twinlog.state` and reason "
    "(`error.type`, empty if nothing delays them).")  # fmt: skip
DESIRED_WORKERS = MetricSpec("twinlog.desired.workers", Kind.GAUGE, "{worker}", FLOW, "source",
    "Tasks with which the flow would keep up, for an autoscaler: more than it has while it falls behind. 0 "
    "on standby. See docs/standby.md.")  # fmt: skip
SLOT_LAG = MetricSpec("twinlog.slot.lag", Kind.GAUGE, "{record}", (*FLOW, SLOT), "source",
    "Source offsets that the partitions of a task have still to copy, as known last, by the number of its "
    "slot.")  # fmt: skip
REPLICATION_STALLED = MetricSpec(
    "twinlog.replication.stalled", Kind.GAUGE, "s", (*FLOW, DESTINATION, PARTITION,
    "twinlog.state", ERROR_TYPE), "source",
    "Time since the position of a STALLED or FAULTED partition last moved, with its reason; of the 100 "
    "partitions of a flow with the longest times.")  # fmt: skip
REPLICATION_THROTTLED = MetricSpec(
    "twinlog.replication.throttled", Kind.GAUGE, "{task}", (*FLOW, END), "source",
    "Tasks that a quota of a cluster is delaying now, by `twinlog.end`: source, target.")  # fmt: skip
TASKS_MEMORY = MetricSpec("twinlog.tasks.memory", Kind.GAUGE, "By", (), "source",
    "Resident memory of the processes below the service: Spark and its tasks, where they run on this "
    "machine.")  # fmt: skip
REPLICATION_LANE_RECORDS = MetricSpec(
    "twinlog.replication.lane.records", Kind.COUNTER, "{record}", (*FLOW, DESTINATION, "twinlog.lane"),
    "source",
    "Records by how they were copied (`twinlog.lane`: UNOPENED, why they were opened, or why they were not "
    "copied: ECHO, FILTERED, ROUTED (to another topic), SKIPPED, DEAD_LETTERED).")  # fmt: skip
REPLICATION_THROTTLE = MetricSpec(
    "twinlog.replication.throttle", Kind.GAUGE, "By/s", (*FLOW, DESTINATION), "source",
    "Limit of a flow (no destination) or of one topic; absent without one.")  # fmt: skip
OFFSET_SYNC_RECORDS = MetricSpec(
    "twinlog.offset_sync.records", Kind.COUNTER, "{record}", (*FLOW, DESTINATION), "source",
    "Offset syncs written.")  # fmt: skip
PIPELINE_BATCH_DURATION = MetricSpec("twinlog.pipeline.batch.duration", Kind.HISTOGRAM, "s", FLOW, "source",
    "Length of a Spark epoch; `_count` is the number of epochs that ended.",
    buckets=AGE_BUCKETS_SECONDS)  # fmt: skip
