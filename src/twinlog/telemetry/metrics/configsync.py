"""Metrics of changes on the target, and of pending ones."""

from twinlog.telemetry.metrics.spec import FLOW, Kind, MetricSpec

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
