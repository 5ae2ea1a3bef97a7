"""One flow's settings by MM2's precedence, typed, with the refusals that MM2 has."""

from twinlog.config.client_settings import ClientBuilder
from twinlog.config.flow.settings import (
    FIXED_CONFIGS_KEY,
    CheckpointSettings,
    ConfigSyncSettings,
    FixedRules,
    FlowConfig,
    HeartbeatSettings,
    OffsetSyncsSettings,
    Selection,
    parse_fixed_configs,
)
from twinlog.config.flow.source_settings import FlowSources, source_settings
from twinlog.config.values import precedence as precedence
from twinlog.config.values.precedence import Connector, Settings
from twinlog.config.values.providers import Resolver
from twinlog.config.values.reader import ConfigFindings, SettingsReader
from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.transforms import problems_of_config
from twinlog.transforms.expressions import (
    DEAD_LETTERS,
    ON_ERROR,
    PROVENANCE,
    TIMEOUT,
    problems_of_expressions,
)
from twinlog.transforms.expressions import PREFIX as EXPRESSIONS_PREFIX

SHORTEST_INTERVAL_SECONDS = 0.1
"""The meaning of an interval of 0 where MM2 allows it; in MM2 it is a busy loop."""


def flow_config(
    raw: Settings,
    flow: Flow,
    *,
    resolver: Resolver,
    findings: ConfigFindings,
    internal_topics: frozenset[str] = frozenset(),
) -> FlowConfig:
    """Build a flow. Problems go to `findings`; the result is only valid without them."""
    connector = precedence.connector_properties(raw, flow, Connector.SOURCE)
    worker = precedence.worker_properties(raw, flow, resolver.resolve)
    sources = FlowSources(
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
    source = source_settings(sources, clients)
    return FlowConfig(
        flow=flow,
        enabled=enabled,
        policy_config=_policy(sources),
        internal_topics=internal_topics | {source.offset_storage.topic},
        source=source,
        checkpoint=_checkpoint(sources, topics, enabled=enabled, syncs=source.offset_syncs),
        heartbeat=_heartbeat(sources),
        configsync=_configsync(sources, topics),
        clients=clients,
    )


def _check_aliases(sources: FlowSources, *, enabled: bool) -> None:
    """MM2 would use another alias as given, and name every topic after it; here a flow is defined by its two
    aliases."""
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


def _policy(sources: FlowSources) -> dict[str, str]:
    """`replication.policy.*` as configured; unknown keys are passed on, because other policies may use
    them."""
    prefix = "replication.policy."
    config = {
        key: sources.resolver.resolve(prop).value.strip()
        for key, prop in precedence.with_prefix(sources.connector, prefix).items()
    }
    config[f"{prefix}class"] = sources.read.text(f"{prefix}class")
    config["source.cluster.alias"] = sources.flow.source
    if "clusters" in sources.raw:
        config["clusters"] = sources.raw["clusters"].value
    if renames := (sources.read.optional_text("twinlog.topic.rename") or "").strip():
        config["twinlog.topic.rename"] = renames
    config |= _transforms(sources) | _expressions(sources)
    sources.read.boolean(f"{prefix}internal.topic.separator.enabled")
    return config


def _transforms(sources: FlowSources) -> dict[str, str]:
    """The keys of Connect's transforms; empty if the flow has none."""
    if not sources.read.elements("transforms"):
        return {}
    found = {
        key: sources.resolver.resolve(prop)
        for prefix in precedence.TRANSFORM_PREFIXES
        for key, prop in precedence.with_prefix(sources.connector, prefix).items()
    }
    config = {key: prop.value for key, prop in found.items()}
    for problem in problems_of_config(config):
        key, _, text = problem.partition(": ")
        prop = found.get(key) or found["transforms"]
        sources.findings.problem(prop.key if key in found else f"{sources.flow}.{key}", text, line=prop.line)
    return config


def _expressions(sources: FlowSources) -> dict[str, str]:
    """The keys `twinlog.transform.*` that are set."""
    found = {
        key: sources.resolver.resolve(prop)
        for key, prop in precedence.with_prefix(sources.connector, EXPRESSIONS_PREFIX).items()
    }
    config = {key: text for key, prop in found.items() if (text := prop.value.strip())}
    typed = {ON_ERROR: sources.read.text(ON_ERROR), TIMEOUT: f"{sources.read.number(TIMEOUT):g}"}
    config |= {key: value for key, value in typed.items() if key in config}
    dead_letters = sources.read.text(DEAD_LETTERS)
    if config and dead_letters:
        config[DEAD_LETTERS] = dead_letters
    if config and sources.read.boolean(PROVENANCE):
        config[PROVENANCE] = "true"
    for problem in problems_of_expressions(config):
        key, _, text = problem.partition(": ")
        prop = found[key]
        sources.findings.problem(prop.key, text, line=prop.line)
    return config


def _check_converters(sources: FlowSources) -> None:
    """In MM2 another converter would change records. Twinlog converts nothing, so such a key must not be
    ignored silently. One is accepted beside transforms: MM2 inserts headers only with SimpleHeaderConverter.
    Here, the other headers stay as they are."""
    transforms = bool(sources.read.elements("transforms"))
    for name in ("key.converter", "value.converter", "header.converter"):
        for settings in (sources.worker, sources.connector):
            prop = settings.get(name)
            if prop is None:
                continue
            value = sources.resolver.resolve(prop).value.strip()
            simple = value.rpartition(".")[2]
            if transforms and name == "header.converter" and simple == "SimpleHeaderConverter":
                continue
            if simple != "ByteArrayConverter":
                sources.findings.problem(
                    prop.key,
                    f"{value} would convert records, and they are copied byte for byte here; remove it",
                    line=prop.line,
                )


def _checkpoint(
    sources: FlowSources, topics: Selection, *, enabled: bool, syncs: OffsetSyncsSettings
) -> CheckpointSettings:
    """Checkpoints need offset syncs. Where MM2's checkpoint connector alone would fail, checkpoints are off
    and a notice says so; requesting group offsets in spite of that is an error."""
    read, findings = sources.read, sources.findings
    emit, emit_seconds = read.repeated("emit.checkpoints")
    sync_groups, sync_groups_seconds = read.repeated("sync.group.offsets")
    refresh_groups, refresh_groups_seconds = read.repeated("refresh.groups")
    if enabled:
        for key, on in (("emit.checkpoints.enabled", emit), ("emit.offset-syncs.enabled", syncs.enabled)):
            prop, state = read.property(key), "false"
            if not on and read.boolean(key):
                prop, state = read.property("emit.checkpoints.interval.seconds"), "negative"
            if on or prop is None:
                continue
            wanted = read.property("sync.group.offsets.enabled")
            if sync_groups and wanted is not None:
                findings.problem(wanted.key, f"needs {key}=true, but {prop.key} is {state}", line=wanted.line)
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
        emit_interval_seconds=max(emit_seconds, SHORTEST_INTERVAL_SECONDS),
        follows_closely=not any(
            read.property(f"{task}.interval.seconds") for task in ("emit.checkpoints", "sync.group.offsets")
        ),
        refresh_groups_enabled=refresh_groups,
        refresh_groups_interval_seconds=refresh_groups_seconds,
        sync_group_offsets_enabled=sync_groups,
        sync_group_offsets_interval_seconds=sync_groups_seconds,
        **read.declared(CheckpointSettings),
    )


