"""The part of the configuration that configsync uses: one record per flow with compiled patterns, built at
start."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from twinlog.config import ClientConfig, ConfigSyncSettings, Configuration, FlowConfig
from twinlog.config.flow.filters import config_property_filter, group_filter
from twinlog.config.values.live import (
    LIVE_KEYS,
    live_overrides,
    require_same_checkpoints,
    stopped_by,
)
from twinlog.errors import ConfigError
from twinlog.filters import PatternList
from twinlog.loops import refuse_loops
from twinlog.model import Flow
from twinlog.policy.expected_offsets import offsets_rule
from twinlog.policy.internal_topics import configsync_topic
from twinlog.policy.transformed import TopicTransforms
from twinlog.selection_configured import topic_selector
from twinlog_configsync.access.acl_rules import AclRules
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.config_rules import ConfigRules
from twinlog_configsync.planning.live_rules import FileRules
from twinlog_configsync.planning.rules import FlowRules
from twinlog_configsync.planning.topic_plan import DeleteRules, TopicRules

_NAME: Final = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]*")
"""A pattern that is a valid topic name, so it may name one topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSyncFlow:
    """A flow, and how to reach its clusters."""

    rules: FlowRules
    """According to the file."""
    file: FileRules
    """Of each rule that may change while the flow runs."""
    with_values: Callable[[Mapping[str, str]], FlowRules]
    """Returns the rules with other literal values for some live keys. Raises ConfigError. Blocks as `load`
    does."""
    registry_topic: str
    registry_replication_factor: int
    """As for the positions topic (offset.storage.replication.factor); -1 = the broker's default."""
    source_client: ClientConfig
    target_client: ClientConfig

    @property
    def flow(self) -> Flow:
        return self.rules.flow


def configsync_flows(configuration: Configuration) -> tuple[ConfigSyncFlow, ...]:
    """The flows that replicate, sorted by name. Raises ConfigError for a pattern that does not compile."""
    flows = (_configsync_flow(configuration, config) for config in configuration.enabled_flows)
    return tuple(sorted(flows, key=lambda each: each.flow))


def flows_of_others(configuration: Configuration) -> tuple[ConfigSyncFlow, ...]:
    """The flows of the file that other processes run. None if the whole file cannot be read here, because
    another site has the secrets."""
    if configuration.base is None:
        return ()
    try:
        whole = configsync_flows(configuration.base.whole_file())
    except ConfigError:
        return ()
    own = {config.flow for config in configuration.enabled_flows}
    return tuple(each for each in whole if each.flow not in own)


def _configsync_flow(configuration: Configuration, config: FlowConfig) -> ConfigSyncFlow:
    name, base = config.source.connector_name, configuration.base
    rank = list(configuration.clusters).index(config.flow.source)

    def ranked(config: FlowConfig) -> FlowRules:
        return replace(flow_rules(config), rank=rank)

    def with_values(values: Mapping[str, str]) -> FlowRules:
        if base is None:
            return ranked(config)
        changed = base.with_overrides(live_overrides(config.flow, values))
        refuse_loops(changed)
        require_same_checkpoints(config, changed.flow(config.flow))
        return ranked(stopped_by(values, changed.flow(config.flow)))

    return ConfigSyncFlow(
        rules=ranked(config),
        file=FileRules(
            values={} if base is None else base.flow_values(config.flow, LIVE_KEYS),
            written={} if base is None else base.written_values(config.flow, LIVE_KEYS),
        ),
        with_values=with_values,
        registry_topic=configsync_topic(config.flow.source),
        registry_replication_factor=config.source.offset_storage.replication_factor,
        source_client=config.clients.source_admin.for_role(config.flow, name, "replication-source-admin"),
        target_client=config.clients.target_admin.for_role(config.flow, name, "replication-target-admin"),
    )


def flow_rules(config: FlowConfig) -> FlowRules:
    """Compile a flow's rules. Raises ConfigError for a pattern that does not compile."""
    settings = config.configsync
    selector = replace(topic_selector(config), is_stopped=not config.enabled)
    groups = group_filter(config)
    return FlowRules(
        flow=config.flow,
        selector=selector,
        named_topics=frozenset(
            name for name in settings.topics.include if _NAME.fullmatch(name) and config.enabled
        ),
        topics=_topic_rules(config),
        deletes=DeleteRules(
            enabled=settings.follow_deletes and config.enabled,
            grace_seconds=settings.delete_grace_seconds,
            max_per_hour=settings.max_deletes_per_hour,
        ),
        acls=AclRules(
            mode=settings.acl_mode,
            source=config.flow.source,
            policy=selector.policy,
            selects_topic=selector.selects,
            selects_group=groups.takes,
        ),
        intervals_seconds=_intervals(settings, is_stopped=not config.enabled),
        refresh_enabled=settings.refresh_topics_enabled,
        automatic=settings.apply_automatically,
        offsets=offsets_rule(config),
        routes_records=TopicTransforms(config.policy_config, config.flow.source).may_route,
        exactly_once=config.source.exactly_once,
    )


def _topic_rules(config: FlowConfig) -> TopicRules:
    settings = config.configsync
    include = config_property_filter(config)
    exclude = PatternList("config.properties.exclude", settings.config_properties_exclude)
    return TopicRules(
        replication_factor=settings.replication_factor,
        configs=ConfigRules(
            included=include.matches,
            excluded_by=exclude.deciding_pattern,
            source_defaults=settings.use_source_defaults,
        ),
        fixed=settings.fixed_configs,
        create_without_configs=not settings.sync_configs_enabled,
    )


def _intervals(settings: ConfigSyncSettings, *, is_stopped: bool) -> dict[Scope, float]:
    intervals = {Scope.TOPICS: settings.refresh_topics_interval_seconds}
    if is_stopped:
        return intervals
    if settings.sync_acls_enabled:
        intervals[Scope.ACLS] = settings.sync_acls_interval_seconds
    if settings.sync_quotas_enabled:
        intervals[Scope.QUOTAS] = settings.sync_acls_interval_seconds
    if settings.sync_configs_enabled:
        intervals[Scope.CONFIGS] = settings.sync_configs_interval_seconds
    return intervals
