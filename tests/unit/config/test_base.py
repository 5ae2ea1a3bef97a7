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
