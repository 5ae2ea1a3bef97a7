"""One flow's settings: MM2's precedence applied, typed, with what MM2 would refuse refused."""

from dataclasses import dataclass
from datetime import UTC, datetime

from twinlog.config import precedence
from twinlog.config.clients import READ_COMMITTED, ClientBuilder
from twinlog.config.copy_until import parse_until
from twinlog.config.precedence import Connector, Settings, Side
from twinlog.config.problems import Findings
from twinlog.config.providers import Resolver
from twinlog.config.reader import SettingsReader
from twinlog.config.settings import (
    AclSyncMode,
    AutoOffsetReset,
    CheckpointSettings,
    ConfigSyncSettings,
    FlowClients,
    FlowConfig,
    HeartbeatSettings,
    OffsetsMode,
    OffsetsSettings,
    OffsetStorage,
    OffsetSyncsLocation,
    OffsetSyncsSettings,
    OnDataLoss,
    Selection,
    SourceSettings,
)
from twinlog.model import Flow

SHORTEST_INTERVAL_SECONDS = 0.1
"""What an interval of 0 means where MM2 allows it: there it is a busy loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """Everything a flow's settings are read from."""

    raw: Settings
    flow: Flow
    connector: Settings
    """Of the source connector; the three differ in `name` and `connector.class` only."""
    worker: Settings
    read: SettingsReader
    read_worker: SettingsReader
    resolver: Resolver
    findings: Findings


def flow_config(raw: Settings, flow: Flow, *, resolver: Resolver, findings: Findings) -> FlowConfig:
    """Build a flow that runs. Problems go to `findings`; the result is only good when there are none."""
    connector = precedence.connector_properties(raw, flow, Connector.SOURCE)
    worker = precedence.worker_properties(raw, flow, resolver.resolve)
    sources = _Sources(
        raw=raw,
        flow=flow,
        connector=connector,
        worker=worker,
        read=SettingsReader(connector, resolve=resolver.resolve, findings=findings),
        read_worker=SettingsReader(worker, resolve=resolver.resolve, findings=findings),
        resolver=resolver,
        findings=findings,
    )
    enabled = sources.read.boolean("enabled")
    _check_aliases(sources, enabled=enabled)
    _check_converters(sources)
    clients = ClientBuilder(resolver, findings).of_flow(flow, connector=connector, worker=worker)
    topics = Selection(
        include=sources.read.patterns("topics"), exclude=sources.read.patterns("topics.exclude")
    )
    source = _source(sources, clients)
    return FlowConfig(
        flow=flow,
        enabled=enabled,
        policy_config=_policy(sources),
        source=source,
        checkpoint=_checkpoint(sources, topics, enabled=enabled, syncs=source.offset_syncs),
        heartbeat=_heartbeat(sources),
        configsync=_configsync(sources, topics),
        clients=clients,
    )


def _check_aliases(sources: _Sources, *, enabled: bool) -> None:
    """MM2 would take another alias as it is and name every topic after it; a flow here is its two aliases."""
    for key, alias in (
        ("source.cluster.alias", sources.flow.source),
        ("target.cluster.alias", sources.flow.target),
    ):
        prop = sources.resolver.resolve(sources.connector[key])
        if prop.value.strip() == alias:
            continue
        if enabled:
            sources.findings.wrong_value(prop, f"{alias} (as in {sources.flow}) or no such key", secret=False)
        else:
            sources.findings.warning(prop.key, f"has no effect on {sources.flow}", line=prop.line)


def _policy(sources: _Sources) -> dict[str, str]:
    """`replication.policy.*` as configured; keys beyond Kafka's own are passed on for other policies'
    sake."""
    prefix = "replication.policy."
    config = {
        key: sources.resolver.resolve(prop).value.strip()
        for key, prop in precedence.with_prefix(sources.connector, prefix).items()
    }
    config[f"{prefix}class"] = sources.read.text(f"{prefix}class")
    config["source.cluster.alias"] = sources.flow.source
    sources.read.boolean(f"{prefix}internal.topic.separator.enabled")
    return config


