"""The filters of a flow: the lists of its file, or those of an installed package (`twinlog.policies`).

A package's filter decides instead of the lists. It is created with the flow's keys of filters and lists, and
has the Java methods with snake-case names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from twinlog.config.flow.settings import FlowConfig, Selection
from twinlog.config.keys.spec import POLICIES, other_class
from twinlog.errors import ConfigError, StateError
from twinlog.filters import DefaultGroupFilter, DefaultTopicFilter, NameFilter, PatternList
from twinlog.filters.name_filters import FilterOutcome, FilterVerdict, GroupFilter, TopicFilter

TOPIC_FILTER_KEY: Final = "topic.filter.class"
GROUP_FILTER_KEY: Final = "group.filter.class"
CONFIG_FILTER_KEY: Final = "config.property.filter.class"
_MM2: Final = "org.apache.kafka.connect.mirror."
_PROBE: Final = "orders"


def topic_filter(config: FlowConfig, topics: Selection | None = None) -> TopicFilter:
    """`topics` replaces the flow's own lists, for a part with other topics. Raises ConfigError."""
    other = _other(config, TOPIC_FILTER_KEY, "should_replicate_topic")
    if other is not None:
        return other
    patterns = topics or config.configsync.topics
    return DefaultTopicFilter(names=_names("topics", patterns))


def group_filter(config: FlowConfig) -> GroupFilter:
    """Raises ConfigError."""
    other = _other(config, GROUP_FILTER_KEY, "should_replicate_group")
    return DefaultGroupFilter(names=_names("groups", config.checkpoint.groups)) if other is None else other


def config_property_filter(config: FlowConfig) -> tuple[str, Callable[[str], bool]]:
    """The key that decides which topic configs may be synced, besides config.properties.exclude, and its
    decision for one config. Raises ConfigError."""
    other = _other(config, CONFIG_FILTER_KEY, "should_replicate_config_property")
    if other is not None:
        return CONFIG_FILTER_KEY, other.takes
    key = "twinlog.sync.topic.configs.include"
    return key, PatternList(key, config.configsync.config_properties_include).matches


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFilter:
    """Calls a package's filter like Twinlog's own."""

    key: str
    class_name: str
    ask: Callable[[str], Any]

    def takes(self, name: str) -> bool:
        """Raises StateError (FILTER_FAILED): a filter that fails neither includes nor excludes anything."""
        try:
            return self.ask(name) is True
        except Exception as error:  # Code of another package.
            raise StateError(
                f"{self.key}: {self.class_name} failed on {name!r}: {type(error).__name__}: {error}",
                reason="FILTER_FAILED",
                metadata={"key": self.key, "value": self.class_name},
            ) from error

    def _judge(self, name: str) -> FilterVerdict:
        outcome = FilterOutcome.INCLUDED if self.takes(name) else FilterOutcome.EXCLUDED
        return FilterVerdict(outcome=outcome, key=self.key, pattern=self.class_name)

    def should_replicate_topic(self, topic: str) -> bool:
        return self.takes(topic)

    def judge_topic(self, topic: str) -> FilterVerdict:
        return self._judge(topic)

    def should_replicate_group(self, group: str) -> bool:
        return self.takes(group)

    def judge_group(self, group: str) -> FilterVerdict:
        return self._judge(group)


def _other(config: FlowConfig, key: str, method: str) -> OtherFilter | None:
    """None for MM2's own class. The filter is called once before anything is copied. Raises ConfigError."""
    class_name = config.filter_config.get(key, _MM2)
    make = None if class_name.startswith(_MM2) else other_class(POLICIES, class_name)
    if make is None:
        return None
    try:
        ask = getattr(make(_given(config)), method)
        answer = ask(_PROBE)
    except Exception as error:  # Code of another package.
        raise _wrong(key, class_name, f"{type(error).__name__}: {error}") from error
    if not isinstance(answer, bool):
        raise _wrong(key, class_name, f"{method}({_PROBE!r}) gave {answer!r}, neither True nor False")
    return OtherFilter(key=key, class_name=class_name, ask=ask)


def _given(config: FlowConfig) -> Mapping[str, str]:
    topics, groups = config.configsync.topics, config.checkpoint.groups
    lists = {
        "topics": topics.include,
        "topics.exclude": topics.exclude,
        "groups": groups.include,
        "groups.exclude": groups.exclude,
        "config.properties.exclude": config.configsync.config_properties_exclude,
    }
    return {
        **config.filter_config,
        **{name: ",".join(patterns) for name, patterns in lists.items()},
        "source.cluster.alias": config.flow.source,
        "target.cluster.alias": config.flow.target,
    }


def _names(key: str, selection: Selection) -> NameFilter:
    return NameFilter(
        include=PatternList(key, selection.include), exclude=PatternList(f"{key}.exclude", selection.exclude)
    )


def _wrong(key: str, class_name: str, why: str) -> ConfigError:
    return ConfigError(f"{key}: {class_name}: {why}", metadata={"key": key, "value": class_name})
