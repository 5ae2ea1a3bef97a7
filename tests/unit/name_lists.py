"""Filters by lists, as a properties file writes them; by a key's default where none is given."""

from twinlog.config.keys.table import BY_NAME
from twinlog.filters import NameFilter, PatternList, split_list


def patterns(key: str, text: str | None = None) -> PatternList:
    return PatternList(key, split_list(key, str(BY_NAME[key].default) if text is None else text))


def topic_lists(include: str | None = None, exclude: str | None = None) -> NameFilter:
    return NameFilter(include=patterns("topics", include), exclude=patterns("topics.exclude", exclude))


def group_lists(include: str | None = None, exclude: str | None = None) -> NameFilter:
    return NameFilter(include=patterns("groups", include), exclude=patterns("groups.exclude", exclude))
