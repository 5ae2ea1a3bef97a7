"""Metrics of continuous verification."""

from twinlog.telemetry.metrics.spec import (
    AGE_BUCKETS_SECONDS,
    DESTINATION,
    END,
    ERROR_TYPE,
    FLOW,
    GROUP,
    PARTITION,
    Kind,
    MetricSpec,
)

VERIFIED_UNTIL = MetricSpec(
    "twinlog.verified.until", Kind.GAUGE, "{offset}", (*FLOW, DESTINATION, PARTITION), "source",
    "Source offset up to which continuous verification has found the copy equal to its source.")  # fmt: skip
VERIFIED_AGE = MetricSpec("twinlog.verified.age", Kind.GAUGE, "s", (*FLOW, DESTINATION, PARTITION), "source",
    "Time since the last result of continuous verification; absent before the first.")  # fmt: skip
VERIFIED_DIFFERENCES = MetricSpec(
    "twinlog.verified.differences", Kind.GAUGE, "{record}", (*FLOW, DESTINATION, "twinlog.kind"), "source",
    "Records that differ, by the latest verification of each partition and by `twinlog.kind`: MISSING, "
    "DUPLICATE, FOREIGN, CHANGED, ORDER. Alert above 0.")  # fmt: skip


# Metrics of consumer groups: translation, moves, and their precision.

CHECKPOINT_LATENCY = MetricSpec("twinlog.checkpoint.latency", Kind.HISTOGRAM, "s", FLOW, "checkpoint",
    "Time between reading a group's offsets on the source and the checkpoint's acknowledgement.",
    buckets=AGE_BUCKETS_SECONDS, mm2_name="checkpoint-latency-ms")  # fmt: skip
CHECKPOINT_OFFSETS = MetricSpec(
    "twinlog.checkpoint.offsets", Kind.COUNTER, "{offset}", (*FLOW, "twinlog.outcome"), "checkpoint",
    "Checked offsets of groups, by verdict (`twinlog.outcome`: exact, floor, no_sync, ...).")  # fmt: skip
CHECKPOINT_AGE = MetricSpec("twinlog.checkpoint.age", Kind.GAUGE, "s", FLOW, "checkpoint",
    "Time since the last pass over all groups was done; absent before the first, and on standby.",
)  # fmt: skip
CHECKPOINT_OVERDUE = MetricSpec("twinlog.checkpoint.overdue", Kind.GAUGE, "s", FLOW, "checkpoint",
    "By how much twinlog.checkpoint.age is above emit.checkpoints.interval.seconds, else 0.")  # fmt: skip
CHECKPOINT_GROUPS = MetricSpec("twinlog.checkpoint.groups", Kind.GAUGE, "{group}", FLOW, "checkpoint",
    "Groups of the flow; absent on standby.")  # fmt: skip
CHECKPOINT_PARTITIONS = MetricSpec(
    "twinlog.checkpoint.partitions", Kind.GAUGE, "{partition}", (*FLOW, "twinlog.verdict"), "checkpoint",
    "Partitions of groups by `twinlog.verdict`: PRESERVED, EXACT, UP_TO_DATE, FLOOR, MAPPED, NO_SYNC, ...; "
    "absent on standby.")  # fmt: skip
CHECKPOINT_FAILURES = MetricSpec(
    "twinlog.checkpoint.failures", Kind.COUNTER, "{failure}", (*FLOW, ERROR_TYPE), "checkpoint",
    "Passes and groups that failed, by reason; the next pass retries them.")  # fmt: skip
GROUP_LAG = MetricSpec("twinlog.group.lag", Kind.GAUGE, "{record}", (*FLOW, GROUP, END), "checkpoint",
    "Records between a group and the end of the logs on the source, and between its translated offsets and "
    "the ends on the target, by `twinlog.end`; of the 200 groups that are furthest behind on the source; "
    "absent on standby.")  # fmt: skip
FENCED_TOPICS = MetricSpec("twinlog.failover.fenced", Kind.GAUGE, "{topic}", (*FLOW, END), "checkpoint",
    "Topics that a failover or failback has fenced, by `twinlog.end`: the cluster that they are on. Absent "
    "on standby, and until the record of failovers was read.")  # fmt: skip
OFFSET_SYNC_POSITION = MetricSpec("twinlog.offset_sync.position", Kind.GAUGE, "{offset}", FLOW, "checkpoint",
    "Next offset of the offset-syncs topic to read; absent before the first pass over it.")  # fmt: skip
OFFSET_SYNC_READABLE = MetricSpec("twinlog.offset_sync.readable", Kind.GAUGE, "1", FLOW, "checkpoint",
    "1 while the offset syncs can be read and have been read once to their end, else 0.")  # fmt: skip
TRANSLATION_IO = MetricSpec("twinlog.translation.io", Kind.COUNTER, "By", FLOW, "checkpoint",
    "Bytes read from both logs to translate offsets exactly.")  # fmt: skip


# Metrics of heartbeats: written, seen, latency.

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


# Metrics of changes on the target, and of pending ones.

CONFIGSYNC_CHANGES = MetricSpec(
    "twinlog.configsync.changes", Kind.COUNTER, "{change}", (*FLOW, "twinlog.resource.type",
    "twinlog.outcome"), "configsync",
    "Changes of the target (`twinlog.resource.type`: topic, partitions, config, acl, quota; "
    "`twinlog.outcome`: applied, drift_reverted, refused).")  # fmt: skip
CONFIGSYNC_DRIFT = MetricSpec(
    "twinlog.configsync.drift", Kind.GAUGE, "{change}", (*FLOW, "twinlog.resource.type"), "configsync",
    "Changes that the target needs and that are not made, because it refuses them or they wait for `twinlog "
    "apply` (`twinlog.resource.type`: topics, configs, acls, quotas).")  # fmt: skip
CONFIGSYNC_TOPICS = MetricSpec(
    "twinlog.configsync.topics", Kind.GAUGE, "{topic}", (*FLOW, "twinlog.state"), "configsync",
    "Topics of a flow by state.")  # fmt: skip
CONFIGSYNC_AGE = MetricSpec("twinlog.configsync.age", Kind.GAUGE, "s", FLOW, "configsync",
    "Time since topics and configurations were last compared as a whole; absent before the first time, and "
    "on standby.")  # fmt: skip
