"""What each service is given for a flow. Times are seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.config.client_settings import FlowClients
from twinlog.config.flow.fixed_configs import FixedRules
from twinlog.config.values.precedence import Connector
from twinlog.model import Flow


class OffsetSyncsLocation(StrEnum):
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
    """Those of the source where that is possible."""
    PRESERVED = "preserved"
    """Those of the source, or nothing is copied."""
    TRANSLATED = "translated"
    """Offsets of their own."""


class AutoOffsetReset(StrEnum):
    """Where a partition without a stored position starts."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class AclSyncMode(StrEnum):
    """Which ACLs are copied."""

    MM2 = "mm2"
    """Literal topics without WRITE; nothing is ever deleted."""
    READ_ONLY = "read-only"
    """Reading rights on topics and groups, prefixes too; removals are followed."""
    FULL = "full"
    """Every right on topics, groups and transactional ids; removals are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Names and regular expressions, not compiled; each must match a whole name, exclude wins."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetStorage:
    """The topic on the target that holds the flow's positions (`mm2-offsets.<source>.internal`)."""

    topic: str
    partitions: int
    """-1 = the broker's default."""
    replication_factor: int
    """-1 = the broker's default."""
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    """Configs of the topic when it is created, beside those that it always has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSyncsSettings:
    enabled: bool
    location: OffsetSyncsLocation
    replication_factor: int
    max_lag_records: int
    """0 = a sync for every record."""
    min_compaction_lag_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsSettings:
    """Which copies keep their source's offsets, and what that may cost."""

    mode: OffsetsMode = OffsetsMode.AUTO
    preserved_topics: tuple[str, ...] = ()
    """Patterns of source topics for which `mode` is PRESERVED, whatever it is for the others."""
    translated_topics: tuple[str, ...] = ()
    """The same for TRANSLATED; wins over `preserved_topics`."""
    fill_max: int = 100_000_000
    """The most offsets of a partition that are filled before its first record."""
    fill_total: int = 1_000_000_000
    """The same for all partitions of the flow together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    connector_name: str = Connector.SOURCE
    """First element of the keys in the positions topic."""
    exactly_once: bool
    read_committed: bool
    """Whether the source is read with isolation.level=read_committed."""
    auto_offset_reset: AutoOffsetReset
    start_group: str = ""
    """Partitions without a stored position begin where this group of the source has committed; empty =
    none."""
    start_time_ms: int | None = None
    """Else at their first record of this time, in ms since 1970; None = by `auto_offset_reset`."""
    max_slots: int | None
    """The most slots that copy at once; None = as many as Spark has cores."""
    offset_storage: OffsetStorage
    offset_syncs: OffsetSyncsSettings
    sync_flush_seconds: float
    """How often a partition may get an offset sync beside those for enough records
    (offset.flush.interval.ms)."""
    epoch_seconds: float
    longest_epoch_seconds: float
    lease_seconds: float
    stalled_seconds: float
    """Without a move for so long, a partition that has records to copy is STALLED."""
    on_data_loss: OnDataLoss
    verify_interval_seconds: float = 0.0
    """How often the copies are verified while they are made; 0 = never."""
    verify_max_bytes_per_second: int = 0
    """Read of each cluster for that; 0 = no limit."""
    delay_seconds: float = 0.0
    """Only records are copied that are older."""
    copy_until: str = ""
    """Source offsets where a finite copy ends, as `twinlog copy` writes them; empty = it does not end."""
    coalesce_below_bytes: int
    """0 = never coalesce."""
    max_uncompressed_bytes: int
    """A batch that has to be opened may have so many bytes when it is no longer compressed."""
    recode_compression_level: int | None
    """None = a sensible one for the codec."""
    offsets: OffsetsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """`enabled` already takes everything into account: the flow, emit.checkpoints and emit.offset-syncs."""

    connector_name: str = Connector.CHECKPOINT
    enabled: bool
    groups: Selection
    topics: Selection
    offset_syncs_location: OffsetSyncsLocation
    emit_interval_seconds: float
    refresh_groups_enabled: bool
    refresh_groups_interval_seconds: float
    sync_group_offsets_enabled: bool
    sync_group_offsets_interval_seconds: float
    sync_group_deletes_enabled: bool
    """Groups deleted on the source are deleted on the target."""
    sync_group_deletes_grace_seconds: float
    """How long a group must have been gone."""
    sync_group_deletes_max_per_hour: int
    translation_max_bytes: int
    """Read at most in one interval to translate exactly; 0 = translate by offset syncs alone."""
    topic_replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    connector_name: str = Connector.HEARTBEAT
    enabled: bool
    """Independent of the flow's own switch: a flow that is not enabled also writes heartbeats."""
    interval_seconds: float
    topic_replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSyncSettings:
    topics: Selection
    forwarding_class: str
    """What makes changes on the target: Kafka's ForwardingAdmin, or a class of an installed package."""
    heartbeats_replication_enabled: bool
    refresh_topics_enabled: bool
    refresh_topics_interval_seconds: float
    replication_factor: int
    """-1 = the broker's default."""
    config_properties_include: tuple[str, ...]
    config_properties_exclude: tuple[str, ...]
    """Wins over `config_properties_include`."""
    fixed_configs: FixedRules
    """What copies have whatever the source says; wins over both."""
    use_source_defaults: bool
    sync_configs_enabled: bool
    sync_configs_interval_seconds: float
    sync_acls_enabled: bool
    sync_acls_interval_seconds: float
    acl_mode: AclSyncMode
    sync_quotas_enabled: bool
    apply_automatically: bool
    """False: changes are planned and wait for ApplySync."""
    follow_deletes: bool
    """Whether the counterpart of a deleted source topic is deleted as well."""
    delete_grace_seconds: float
    max_deletes_per_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    flow: Flow
    enabled: bool
    """False: only heartbeats."""
    policy_config: Mapping[str, str]
    """`replication.policy.*` of the flow, the class always by its full name. A key that the file leaves out
    is absent: a separator that is configured means more than the same one by default."""
    filter_config: Mapping[str, str]
    """`topic.filter.*`, `group.filter.*` and `config.property.filter.*`, classes by their full names."""
    source: SourceSettings
    checkpoint: CheckpointSettings
    heartbeat: HeartbeatSettings
    configsync: ConfigSyncSettings
    clients: FlowClients
