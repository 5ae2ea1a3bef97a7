"""Filters of topics and groups: MM2's lists of Java regular expressions. Pure."""

from twinlog.filters.java_classes import RegexSyntaxError as RegexSyntaxError
from twinlog.filters.java_regex import compile_java as compile_java
from twinlog.filters.name_filters import FilterOutcome as FilterOutcome
from twinlog.filters.name_filters import FilterVerdict as FilterVerdict
from twinlog.filters.name_filters import NameFilter as NameFilter
from twinlog.filters.name_filters import PatternList as PatternList
from twinlog.filters.name_filters import split_list as split_list
