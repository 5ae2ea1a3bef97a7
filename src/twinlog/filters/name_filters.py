"""Which topics, groups and topic configs a flow includes: MM2's default filters.

A name is included when the include list matches it and the exclude list does not.

Creates the filters of a properties file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from twinlog.errors import ConfigError
from twinlog.filters.patterns import PatternList

TOPICS_KEY = "topics"
TOPICS_EXCLUDE_KEY = "topics.exclude"
GROUPS_KEY = "groups"
GROUPS_EXCLUDE_KEY = "groups.exclude"
CONFIG_PROPERTIES_EXCLUDE_KEY = "config.properties.exclude"

DEFAULT_TOPICS = (".*",)
DEFAULT_TOPICS_EXCLUDE = (r"mm2.*\.internal", r".*\.replica", "__.*")
"""Kafka 4.0 and later (KIP-1074)."""
DEFAULT_GROUPS = (".*",)
DEFAULT_GROUPS_EXCLUDE = ("console-consumer-.*", "connect-.*", "__.*")
DEFAULT_CONFIG_PROPERTIES_EXCLUDE = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.difference.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
    "message.timestamp.type",
    "unclean.leader.election.enable",
    "min.insync.replicas",
)
"""Kafka 4.3 and later. The topic configs `message.timestamp.before|after.max.ms` are not in the list, so they
are synced: MM2's list has the names of the broker configs, and patterns match whole names."""


class FilterOutcome(StrEnum):
    INCLUDED = "INCLUDED"
    EXCLUDED = "EXCLUDED"
    NOT_INCLUDED = "NOT_INCLUDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterVerdict:
    """A filter's decision about a name, with the deciding rule."""

    outcome: FilterOutcome
    key: str
    """The configuration key that decided."""
    pattern: str | None
    """The deciding element of that list; None when none matched."""

    @property
    def included(self) -> bool:
        return self.outcome is FilterOutcome.INCLUDED


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFilter:
    """An include and an exclude list; exclude takes precedence."""

    include: PatternList
    exclude: PatternList

    def takes(self, name: str) -> bool:
        return self.include.matches(name) and not self.exclude.matches(name)

    def judge(self, name: str) -> FilterVerdict:
        """As `takes`, with the reason."""
        excluding = self.exclude.deciding_pattern(name)
        if excluding is not None:
            return FilterVerdict(outcome=FilterOutcome.EXCLUDED, key=self.exclude.key, pattern=excluding)
        including = self.include.deciding_pattern(name)
        outcome = FilterOutcome.NOT_INCLUDED if including is None else FilterOutcome.INCLUDED
        return FilterVerdict(outcome=outcome, key=self.include.key, pattern=including)


class TopicFilter(Protocol):
    def should_replicate_topic(self, topic: str) -> bool: ...

    def judge_topic(self, topic: str) -> FilterVerdict:
        """As should_replicate_topic, with the reason."""
        ...


class GroupFilter(Protocol):
    def should_replicate_group(self, group: str) -> bool: ...

    def judge_group(self, group: str) -> FilterVerdict:
        """As should_replicate_group, with the reason."""
        ...


class ConfigPropertyFilter(Protocol):
    def should_replicate_config_property(self, name: str) -> bool: ...

    def should_replicate_source_default(self, name: str) -> bool:
        """Whether a value that is only the source's default is set on the target.

        Called only for properties that should_replicate_config_property includes.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultTopicFilter:
    names: NameFilter = field(
        default_factory=lambda: NameFilter(
            include=PatternList(TOPICS_KEY, DEFAULT_TOPICS),
            exclude=PatternList(TOPICS_EXCLUDE_KEY, DEFAULT_TOPICS_EXCLUDE),
        )
    )

    def should_replicate_topic(self, topic: str) -> bool:
        return self.names.takes(topic)

    def judge_topic(self, topic: str) -> FilterVerdict:
        return self.names.judge(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultGroupFilter:
    names: NameFilter = field(
        default_factory=lambda: NameFilter(
            include=PatternList(GROUPS_KEY, DEFAULT_GROUPS),
            exclude=PatternList(GROUPS_EXCLUDE_KEY, DEFAULT_GROUPS_EXCLUDE),
        )
    )

    def should_replicate_group(self, group: str) -> bool:
        return self.names.takes(group)

    def judge_group(self, group: str) -> FilterVerdict:
        return self.names.judge(group)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultConfigPropertyFilter:
    exclude: PatternList = field(
        default_factory=lambda: PatternList(CONFIG_PROPERTIES_EXCLUDE_KEY, DEFAULT_CONFIG_PROPERTIES_EXCLUDE)
    )
    use_source_defaults: bool = False
    """`use.defaults.from=source`: the source's defaults are set on the target as explicit values."""

    def should_replicate_config_property(self, name: str) -> bool:
        return not self.exclude.matches(name)

    def should_replicate_source_default(self, name: str) -> bool:
        return self.use_source_defaults


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
            f"{USE_DEFAULTS_FROM_KEY}: expected source or target, got {origin!r}", key=USE_DEFAULTS_FROM_KEY
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
        raise ConfigError(f"{key}: an element of the list {text!r} is empty", key=key)
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
