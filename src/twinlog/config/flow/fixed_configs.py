"""`twinlog.sync.topic.configs.fixed`: what topic settings are on the target, whatever the source says. Pure.

    orders.* retention.ms=604800000 cleanup.policy=compact,delete; audit retention.ms=-1

A semicolon ends a rule; a rule is a topic (a name or a regular expression that matches the whole name) and
what its copies get. Of two rules that name a setting of a topic the first one counts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from twinlog.filters import PatternList

FIXED_CONFIGS_KEY = "twinlog.sync.topic.configs.fixed"
MIN_ISR = "min.insync.replicas"
_SETTING = re.compile(r"(?P<name>[a-z][a-z0-9.]*)=(?P<value>\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedConfig:
    value: str
    pattern: str
    """The pattern of the rule that sets the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedRule:
    topics: PatternList
    values: Mapping[str, str]

    @property
    def pattern(self) -> str:
        return self.topics.patterns[0]


FixedRules = tuple[FixedRule, ...]


def parse_fixed_configs(text: str) -> FixedRules:
    """Raises ValueError that names the wrong rule, ConfigError for a pattern that does not compile."""
    return tuple(_rule(rule) for part in text.split(";") if (rule := part.strip()))


def fixed_configs(rules: FixedRules, source_topic: str) -> dict[str, FixedConfig]:
    """The fixed values for the copy of a source topic, by config."""
    found: dict[str, FixedConfig] = {}
    for rule in rules:
        if rule.topics.matches(source_topic):
            for name, value in rule.values.items():
                found.setdefault(name, FixedConfig(value=value, pattern=rule.pattern))
    return found


def _rule(text: str) -> FixedRule:
    pattern, *settings = text.split()
    values: dict[str, str] = {}
    for setting in settings:
        match = _SETTING.fullmatch(setting)
        if match is None:
            raise ValueError(f"{setting!r} of {text!r} is not setting=value")
        if match["name"] in values:
            raise ValueError(f"{text!r} says {match['name']} twice")
        if match["name"] == MIN_ISR and not match["value"].isdecimal():
            raise ValueError(f"{setting!r} of {text!r} is not a whole number")
        values[match["name"]] = match["value"]
    if not values:
        raise ValueError(f"{text!r} has no setting=value")
    return FixedRule(topics=PatternList(FIXED_CONFIGS_KEY, (pattern,)), values=values)
