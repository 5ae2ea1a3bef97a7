"""A configuration made again with other values for some keys of a flow."""

from pathlib import Path

import pytest

from twinlog.config import Configuration, load
from twinlog.config.settings import ConfigurationBase
from twinlog.errors import ConfigError
from twinlog.model import Flow

FLOW = Flow("A", "B")


@pytest.fixture
def loaded(tmp_path: Path) -> Configuration:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A->B.enabled = true\ntopics.exclude = old-.*\nA->B.topics = orders, users\n"
    )
    configuration = load(file, environ={}, overrides={"A->B.replication.factor": "1"})
    file.write_text("nothing of it is read again")
    return configuration


def base(configuration: Configuration) -> ConfigurationBase:
    assert configuration.base is not None
    return configuration.base


def test_overrides_come_on_top_of_the_file_and_of_earlier_ones(loaded: Configuration) -> None:
    changed = base(loaded).with_overrides({"A->B.topics": "carts"})
    settings = changed.flow(FLOW).configsync
    assert settings.topics.include == ("carts",)
    assert settings.topics.exclude == ("old-.*",)
    assert settings.replication_factor == 1
    assert base(changed).with_overrides({}) == changed
    assert base(loaded).with_overrides({}) == loaded


def test_values_are_as_written_or_the_default(loaded: Configuration) -> None:
    keys = ["topics", "topics.exclude", "groups", "refresh.topics.interval.seconds"]
    assert base(loaded).flow_values(FLOW, keys) == {
        "topics": "orders, users",
        "topics.exclude": "old-.*",
        "groups": ".*",
        "refresh.topics.interval.seconds": "30",
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [("topics", "*"), ("refresh.topics.interval.seconds", "soon"), ("twinlog.sync.mode", "sometimes")],
)
def test_a_wrong_value_is_refused_and_named(loaded: Configuration, key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        base(loaded).with_overrides({f"A->B.{key}": value})


@pytest.fixture
def of_two(tmp_path: Path) -> Configuration:
    """A process that runs one flow of its file."""
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B, C\nbootstrap.servers = x:1\nA->B.enabled = true\nB->A.enabled = true\n"
        "B->A.topics = sales\nC->A.enabled = true\nC.sasl.jaas.config = ${file:/is/not:here}\n"
        "config.providers = file\n"
        "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
    )
    return load(file, environ={}, only_flows=[FLOW], overrides={"B->A.groups": "shop"})


def test_a_flow_of_another_process_is_read_without_the_other_flows(of_two: Configuration) -> None:
    back = Flow("B", "A")
    other = base(of_two).other_flow(back)
    assert other is not None
    assert [entry.flow for entry in other.flows] == [back]
    assert other.flow(back).configsync.topics.include == ("sales",)
    assert other.flow(back).checkpoint.groups.include == ("shop",)
    changed = base(other).with_overrides({"B->A.topics": "carts"})
    assert changed.flow(back).configsync.topics.include == ("carts",)


def test_a_flow_that_the_file_does_not_run_is_no_flow_of_another_process(loaded: Configuration) -> None:
    assert base(loaded).other_flow(Flow("B", "C")) is None


def test_a_flow_of_another_process_that_cannot_be_read_is_refused(of_two: Configuration) -> None:
    with pytest.raises(ConfigError, match="/is/not"):
        base(of_two).other_flow(Flow("C", "A"))