def _source(sources: _Sources, clients: FlowClients) -> SourceSettings:
    read, worker, findings = sources.read, sources.read_worker, sources.findings
    exactly_once = worker.text("exactly.once.source.support") == "enabled"
    isolation = clients.source_consumer.properties["isolation.level"]
    support = read.property("exactly.once.support")
    if read.text("exactly.once.support") == "required" and support is not None:
        if isolation != READ_COMMITTED:
            findings.problem(
                support.key,
                f"required, but {sources.flow.source}.consumer.isolation.level is not {READ_COMMITTED}",
                line=support.line,
            )
        if not exactly_once:
            findings.problem(
                support.key,
                f"required, but {sources.flow.target}.exactly.once.source.support is not enabled",
                line=support.line,
            )
    max_slots = read.optional_integer("twinlog.max.slots")
    tasks_max = read.optional_integer("tasks.max")
    return SourceSettings(
        connector_name=precedence.connector_name(sources.raw, sources.flow, Connector.SOURCE),
        exactly_once=exactly_once,
        read_committed=isolation == READ_COMMITTED,
        auto_offset_reset=_auto_offset_reset(sources),
        start_group=(read.optional_text("twinlog.start.group") or "").strip(),
        start_time_ms=_start_time(sources),
        max_slots=tasks_max if max_slots is None else max_slots,
        offset_storage=OffsetStorage(
            topic=read.optional_text("offsets.storage.topic") or worker.text("offset.storage.topic"),
            partitions=worker.integer("offset.storage.partitions"),
            replication_factor=worker.integer("offset.storage.replication.factor"),
            topic_configs=_topic_configs(sources),
        ),
        offset_syncs=_offset_syncs(sources),
        sync_flush_seconds=worker.integer("offset.flush.interval.ms") / 1000,
        epoch_seconds=read.number("twinlog.epoch.seconds"),
        longest_epoch_seconds=read.number("twinlog.epoch.max.seconds"),
        lease_seconds=read.number("twinlog.lease.seconds"),
        stalled_seconds=read.number("twinlog.stalled.seconds"),
        on_data_loss=OnDataLoss(read.text("twinlog.on.data.loss")),
        verify_interval_seconds=read.number("twinlog.verify.interval.seconds"),
        verify_max_bytes_per_second=read.integer("twinlog.verify.max.bytes.per.second"),
        delay_seconds=read.number("twinlog.delay.seconds"),
        copy_until=_copy_until(read, findings),
        coalesce_below_bytes=read.integer("twinlog.coalesce.below.bytes"),
        max_uncompressed_bytes=read.integer("twinlog.batch.max.uncompressed.bytes"),
        recode_compression_level=read.optional_integer("twinlog.recode.compression.level"),
        offsets=OffsetsSettings(
            mode=OffsetsMode(read.text("twinlog.offsets")),
            preserved_topics=read.patterns("twinlog.offsets.preserved.topics"),
            translated_topics=read.patterns("twinlog.offsets.translated.topics"),
            fill_max=read.integer("twinlog.offsets.fill.max"),
            fill_total=read.integer("twinlog.offsets.fill.total"),
        ),
    )


def _start_time(sources: _Sources) -> int | None:
    prop = sources.read.property("twinlog.start.time")
    text = (sources.read.optional_text("twinlog.start.time") or "").strip()
    if prop is None or not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        sources.findings.wrong_value(prop, "a time such as 2026-01-31T12:00:00Z", secret=False)
        return None
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _copy_until(read: SettingsReader, findings: Findings) -> str:
    text = (read.optional_text("twinlog.copy.until") or "").strip()
    try:
        parse_until(text)
    except ValueError as error:
        findings.problem(
            "twinlog.copy.until", f"is no JSON of source offsets by topic and partition: {error}"
        )
    return text


_NO_TOPIC_CONFIGS = frozenset(("topic", "partitions", "replication.factor", "cleanup.policy"))


def _topic_configs(sources: _Sources) -> dict[str, str]:
    """`offset.storage.<config of a topic>`: Connect makes its topic with them (cleanup.policy is its own)."""
    stored = precedence.strip_prefix(sources.worker, "offset.storage.")
    return {
        name: sources.resolver.resolve(prop).value.strip()
        for name, prop in sorted(stored.items())
        if name not in _NO_TOPIC_CONFIGS
    }


def _check_converters(sources: _Sources) -> None:
    """Another converter would change records in MM2; here nothing is converted, which must not go unsaid."""
    for name in ("key.converter", "value.converter", "header.converter"):
        for settings in (sources.worker, sources.connector):
            prop = settings.get(name)
            if prop is None:
                continue
            value = sources.resolver.resolve(prop).value.strip()
            if value.rpartition(".")[2] != "ByteArrayConverter":
                sources.findings.problem(
                    prop.key,
                    f"{value} would convert records, and they are copied byte for byte here; remove it",
                    line=prop.line,
                )


def _auto_offset_reset(sources: _Sources) -> AutoOffsetReset:
    prop = precedence.consumer_properties(sources.connector, Side.SOURCE)["auto.offset.reset"]
    prop = sources.resolver.resolve(prop)
    try:
        return AutoOffsetReset(prop.value.strip().lower())
    except ValueError:
        sources.findings.wrong_value(prop, "one of " + ", ".join(AutoOffsetReset), secret=False)
        return AutoOffsetReset.EARLIEST


def _offset_syncs(sources: _Sources) -> OffsetSyncsSettings:
    """MM2 refuses settings of offset syncs beside `emit.offset-syncs.enabled=false`; so do we."""
    read = sources.read
    switched_off = read.property("emit.offset-syncs.enabled")
    enabled = read.boolean("emit.offset-syncs.enabled")
    if not enabled and switched_off is not None:
        for key, prop in sources.connector.items():
            if key.startswith(("offset-syncs-", "offset-syncs.topic.")):
                sources.findings.problem(
                    prop.key,
                    f"offset syncs cannot be set up while {switched_off.key} is false: remove one of the two",
                    line=prop.line,
                )
    return OffsetSyncsSettings(
        enabled=enabled,
        location=OffsetSyncsLocation(read.text("offset-syncs.topic.location")),
        replication_factor=read.integer("offset-syncs.topic.replication.factor"),
        max_lag_records=read.integer("offset.lag.max"),
        min_compaction_lag_seconds=read.number("twinlog.offset-syncs.min.compaction.lag.seconds"),
    )


