"""Metrics of consumer groups: translation, moves, and their precision."""

from twinlog.telemetry.metrics.spec import AGE_BUCKETS_SECONDS, END, ERROR_TYPE, FLOW, GROUP, Kind, MetricSpec

CHECKPOINT_LATENCY = MetricSpec("twinlog.checkpoint.latency", Kind.HISTOGRAM, "s", FLOW, "checkpoint",
    "Time between reading a group's offsets on the source and the checkpoint's acknowledgement.",
    buckets=AGE_BUCKETS_SECONDS, mm2_name="checkpoint-latency-ms")  # fmt: skip
CHECKPOINT_OFFSETS = MetricSpec(
    "twinlog.checkpoint.offsets", Kind.COUNTER, "{offset}", (*FLOW, "twinlog.outcome"), "checkpoint",
    "Checked offsets of groups, by verdict (`twinlog.outcome`: exact, floor, no_sync, ...).")  # fmt: skip
CHECKPOINT_AGE = MetricSpec("twinlog.checkpoint.age", Kind.GAUGE, "s", FLOW, "checkpoint",
    "Time since the last pass over all groups was done; absent before the first, and on standby.",
)  # fmt: skip
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