def _heartbeat(sources: FlowSources) -> HeartbeatSettings:
    read = sources.read
    enabled, seconds = read.repeated("emit.heartbeats")
    return HeartbeatSettings(
        connector_name=precedence.connector_name(sources.raw, sources.flow, Connector.HEARTBEAT),
        enabled=enabled,
        interval_seconds=max(seconds, SHORTEST_INTERVAL_SECONDS),
        **read.declared(HeartbeatSettings),
    )


def _configsync(sources: FlowSources, topics: Selection) -> ConfigSyncSettings:
    read = sources.read
    refresh, refresh_seconds = read.repeated("refresh.topics")
    sync_configs, sync_configs_seconds = read.repeated("sync.topic.configs")
    sync_acls, sync_acls_seconds = read.repeated("sync.topic.acls")
    return ConfigSyncSettings(
        topics=topics,
        refresh_topics_enabled=refresh,
        refresh_topics_interval_seconds=refresh_seconds,
        fixed_configs=_fixed_configs(sources),
        use_source_defaults=read.text("use.defaults.from") == "source",
        sync_configs_enabled=sync_configs,
        sync_configs_interval_seconds=sync_configs_seconds,
        sync_acls_enabled=sync_acls,
        sync_acls_interval_seconds=sync_acls_seconds,
        apply_automatically=read.text("twinlog.sync.mode") == "automatic",
        **read.declared(ConfigSyncSettings),
    )


def _fixed_configs(sources: FlowSources) -> FixedRules:
    text = sources.read.optional_text(FIXED_CONFIGS_KEY) or ""
    prop = sources.read.property(FIXED_CONFIGS_KEY)
    try:
        return parse_fixed_configs(text)
    except (ValueError, ConfigError) as error:
        if prop is not None:
            expected = f"rules such as 'orders.* retention.ms=604800000; audit retention.ms=-1' ({error})"
            sources.findings.wrong_value(prop, expected, secret=False)
        return ()
