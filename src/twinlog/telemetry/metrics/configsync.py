"""Metrics of changes on the target, and of pending ones."""

from twinlog.telemetry.metrics.spec import FLOW, Kind, MetricSpec

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
    description="Changes that the target needs and that are not made, because it refuses them or they wait "
    "for `twinlog apply` (`twinlog.resource.type`: topics, configs, acls, quotas).",
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
    "first time, and on standby.",
    attributes=FLOW,
    service="configsync",
)

METRICS: tuple[MetricSpec, ...] = (
    CONFIGSYNC_CHANGES,
    CONFIGSYNC_DRIFT,
    CONFIGSYNC_TOPICS,
    CONFIGSYNC_AGE,
)
