"""The settings of each service for a flow. Times are in seconds.

A field that is the value of one key names it; the others are made in `flows.py` and `source_settings.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.config.client_settings import FlowClients
from twinlog.config.values.precedence import Connector
from twinlog.config.values.reader import of_key
from twinlog.filters import PatternList
from twinlog.model import Flow

# `twinlog.sync.topic.configs.fixed`: what topic settings are on the target, whatever the source says.
# Pure.
#
#     orders.* retention.ms=604800000 cleanup.policy=compact,delete; audit retention.ms=-1
#
# A semicolon ends a rule; a rule is a topic (a name or a regular expression that matches the whole name)
# and what its copies get. Of two rules that name a setting of a topic the first one counts.

FIXED_CONFIGS_KEY = "twinlog.sync.topic.configs.fixed"
MIN_ISR = "min.insync.replicas"
_SETTING = re.compile(r"(?P<name>[a-z][a-z0-9.]*)=(?P<value>\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedConfig:
    value: str
    pattern: str
    """The pattern of the rule that sets the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedRule:
    topics: PatternList
    values: Mapping[str, str]

    @property
    def pattern(self) -> str:
        return self.topics.patterns[0]


FixedRules = tuple[FixedRule, ...]


def parse_fixed_configs(text: str) -> FixedRules:
    """Raises ValueError that names the wrong rule, ConfigError for a pattern that does not compile."""
    return tuple(_rule(rule) for part in text.split(";") if (rule := part.strip()))


def fixed_configs(rules: FixedRules, source_topic: str) -> dict[str, FixedConfig]:
    """The fixed values for the copy of a source topic, by config."""
    found: dict[str, FixedConfig] = {}
    for rule in rules:
        if rule.topics.matches(source_topic):
            for name, value in rule.values.items():
                found.setdefault(name, FixedConfig(value=value, pattern=rule.pattern))
    return found


def _rule(text: str) -> FixedRule:
    pattern, *settings = text.split()
    values: dict[str, str] = {}
    for setting in settings:
        match = _SETTING.fullmatch(setting)
        if match is None:
            raise ValueError(f"{setting!r} of {text!r} is not setting=value")
        if match["name"] in values:
            raise ValueError(f"{text!r} says {match['name']} twice")
        if match["name"] == MIN_ISR and not match["value"].isdecimal():
            raise ValueError(f"{setting!r} of {text!r} is not a whole number")
        values[match["name"]] = match["value"]
    if not values:
        raise ValueError(f"{text!r} has no setting=value")
    return FixedRule(topics=PatternList(FIXED_CONFIGS_KEY, (pattern,)), values=values)


class OffsetSyncsLocation(StrEnum):
    """Value of `offset-syncs.topic.location` (KIP-716)."""

    SOURCE = "source"
    TARGET = "target"


class OnDataLoss(StrEnum):
    RECORD = "record"
    """Write the gap to the ledger and continue after it."""
    FAIL = "fail"
    """Fault the partition."""


class OffsetsMode(StrEnum):
    """Which offsets the records of a copy have."""

    AUTO = "auto"
    """The source's offsets where that is possible."""
    PRESERVED = "preserved"
    """The source's offsets, or the partition is not copied."""
    TRANSLATED = "translated"
    """Offsets of their own."""


