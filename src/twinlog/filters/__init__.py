"""Filters of topics, groups and topic configs: MM2's lists of Java regular expressions. Pure."""

from twinlog.filters.java_classes import RegexSyntaxError
from twinlog.filters.java_regex import compile_java
from twinlog.filters.name_filters import (
    ConfigPropertyFilter,
    DefaultConfigPropertyFilter,
    DefaultGroupFilter,
    DefaultTopicFilter,
    FilterOutcome,
    FilterVerdict,
    GroupFilter,
    NameFilter,
    TopicFilter,
    config_property_filter_from_config,
    group_filter_from_config,
    split_list,
    topic_filter_from_config,
)
from twinlog.filters.patterns import PatternList

__all__ = [
    "ConfigPropertyFilter",
    "DefaultConfigPropertyFilter",
    "DefaultGroupFilter",
    "DefaultTopicFilter",
    "FilterOutcome",
    "FilterVerdict",
    "GroupFilter",
    "NameFilter",
    "PatternList",
    "RegexSyntaxError",
    "TopicFilter",
    "compile_java",
    "config_property_filter_from_config",
    "group_filter_from_config",
    "split_list",
    "topic_filter_from_config",
]
