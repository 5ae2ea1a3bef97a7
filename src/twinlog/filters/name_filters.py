"""Which topics and groups a flow includes: MM2's default filters.

A name is included when the include list matches it and the exclude list does not.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from twinlog.errors import ConfigError
from twinlog.filters.patterns import PatternList


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultTopicFilter:
    names: NameFilter

    def should_replicate_topic(self, topic: str) -> bool:
        return self.names.takes(topic)

    def judge_topic(self, topic: str) -> FilterVerdict:
        return self.names.judge(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultGroupFilter:
    names: NameFilter

    def should_replicate_group(self, group: str) -> bool:
        return self.names.takes(group)

    def judge_group(self, group: str) -> FilterVerdict:
        return self.names.judge(group)


def split_list(key: str, text: str) -> tuple[str, ...]:
    """Split a LIST value at its commas; a blank one is the empty list, and a repeated element counts once.

    Raises ConfigError for an empty element, as Kafka 4.2 does.
    """
    text = text.strip()
    elements = tuple(re.split(r"\s*,\s*", text)) if text else ()
    if "" in elements:
        raise ConfigError(f"{key}: an element of the list {text!r} is empty", key=key)
    return tuple(dict.fromkeys(elements))
