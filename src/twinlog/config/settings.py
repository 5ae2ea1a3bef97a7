"""What services are given: frozen, typed records. Times are seconds, positions and topic names are made
elsewhere."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from twinlog.config.client_keys import NOTES, is_secret
from twinlog.config.loopback import is_loopback
from twinlog.config.precedence import Connector, client_id
from twinlog.config.problems import Notice
from twinlog.config.security import SecuritySettings
from twinlog.config.spec import Service, split_list
from twinlog.errors import ConfigError
from twinlog.model import ClusterAlias, Flow
from twinlog.properties import Property


class OffsetSyncsLocation(StrEnum):
    SOURCE = "source"
    TARGET = "target"


class OnDataLoss(StrEnum):
    RECORD = "record"
    """Write the gap to the ledger and go on behind it."""
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


class LogFormat(StrEnum):
    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a client setting was written: for `config explain`, never the value."""

    key: str
    line: int
    """0 = a default."""
    reference: str | None = None
    """The `${provider:…}` text when the value came from a provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings for one Kafka client in Java's names, references resolved. repr shows no secret."""

    alias: ClusterAlias
    properties: Mapping[str, str] = field(repr=False)
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False)

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        return split_list(self.properties.get("bootstrap.servers", ""))

    def redacted(self) -> dict[str, str]:
        """The settings fit to be shown: secrets as `***`, values from providers as their reference."""
        shown: dict[str, str] = {}
        for key, value in sorted(self.properties.items()):
            if key.startswith(NOTES):
                continue
            origin = self.origins.get(key)
            if is_secret(key):
                shown[key] = "***"
            else:
                shown[key] = value if origin is None or origin.reference is None else origin.reference
        return shown

    def for_role(
        self, flow: Flow, connector_name: str, role: str | None = None, *, task_index: int | None = None
    ) -> "ClientConfig":
        """The same client with MM2's client.id: `[user client.id|]A->B|connector[-task][|role]`."""
        identity = client_id(
            flow, connector_name, role, user=self.properties.get("client.id"), task_index=task_index
        )
        return replace(self, properties={**self.properties, "client.id": identity})

    def __repr__(self) -> str:
        return f"ClientConfig(alias={self.alias!r}, properties={self.redacted()!r})"

    @classmethod
    def of(cls, alias: ClusterAlias, properties: Mapping[str, Property]) -> "ClientConfig":
        """From resolved properties; values are trimmed as Kafka's typed parsing does."""
        return cls(
            alias=alias,
            properties={key: prop.value.strip() for key, prop in properties.items()},
            origins={
                key: Origin(key=prop.key, line=prop.line, reference=prop.written)
                for key, prop in properties.items()
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One cluster by itself, as MM2's MirrorClient sees it: what the command line and preflight connect
    with."""

    alias: ClusterAlias
    admin: ClientConfig
    consumer: ClientConfig
    producer: ClientConfig

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        return self.admin.bootstrap_servers


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowClients:
    """The Kafka clients of a flow, each with the settings that MM2 would give it."""

    source_consumer: ClientConfig
    """Reads the records; `isolation.level` is always set."""
    source_admin: ClientConfig
    source_producer: ClientConfig
    """Writes offset syncs when they live on the source."""
    target_consumer: ClientConfig
    """Reads checkpoints, positions, and offset syncs when they live on the target."""
    target_admin: ClientConfig
    target_producer: ClientConfig
    """Writes offset syncs when they live on the target."""
    data_producer: ClientConfig
    """Writes replicated records, positions, checkpoints and heartbeats."""


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
    """Of one batch that has to be opened."""
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
    heartbeats_replication_enabled: bool
    refresh_topics_enabled: bool
    refresh_topics_interval_seconds: float
    replication_factor: int
    """-1 = the broker's default."""
    config_properties_exclude: tuple[str, ...]
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
    source: SourceSettings
    checkpoint: CheckpointSettings
    heartbeat: HeartbeatSettings
    configsync: ConfigSyncSettings
    clients: FlowClients


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    host: str
    port: int
    """0 = any free one."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)

    def dialled_from_here(self) -> "Address":
        """The loopback address where this one stands for all interfaces."""
        loopback = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared with, not bound to
        return replace(self, host=loopback.get(self.host, self.host))

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `host:port`, `[::1]:port`. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if not (colon and host and port.isdecimal()):
            raise ValueError(f"{text!r} is not an address: expected HOST:PORT")
        return cls(host=host, port=int(port))

    def excludes(self, other: "Address") -> bool:
        """Whether no machine can have a server on each: one port, of one host or of all."""
        every = ("0.0.0.0", "[::]")  # noqa: S104 (compared with, not bound)
        same_host = self.host == other.host or self.host in every or other.host in every
        return self.port == other.port != 0 and same_host


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEndpoints:
    listen: Address
    listen_is_default: bool
    """Nobody chose it: `twinlog run` takes a free port where another run has it."""
    endpoint: Address
    """Where others find it."""
    metrics_listen: Address | None
    """None = no metrics endpoint."""
    metrics_is_default: bool
    """Nobody chose it: a free port is taken where the default one is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    master: str
    conf: Mapping[str, str] = field(repr=False)
    """`twinlog.spark.conf.<name>` without the prefix. May hold secrets."""
    worker_endpoint: Address | None
    """Where tasks on other machines find the source service; None = where it is bound for them."""
    worker_listen: Address | None = None
    """Where the source service listens for its tasks; None = see `twinlog.source.worker.listen`."""

    @property
    def is_local(self) -> bool:
        """Whether tasks run inside the service."""
        return self.master.startswith("local")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    drain_seconds: float
    grace_seconds: float
    owner_timeout_seconds: float
    log_level: str
    log_format: LogFormat
    strimzi_cluster: str = ""
    """The name of the cluster under which Strimzi's board shows the metrics; empty: not at all."""


class ConfigurationBase(Protocol):
    """The file as it was read, to make a configuration again with other values for some keys. Holds
    secrets.
    """

    def with_overrides(self, overrides: Mapping[str, str]) -> "Configuration":
        """The same file with these literal properties on top: references in them are refused
        (REFERENCE_REFUSED). Raises ConfigError. Blocks as `load` does.
        """
        ...

    def whole_file(self) -> "Configuration":
        """The same file with all of its flows, also those that this process was not to run. Raises
        ConfigError. Blocks as `load` does.
        """
        ...

    def flow_values(self, flow: Flow, keys: Collection[str]) -> Mapping[str, str]:
        """What these keys are for a flow: as written, else their default; one without a default is left
        out.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What `load` made of a file."""

    file: str
    clusters: Mapping[ClusterAlias, ClusterConfig]
    flows: tuple[FlowConfig, ...]
    """Every flow that runs, also those that only carry heartbeats; in the order of `clusters`."""
    endpoints: Mapping[Service, ServiceEndpoints]
    spark: SparkSettings
    runtime: RuntimeSettings
    security: SecuritySettings = field(default_factory=SecuritySettings)
    notices: tuple[Notice, ...] = ()
    base: ConfigurationBase | None = field(default=None, repr=False, compare=False)
    """What it was made of; None for one that was put together by hand."""

    @property
    def enabled_flows(self) -> tuple[FlowConfig, ...]:
        """Flows that replicate."""
        return tuple(flow for flow in self.flows if flow.enabled)

    def flow(self, flow: Flow) -> FlowConfig:
        """Raises ConfigError, naming the flows that there are."""
        for candidate in self.flows:
            if candidate.flow == flow:
                return candidate
        known = ", ".join(str(candidate.flow) for candidate in self.flows)
        raise ConfigError(
            f"{self.file}: there is no flow {flow}; flows: {known}", metadata={"flow": str(flow)}
        )
