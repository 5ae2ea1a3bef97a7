"""The filters of a flow, from the lists of its file."""

from twinlog.config.flow.settings import FlowConfig, Selection
from twinlog.filters import NameFilter, PatternList


def topic_filter(config: FlowConfig, topics: Selection | None = None) -> NameFilter:
    """`topics` replaces the flow's own lists, for a part with other topics. Raises ConfigError."""
    return _names("topics", topics or config.configsync.topics)


def group_filter(config: FlowConfig) -> NameFilter:
    """Raises ConfigError."""
    return _names("groups", config.checkpoint.groups)


def config_property_filter(config: FlowConfig) -> PatternList:
    """Which topic configs may be synced, besides config.properties.exclude. Raises ConfigError."""
    key = "twinlog.sync.topic.configs.include"
    return PatternList(key, config.configsync.config_properties_include)


def _names(key: str, selection: Selection) -> NameFilter:
    return NameFilter(
        include=PatternList(key, selection.include), exclude=PatternList(f"{key}.exclude", selection.exclude)
    )
