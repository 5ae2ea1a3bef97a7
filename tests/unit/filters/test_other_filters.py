"""Filters of other packages (`twinlog.policies`) decide in place of the lists, and cannot do harm unseen."""

from pathlib import Path

import pytest

from twinlog.config import FlowConfig, load
from twinlog.config.flow.filters import config_property_filter, group_filter, topic_filter
from twinlog.errors import ConfigError, StateError
from twinlog.selection import TopicReason
from twinlog.selection_configured import topic_selector

MODULE = """
class Owned:
    def __init__(self, config):
        self.teams = config["topic.filter.teams"].split(",")
        self.lists = config["topics"], config["groups.exclude"], config["target.cluster.alias"]

    def should_replicate_topic(self, topic):
        if topic == "poison":
            raise LookupError("planted")
        return topic.split("-")[0] in self.teams

class Groups:
    def __init__(self, config):
        pass
    def should_replicate_group(self, group):
        return group.endswith("-prod")

class Settings:
    def __init__(self, config):
        pass
    def should_replicate_config_property(self, name):
        return name == "retention.ms"

class Fails(Groups):
    def should_replicate_topic(self, topic):
        raise LookupError("planted")

class Maybe(Groups):
    def should_replicate_topic(self, topic):
        return "perhaps"
"""
NAMES = ("Owned", "Groups", "Settings", "Fails", "Maybe")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A properties file, beside a package with filters that is installed."""
    package = tmp_path / "packages"
    about = package / "acme_filters-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-filters\nVersion: 1.0\n")
    entries = [f"com.acme.{name} = acme_filters_of_tests:{name}" for name in NAMES]
    (about / "entry_points.txt").write_text("\n".join(["[twinlog.policies]", *entries]) + "\n")
    (package / "acme_filters_of_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(package)
    return tmp_path / "mm2.properties"


def flow(file: Path, *lines: str) -> FlowConfig:
    file.write_text(
        "clusters = A, B\nA->B.enabled = true\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "emit.heartbeats.enabled = false\n" + "\n".join(lines)
    )
    [found] = load(file, environ={}, strict=True).flows
    return found


def test_a_file_may_name_filters_of_an_installed_package(file: Path) -> None:
    config = flow(
        file,
        "topic.filter.class = com.acme.Owned",
        "A->B.topic.filter.teams = blue,green",
        "group.filter.class = com.acme.Groups",
        "config.property.filter.class = com.acme.Settings",
        "topics = none-of-these",
    )
    selector = topic_selector(config)
    assert selector.selects("blue-orders")
    refused = selector.decide("red-orders")
    assert refused.reason is TopicReason.EXCLUDED
    assert refused.rule == "topic.filter.class: pattern 'com.acme.Owned'"
    assert not selector.selects("mm2-offsets.A.internal"), "what is internal never is copied"
    assert group_filter(config).should_replicate_group("billing-prod")
    assert not group_filter(config).should_replicate_group("billing")
    key, takes = config_property_filter(config)
    assert key == "config.property.filter.class"
    assert [takes(name) for name in ("retention.ms", "segment.bytes")] == [True, False]


def test_the_lists_decide_where_a_file_names_no_other_class(file: Path) -> None:
    config = flow(file, "topics = orders", "topic.filter.class = DefaultTopicFilter")
    assert topic_selector(config).selects("orders")
    assert not topic_selector(config).selects("blue-orders")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Fails", "LookupError: planted"),
        ("Maybe", "gave 'perhaps', neither True nor False"),
        ("Groups", "should_replicate_topic"),
        ("Owned", "KeyError"),
    ],
)
def test_a_filter_that_cannot_be_used_is_refused_before_anything_is_copied(
    file: Path, name: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        topic_filter(flow(file, f"topic.filter.class = com.acme.{name}"))


def test_a_filter_that_fails_later_decides_nothing(file: Path) -> None:
    config = flow(file, "topic.filter.class = com.acme.Owned", "A->B.topic.filter.teams = poison")
    with pytest.raises(StateError, match="LookupError: planted") as failed:
        topic_selector(config).decide("poison")
    assert failed.value.reason == "FILTER_FAILED"


def test_a_class_that_no_package_declares_is_named_with_its_line(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"topic.filter.class: expected one of .*installed package"):
        flow(file, "topic.filter.class = com.acme.Unknown")
