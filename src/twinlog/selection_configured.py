"""The selection rules of a properties file."""

from twinlog.config import FlowConfig
from twinlog.config.flow.filters import topic_filter
from twinlog.config.flow.settings import Selection
from twinlog.policy.configured import SOURCE_ALIAS_KEY, policy_from_config
from twinlog.selection import TopicSelector


def topic_selector(config: FlowConfig, topics: Selection | None = None) -> TopicSelector:
    """The topic rules of a flow. `topics` replaces the flow's patterns, for a part with its own. Raises
    ConfigError for a pattern that does not compile."""
    return TopicSelector(
        flow=config.flow,
        policy=policy_from_config({**config.policy_config, SOURCE_ALIAS_KEY: config.flow.source}),
        topic_filter=topic_filter(config, topics),
        heartbeats_replication_enabled=config.configsync.heartbeats_replication_enabled,
        own_topics=config.internal_topics,
    )
