"""MM2's default filters: full match, exclude wins, empty list matches nothing, clear errors."""

import pytest

from twinlog.errors import ConfigError
from twinlog.filters import FilterOutcome, FilterVerdict, PatternList, split_list
from unit.name_lists import group_lists, patterns, topic_lists


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
    assert topic_lists().takes(topic) is taken


@pytest.mark.parametrize(
    ("group", "taken"),
    [("billing", True), ("console-consumer-12", False), ("connect-sink", False), ("__internal", False)],
)
def test_groups_by_default(group: str, taken: bool) -> None:
    assert group_lists().takes(group) is taken


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
    assert patterns("config.properties.exclude").matches(name) is not taken


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_timestamp_limits_of_topics_are_synced_though_brokers_are_excluded(when: str) -> None:
    excluded = patterns("config.properties.exclude")
    assert not excluded.matches(f"message.timestamp.{when}.max.ms")
    assert excluded.matches(f"log.message.timestamp.{when}.max.ms")


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
    assert not topic_lists(" ").takes("orders")


def test_an_empty_exclude_list_excludes_nothing() -> None:
    names = topic_lists(exclude="")
    assert names.takes("__consumer_offsets")


def test_exclude_beats_include_and_says_which_pattern() -> None:
    names = topic_lists("orders.*, payments", "x, orders-test.*")
    assert names.judge("orders-test-1") == FilterVerdict(
        outcome=FilterOutcome.EXCLUDED, key="topics.exclude", pattern="orders-test.*"
    )
    assert names.judge("orders-1") == FilterVerdict(
        outcome=FilterOutcome.INCLUDED, key="topics", pattern="orders.*"
    )
    assert names.judge("other") == FilterVerdict(
        outcome=FilterOutcome.NOT_INCLUDED, key="topics", pattern=None
    )


def test_a_pattern_broken_in_two_by_its_comma_is_joined_again_as_one_group() -> None:
    both = PatternList("topics", split_list("topics", "(a,b)"))
    assert both.matches("a")
    assert both.deciding_pattern("b") == "(a|b)"


def test_groups_are_judged_alike() -> None:
    names = group_lists("app-.*", "app-test")
    assert names.judge("app-test").outcome is FilterOutcome.EXCLUDED
    assert names.judge("app-1").included
    assert not names.takes("other")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("orders, *", ["topics", "'*'", "write '.*'"]),
        ("ok, [a", ["topics", "'[a'", "not closed"]),
        ("a{1,3}", ["topics.exclude", "'a{1'", "a comma separates list elements"]),
    ],
)
def test_a_pattern_that_does_not_compile_is_named_with_its_key(text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        patterns(parts[0], text)
    for part in parts:
        assert part in str(caught.value)
    assert caught.value.metadata["key"] == parts[0]


def test_a_list_that_fails_only_when_joined_is_named_whole() -> None:
    with pytest.raises(ConfigError, match=r"groups: '\(\?<n>a\)\|\(\?<n>b\)'"):
        group_lists("(?<n>a), (?<n>b)")


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


def test_equal_lists_are_equal() -> None:
    assert PatternList("topics", ["a"]) == PatternList("topics", ("a",))
    assert PatternList("topics", ["a"]) != PatternList("topics", ["b"])
    assert len({PatternList("topics", ["a"]), PatternList("topics", ["a"])}) == 1
