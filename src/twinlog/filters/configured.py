"""Creates the filters of a properties file."""

import re
from collections.abc import Mapping, Sequence

from twinlog.errors import ConfigError
from twinlog.filters.name_filters import (
    CONFIG_PROPERTIES_EXCLUDE_KEY,
    DEFAULT_CONFIG_PROPERTIES_EXCLUDE,
    DEFAULT_GROUPS,
    DEFAULT_GROUPS_EXCLUDE,
    DEFAULT_TOPICS,
    DEFAULT_TOPICS_EXCLUDE,
    GROUPS_EXCLUDE_KEY,
    GROUPS_KEY,
    TOPICS_EXCLUDE_KEY,
    TOPICS_KEY,
    DefaultConfigPropertyFilter,
    DefaultGroupFilter,
    DefaultTopicFilter,
    NameFilter,
)
from twinlog.filters.patterns import PatternList

USE_DEFAULTS_FROM_KEY = "use.defaults.from"

_PACKAGE = "org.apache.kafka.connect.mirror."
_FORMER_NAMES = {
    TOPICS_EXCLUDE_KEY: "topics.blacklist",
    GROUPS_EXCLUDE_KEY: "groups.blacklist",
    CONFIG_PROPERTIES_EXCLUDE_KEY: "config.properties.blacklist",
}
"""Names from before Kafka 2.7, removed in 4.0. They are still read, because an ignored exclude list would
copy too much."""


def topic_filter_from_config(config: Mapping[str, str]) -> DefaultTopicFilter:
    """Build the topic filter of a flow. Raises ConfigError for a bad list, pattern or filter class."""
    _check_class(config, "topic.filter.class", "DefaultTopicFilter")
    return DefaultTopicFilter(
        names=NameFilter(
            include=_patterns(config, TOPICS_KEY, DEFAULT_TOPICS),
            exclude=_patterns(config, TOPICS_EXCLUDE_KEY, DEFAULT_TOPICS_EXCLUDE),
        )
    )


def group_filter_from_config(config: Mapping[str, str]) -> DefaultGroupFilter:
    """Build the group filter of a flow. Raises ConfigError for a bad list, pattern or filter class."""
    _check_class(config, "group.filter.class", "DefaultGroupFilter")
    return DefaultGroupFilter(
        names=NameFilter(
            include=_patterns(config, GROUPS_KEY, DEFAULT_GROUPS),
            exclude=_patterns(config, GROUPS_EXCLUDE_KEY, DEFAULT_GROUPS_EXCLUDE),
        )
    )


def config_property_filter_from_config(config: Mapping[str, str]) -> DefaultConfigPropertyFilter:
    """Build the filter of topic configs. Raises ConfigError for a bad list, pattern or filter class."""
    _check_class(config, "config.property.filter.class", "DefaultConfigPropertyFilter")
    origin = config.get(USE_DEFAULTS_FROM_KEY, "target").strip()
    if origin not in ("source", "target"):
        raise ConfigError(
            f"{USE_DEFAULTS_FROM_KEY}: expected source or target, got {origin!r}",
            metadata={"key": USE_DEFAULTS_FROM_KEY},
        )
    return DefaultConfigPropertyFilter(
        exclude=_patterns(config, CONFIG_PROPERTIES_EXCLUDE_KEY, DEFAULT_CONFIG_PROPERTIES_EXCLUDE),
        use_source_defaults=origin == "source",
    )


def split_list(key: str, text: str) -> tuple[str, ...]:
    """Split a LIST value at its commas; a blank one is the empty list, and a repeated element counts once.

    Raises ConfigError for an empty element, as Kafka 4.2 does.
    """
    text = text.strip()
    elements = tuple(re.split(r"\s*,\s*", text)) if text else ()
    if "" in elements:
        raise ConfigError(f"{key}: an element of the list {text!r} is empty", metadata={"key": key})
    return tuple(dict.fromkeys(elements))


def _patterns(config: Mapping[str, str], key: str, default: Sequence[str]) -> PatternList:
    former = _FORMER_NAMES.get(key)
    given = key if key in config or former not in config or former is None else former
    return PatternList(given, split_list(given, config[given]) if given in config else default)


def _check_class(config: Mapping[str, str], key: str, known: str) -> None:
    name = config.get(key, _PACKAGE + known).strip()
    if name != _PACKAGE + known:
        raise ConfigError(
            f"{key}: {name!r} cannot be run here; the one there is is {_PACKAGE}{known}, "
            "set by its include and exclude lists",
            metadata={"key": key, "value": name},
        )
