"""Filters of topics, groups and topic configs: MM2's lists of Java regular expressions. Pure."""

from twinlog.filters.java_classes import RegexSyntaxError as RegexSyntaxError
from twinlog.filters.java_regex import compile_java as compile_java
from twinlog.filters.name_filters import ConfigPropertyFilter as ConfigPropertyFilter
from twinlog.filters.name_filters import DefaultConfigPropertyFilter as DefaultConfigPropertyFilter
from twinlog.filters.name_filters import DefaultGroupFilter as DefaultGroupFilter
from twinlog.filters.name_filters import DefaultTopicFilter as DefaultTopicFilter
from twinlog.filters.name_filters import FilterOutcome as FilterOutcome
from twinlog.filters.name_filters import FilterVerdict as FilterVerdict
from twinlog.filters.name_filters import GroupFilter as GroupFilter
from twinlog.filters.name_filters import NameFilter as NameFilter
from twinlog.filters.name_filters import TopicFilter as TopicFilter
from twinlog.filters.name_filters import (
    config_property_filter_from_config as config_property_filter_from_config,
)
from twinlog.filters.name_filters import group_filter_from_config as group_filter_from_config
from twinlog.filters.name_filters import split_list as split_list
from twinlog.filters.name_filters import topic_filter_from_config as topic_filter_from_config
from twinlog.filters.patterns import PatternList as PatternList