def _checkpoint(
    sources: _Sources, topics: Selection, *, enabled: bool, syncs: OffsetSyncsSettings
) -> CheckpointSettings:
    """Checkpoints need offset syncs. Where MM2's checkpoint connector fails alone, checkpoints are off and it
    is said; what asks for group offsets all the same is an error."""
    read, findings = sources.read, sources.findings
    emit = read.boolean("emit.checkpoints.enabled")
    sync_groups = read.boolean("sync.group.offsets.enabled")
    if enabled:
        for key, on in (("emit.checkpoints.enabled", emit), ("emit.offset-syncs.enabled", syncs.enabled)):
            prop = read.property(key)
            if on or prop is None:
                continue
            wanted = read.property("sync.group.offsets.enabled")
            if sync_groups and wanted is not None:
                findings.problem(wanted.key, f"needs {key}=true, but {prop.key} is false", line=wanted.line)
            else:
                findings.warning(
                    prop.key, f"consumer groups of {sources.flow} are not translated", line=prop.line
                )
    return CheckpointSettings(
        connector_name=precedence.connector_name(sources.raw, sources.flow, Connector.CHECKPOINT),
        enabled=enabled and emit and syncs.enabled,
        groups=Selection(include=read.patterns("groups"), exclude=read.patterns("groups.exclude")),
        topics=topics,
        offset_syncs_location=syncs.location,
        emit_interval_seconds=max(
            read.number("emit.checkpoints.interval.seconds"), SHORTEST_INTERVAL_SECONDS
        ),
        refresh_groups_enabled=read.boolean("refresh.groups.enabled"),
        refresh_groups_interval_seconds=read.number("refresh.groups.interval.seconds"),
        sync_group_offsets_enabled=sync_groups,
        sync_group_offsets_interval_seconds=read.number("sync.group.offsets.interval.seconds"),
        sync_group_deletes_enabled=read.boolean("twinlog.sync.group.deletes.enabled"),
        sync_group_deletes_grace_seconds=read.number("twinlog.sync.group.deletes.grace.seconds"),
        sync_group_deletes_max_per_hour=read.integer("twinlog.sync.group.deletes.max.per.hour"),
        translation_max_bytes=read.integer("twinlog.translation.max.bytes"),
        topic_replication_factor=read.integer("checkpoints.topic.replication.factor"),
    )


def _heartbeat(sources: _Sources) -> HeartbeatSettings:
    read = sources.read
    return HeartbeatSettings(
        connector_name=precedence.connector_name(sources.raw, sources.flow, Connector.HEARTBEAT),
        enabled=read.boolean("emit.heartbeats.enabled"),
        interval_seconds=max(read.number("emit.heartbeats.interval.seconds"), SHORTEST_INTERVAL_SECONDS),
        topic_replication_factor=read.integer("heartbeats.topic.replication.factor"),
    )


def _configsync(sources: _Sources, topics: Selection) -> ConfigSyncSettings:
    read = sources.read
    for key in (
        "topic.filter.class",
        "config.property.filter.class",
        "group.filter.class",
        "forwarding.admin.class",
    ):
        read.text(key)
    for key in ("transforms", "predicates"):
        read.elements(key)
    return ConfigSyncSettings(
        topics=topics,
        heartbeats_replication_enabled=read.boolean("heartbeats.replication.enabled"),
        refresh_topics_enabled=read.boolean("refresh.topics.enabled"),
        refresh_topics_interval_seconds=read.number("refresh.topics.interval.seconds"),
        replication_factor=read.integer("replication.factor"),
        config_properties_exclude=read.patterns("config.properties.exclude"),
        use_source_defaults=read.text("use.defaults.from") == "source",
        sync_configs_enabled=read.boolean("sync.topic.configs.enabled"),
        sync_configs_interval_seconds=read.number("sync.topic.configs.interval.seconds"),
        sync_acls_enabled=read.boolean("sync.topic.acls.enabled"),
        sync_acls_interval_seconds=read.number("sync.topic.acls.interval.seconds"),
        acl_mode=AclSyncMode(read.text("twinlog.sync.topic.acls.mode")),
        sync_quotas_enabled=read.boolean("twinlog.sync.client.quotas.enabled"),
        apply_automatically=read.text("twinlog.sync.mode") == "automatic",
        follow_deletes=read.boolean("twinlog.sync.topic.deletes.enabled"),
        delete_grace_seconds=read.number("twinlog.sync.topic.deletes.grace.seconds"),
        max_deletes_per_hour=read.integer("twinlog.sync.topic.deletes.max.per.hour"),
    )
