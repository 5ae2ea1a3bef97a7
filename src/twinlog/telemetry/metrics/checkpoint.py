"""Metrics of consumer groups: translation, moves, and their precision."""

from twinlog.telemetry.metrics.spec import AGE_BUCKETS_SECONDS, END, ERROR_TYPE, FLOW, GROUP, Kind, MetricSpec

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
    description="Checked offsets of groups, by verdict (`twinlog.outcome`: exact, floor, no_sync, ...).",
    attributes=(*FLOW, "twinlog.outcome"),
    service="checkpoint",
)
CHECKPOINT_AGE = MetricSpec(
    name="twinlog.checkpoint.age",
    kind=Kind.GAUGE,
    unit="s",
    description="Time since the last pass over all groups was done; absent before the first, and on standby.",
    attributes=FLOW,
    service="checkpoint",
)
CHECKPOINT_GROUPS = MetricSpec(
    name="twinlog.checkpoint.groups",
    kind=Kind.GAUGE,
    unit="{group}",
    description="Groups of the flow; absent on standby.",
    attributes=FLOW,
    service="checkpoint",
)
CHECKPOINT_PARTITIONS = MetricSpec(
    name="twinlog.checkpoint.partitions",
    kind=Kind.GAUGE,
    unit="{partition}",
    description="Partitions of groups by `twinlog.verdict`: PRESERVED, EXACT, UP_TO_DATE, FLOOR, NO_SYNC, "
    "...; absent on standby.",
    attributes=(*FLOW, "twinlog.verdict"),
    service="checkpoint",
)
CHECKPOINT_FAILURES = MetricSpec(
    name="twinlog.checkpoint.failures",
    kind=Kind.COUNTER,
    unit="{failure}",
    description="Passes and groups that failed, by reason; the next pass retries them.",
    attributes=(*FLOW, ERROR_TYPE),
    service="checkpoint",
)
GROUP_LAG = MetricSpec(
    name="twinlog.group.lag",
    kind=Kind.GAUGE,
    unit="{record}",
    description="Records between a group and the end of the logs on the source, and between its "
    "translated offsets and the ends on the target, by `twinlog.end`; of the 200 groups "
    "that are furthest behind on the source; absent on standby.",
    attributes=(*FLOW, GROUP, END),
    service="checkpoint",
)
FENCED_TOPICS = MetricSpec(
    name="twinlog.failover.fenced",
    kind=Kind.GAUGE,
    unit="{topic}",
    description="Topics that a failover or failback has fenced, by `twinlog.end`: the cluster that they are"
    " on. Absent on standby, and until the record of failovers was read.",
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

METRICS: tuple[MetricSpec, ...] = (
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
)
