"""MM2's default filters: full match, exclude wins, empty list matches nothing, clear errors."""

import pytest

from twinlog.errors import ConfigError
from twinlog.filters import (
    DefaultConfigPropertyFilter,
    DefaultGroupFilter,
    DefaultTopicFilter,
    FilterOutcome,
    FilterVerdict,
    PatternList,
    config_property_filter_from_config,
    group_filter_from_config,
    split_list,
    topic_filter_from_config,
)


@pytest.mark.parametrize(
    ("topic", "taken"),
    [
        ("orders", True),
        ("orders.internal", True),
        ("mm2-offsets.A.internal", False),
        ("orders.replica", False),
        ("__consumer_offsets", False),
        ("mm2-offsets-A-internal", True),
    ],
)
def test_topics_by_default(topic: str, taken: bool) -> None:
    assert DefaultTopicFilter().should_replicate_topic(topic) is taken


@pytest.mark.parametrize(
    ("group", "taken"),
    [("billing", True), ("console-consumer-12", False), ("connect-sink", False), ("__internal", False)],
)
def test_groups_by_default(group: str, taken: bool) -> None:
    assert DefaultGroupFilter().should_replicate_group(group) is taken


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("retention.ms", True),
        ("min.insync.replicas", False),
        ("unclean.leader.election.enable", False),
        ("message.timestamp.type", False),
        ("message.timestamp.difference.max.ms", False),
        ("follower.replication.throttled.replicas", False),
        ("leader.replication.throttled.replicas", False),
    ],
)
def test_config_properties_by_default(name: str, taken: bool) -> None:
    assert DefaultConfigPropertyFilter().should_replicate_config_property(name) is taken


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_timestamp_limits_of_topics_are_synced_though_brokers_are_excluded(when: str) -> None:
    names = DefaultConfigPropertyFilter()
    assert names.should_replicate_config_property(f"message.timestamp.{when}.max.ms")
    assert not names.should_replicate_config_property(f"log.message.timestamp.{when}.max.ms")


def test_a_pattern_matches_the_whole_name() -> None:
    orders = PatternList("topics", ["orders"])
    assert orders.matches("orders")
    assert not orders.matches("orders2")
    assert not orders.matches("my.orders")


def test_an_empty_list_matches_nothing() -> None:
    nothing = PatternList("topics", [])
    assert not nothing.matches("")
    assert not nothing.matches("orders")
    assert nothing.deciding_pattern("orders") is None


def test_an_empty_include_list_takes_nothing() -> None:
    assert not topic_filter_from_config({"topics": " "}).should_replicate_topic("orders")


def test_an_empty_exclude_list_excludes_nothing() -> None:
    names = topic_filter_from_config({"topics.exclude": ""})
    assert names.should_replicate_topic("__consumer_offsets")


def test_exclude_beats_include_and_says_which_pattern() -> None:
    names = topic_filter_from_config({"topics": "orders.*, payments", "topics.exclude": "x, orders-test.*"})
    assert names.judge_topic("orders-test-1") == FilterVerdict(
        outcome=FilterOutcome.EXCLUDED, key="topics.exclude", pattern="orders-test.*"
    )
    assert names.judge_topic("orders-1") == FilterVerdict(
        outcome=FilterOutcome.INCLUDED, key="topics", pattern="orders.*"
    )
    assert names.judge_topic("other") == FilterVerdict(
        outcome=FilterOutcome.NOT_INCLUDED, key="topics", pattern=None
    )


def test_a_pattern_broken_in_two_by_its_comma_is_joined_again_as_one_group() -> None:
    both = PatternList("topics", split_list("topics", "(a,b)"))
    assert both.matches("a")
    assert both.deciding_pattern("b") == "(a|b)"


def test_groups_are_judged_alike() -> None:
    names = group_filter_from_config({"groups": "app-.*", "groups.exclude": "app-test"})
    assert names.judge_group("app-test").outcome is FilterOutcome.EXCLUDED
    assert names.judge_group("app-1").included
    assert not names.should_replicate_group("other")


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        ({"topics": "orders, *"}, ["topics", "'*'", "write '.*'"]),
        ({"topics": "ok, [a"}, ["topics", "'[a'", "not closed"]),
        ({"topics.exclude": "a{1,3}"}, ["topics.exclude", "'a{1'", "a comma separates list elements"]),
    ],
)
def test_a_pattern_that_does_not_compile_is_named_with_its_key(
    config: dict[str, str], parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        topic_filter_from_config(config)
    for part in parts:
        assert part in str(caught.value)
    assert caught.value.metadata["key"] == parts[0]


def test_a_list_that_fails_only_when_joined_is_named_whole() -> None:
    with pytest.raises(ConfigError, match=r"groups: '\(\?<n>a\)\|\(\?<n>b\)'"):
        group_filter_from_config({"groups": "(?<n>a), (?<n>b)"})


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("", ()),
        ("  ", ()),
        ("a", ("a",)),
        (" a , b,c ", ("a", "b", "c")),
        ("a b,c", ("a b", "c")),
        ("b, a, b", ("b", "a")),
    ],
)
def test_lists_are_split_as_kafka_does(text: str, elements: tuple[str, ...]) -> None:
    assert split_list("topics", text) == elements


@pytest.mark.parametrize("text", ["a,,b", "a,"])
def test_empty_elements_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"topics: .*is empty"):
        split_list("topics", text)


def test_the_former_names_of_exclude_lists_still_exclude() -> None:
    names = topic_filter_from_config({"topics.blacklist": "secret.*"})
    assert not names.should_replicate_topic("secret-1")
    assert names.judge_topic("secret-1").key == "topics.blacklist"


def test_the_present_name_wins_over_the_former() -> None:
    names = topic_filter_from_config({"topics.blacklist": "a", "topics.exclude": "b"})
    assert names.should_replicate_topic("a")
    assert not names.should_replicate_topic("b")


@pytest.mark.parametrize(
    ("key", "build"),
    [
        ("topic.filter.class", topic_filter_from_config),
        ("group.filter.class", group_filter_from_config),
        ("config.property.filter.class", config_property_filter_from_config),
    ],
)
def test_a_foreign_filter_class_is_refused(key: str, build: type) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: 'com\.example\.Mine' cannot be run"):
        build({key: "com.example.Mine"})


@pytest.mark.parametrize(("origin", "replicated"), [("source", True), ("target", False)])
def test_use_defaults_from(origin: str, replicated: bool) -> None:
    names = config_property_filter_from_config({"use.defaults.from": origin})
    assert names.should_replicate_source_default("retention.ms") is replicated


def test_use_defaults_from_nowhere_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"use\.defaults\.from: expected source or target, got 'both'"):
        config_property_filter_from_config({"use.defaults.from": "both"})


def test_config_properties_exclude_replaces_the_default() -> None:
    names = config_property_filter_from_config({"config.properties.exclude": r"delete\.retention\..*"})
    assert not names.should_replicate_config_property("delete.retention.ms")
    assert names.should_replicate_config_property("min.insync.replicas")


def test_equal_lists_are_equal() -> None:
    assert PatternList("topics", ["a"]) == PatternList("topics", ("a",))
    assert PatternList("topics", ["a"]) != PatternList("topics", ["b"])
    assert len({PatternList("topics", ["a"]), PatternList("topics", ["a"])}) == 1