class AutoOffsetReset(StrEnum):
    """Where a partition without a stored position starts."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    BY_DURATION = "by_duration"
    """At the first record of a time that is so long ago (KIP-1106)."""


class AclSyncMode(StrEnum):
    """Which ACLs are copied."""

    MM2 = "mm2"
    """Literal topics without WRITE; never deletes."""
    READ_ONLY = "read-only"
    """Reading rights on topics and groups, also prefixed; removals are followed."""
    FULL = "full"
    """Every right on topics, groups and transactional ids; removals are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Names and regular expressions, not compiled; each must match a whole name. Exclude takes precedence."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetStorage:
    """The topic on the target with the flow's positions (`mm2-offsets.<source>.internal`)."""

    topic: str
    partitions: int
    """-1 = the broker's default."""
    replication_factor: int
    """-1 = the broker's default."""
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    """Configs with which the topic is created, besides those that it always has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSyncsSettings:
    enabled: bool
    location: OffsetSyncsLocation = field(metadata=of_key("offset-syncs.topic.location"))
    replication_factor: int = field(metadata=of_key("offset-syncs.topic.replication.factor"))
    max_lag_records: int = field(metadata=of_key("offset.lag.max"))
    """0 = one sync per record."""
    min_compaction_lag_seconds: float = field(
        metadata=of_key("twinlog.offset-syncs.min.compaction.lag.seconds")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsSettings:
    """Which copies keep the source's offsets, and how much that may cost."""

    mode: OffsetsMode = field(default=OffsetsMode.AUTO, metadata=of_key("twinlog.offsets"))
    preserved_topics: tuple[str, ...] = field(default=(), metadata=of_key("twinlog.offsets.preserved.topics"))
    """Patterns of source topics for which `mode` is PRESERVED, whatever it is for others."""
    translated_topics: tuple[str, ...] = field(
        default=(), metadata=of_key("twinlog.offsets.translated.topics")
    )
    """The same for TRANSLATED; takes precedence over `preserved_topics`."""
    fill_max: int = field(default=100_000_000, metadata=of_key("twinlog.offsets.fill.max"))
    """The most offsets of a partition that may be filled before its first record."""
    fill_total: int = field(default=1_000_000_000, metadata=of_key("twinlog.offsets.fill.total"))
    """The same for all partitions of the flow together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    connector_name: str = Connector.SOURCE
    """The first element of the keys in the positions topic."""
    exactly_once: bool
    read_committed: bool
    """Whether the source is read with isolation.level=read_committed."""
    auto_offset_reset: AutoOffsetReset
    reset_duration_ms: int = 0
    """How long ago, with BY_DURATION."""
    start_group: str = ""
    """Partitions without a stored position begin at the committed offsets of this group on the source; empty
    = none."""
    start_time_ms: int | None = None
    """Otherwise at their first record of this time, in ms since 1970; None = by `auto_offset_reset`."""
    max_slots: int | None
    """The most slots that copy at the same time; None = as many as Spark has cores."""
    offset_storage: OffsetStorage
    offset_syncs: OffsetSyncsSettings
    sync_flush_seconds: float
    """How often a partition may get an offset sync in addition to those for enough records
    (offset.flush.interval.ms)."""
    epoch_seconds: float = field(metadata=of_key("twinlog.epoch.seconds"))
    longest_epoch_seconds: float = field(metadata=of_key("twinlog.epoch.max.seconds"))
    lease_seconds: float = field(metadata=of_key("twinlog.lease.seconds"))
    stalled_seconds: float = field(metadata=of_key("twinlog.stalled.seconds"))
    """A partition with records to copy that makes no progress for this long is STALLED."""
    on_data_loss: OnDataLoss = field(metadata=of_key("twinlog.on.data.loss"))
    verify_interval_seconds: float = field(default=0.0, metadata=of_key("twinlog.verify.interval.seconds"))
    """How often the copies are verified while they are written; 0 = never."""
    verify_max_bytes_per_second: int = field(
        default=0, metadata=of_key("twinlog.verify.max.bytes.per.second")
    )
    """The limit for reading from each cluster for that; 0 = no limit."""
    delay_seconds: float = field(default=0.0, metadata=of_key("twinlog.delay.seconds"))
    """Only records older than this are copied."""
    copy_until: str = ""
    """The source offsets at which a finite copy ends, as `twinlog copy` writes them; empty = it does not
    end."""
    coalesce_below_bytes: int = field(metadata=of_key("twinlog.coalesce.below.bytes"))
    """0 = never coalesce."""
    max_uncompressed_bytes: int = field(metadata=of_key("twinlog.batch.max.uncompressed.bytes"))
    """The uncompressed size limit of a batch that has to be opened."""
    recode_compression_level: int | None = field(metadata=of_key("twinlog.recode.compression.level"))
    """None = a suitable one for the codec."""
    weights: tuple[tuple[str, float], ...] = ()
    """Patterns of source topics with their weights. The first that matches counts."""
    offsets: OffsetsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """`enabled` already includes everything: the flow, emit.checkpoints and emit.offset-syncs."""

    connector_name: str = Connector.CHECKPOINT
    enabled: bool
    groups: Selection
    topics: Selection
    offset_syncs_location: OffsetSyncsLocation
    emit_interval_seconds: float
    follows_closely: bool = False
    """Neither interval is set: groups are followed every few seconds where that costs no reading of logs."""
    refresh_groups_enabled: bool
    refresh_groups_interval_seconds: float
    sync_group_offsets_enabled: bool
    sync_group_offsets_interval_seconds: float
    sync_group_deletes_enabled: bool = field(metadata=of_key("twinlog.sync.group.deletes.enabled"))
    """Groups that were deleted on the source are deleted on the target."""
    sync_group_deletes_grace_seconds: float = field(
        metadata=of_key("twinlog.sync.group.deletes.grace.seconds")
    )
    """How long a group must have been gone."""
    sync_group_deletes_max_per_hour: int = field(metadata=of_key("twinlog.sync.group.deletes.max.per.hour"))
    translation_max_bytes: int = field(metadata=of_key("twinlog.translation.max.bytes"))
    """The most bytes to read in one interval for exact translation; 0 = translate by offset syncs alone."""
    topic_replication_factor: int = field(metadata=of_key("checkpoints.topic.replication.factor"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    connector_name: str = Connector.HEARTBEAT
    enabled: bool
    """Independent of the flow's own switch: a flow that is not enabled also writes heartbeats."""
    interval_seconds: float
    topic_replication_factor: int = field(metadata=of_key("heartbeats.topic.replication.factor"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSyncSettings:
    topics: Selection
    heartbeats_replication_enabled: bool = field(metadata=of_key("heartbeats.replication.enabled"))
    refresh_topics_enabled: bool
    refresh_topics_interval_seconds: float
    replication_factor: int = field(metadata=of_key("replication.factor"))
    """-1 = the broker's default."""
    config_properties_include: tuple[str, ...] = field(metadata=of_key("twinlog.sync.topic.configs.include"))
    config_properties_exclude: tuple[str, ...] = field(metadata=of_key("config.properties.exclude"))
    """Takes precedence over `config_properties_include`."""
    fixed_configs: FixedRules
    """Configs of copies, whatever the source has; they take precedence over both."""
    use_source_defaults: bool
    sync_configs_enabled: bool
    sync_configs_interval_seconds: float
    sync_acls_enabled: bool
    sync_acls_interval_seconds: float
    acl_mode: AclSyncMode = field(metadata=of_key("twinlog.sync.topic.acls.mode"))
    sync_quotas_enabled: bool = field(metadata=of_key("twinlog.sync.client.quotas.enabled"))
    apply_automatically: bool
    """False: changes are planned and wait for `twinlog apply`."""
    follow_deletes: bool = field(metadata=of_key("twinlog.sync.topic.deletes.enabled"))
    """Whether the copy of a deleted source topic is deleted as well."""
    delete_grace_seconds: float = field(metadata=of_key("twinlog.sync.topic.deletes.grace.seconds"))
    max_deletes_per_hour: int = field(metadata=of_key("twinlog.sync.topic.deletes.max.per.hour"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    flow: Flow
    enabled: bool
    """False: only heartbeats."""
    policy_config: Mapping[str, str]
    """`replication.policy.*` of the flow, the class always with its full name. A key that the file does not
    have is absent, because a configured separator has another meaning than the same one by default."""
    internal_topics: frozenset[str]
    """Topics in which a flow of the file, or the Connect worker that it replaces, keeps its state, under
    names or separators that the file sets."""
    source: SourceSettings
    checkpoint: CheckpointSettings
    heartbeat: HeartbeatSettings
    configsync: ConfigSyncSettings
    clients: FlowClients
