"""Replication policies of other packages: found by their entry point, and asked before anything is copied."""

from pathlib import Path

import pytest

from twinlog.config import FlowConfig, load
from twinlog.errors import ConfigError
from twinlog.model import ClusterAlias
from twinlog.policy import policy_from_config
from twinlog.selection_configured import topic_selector

MODULE = '''
from twinlog.policy import DefaultReplicationPolicy

class Suffix(DefaultReplicationPolicy):
    """orders of A is orders.from-A."""

    def __init__(self, config):
        super().__init__(separator=config.get("replication.policy.separator", "."))

    def format_remote_topic(self, source, topic):
        return f"{topic}.from-{source}"

    def topic_source(self, topic):
        name, mark, source = topic.rpartition(".from-")
        return source if mark and name else None

    def upstream_topic(self, topic):
        name, mark, _ = topic.rpartition(".from-")
        return name if mark and name else None

class AllInOne(Suffix):
    def format_remote_topic(self, source, topic):
        return "everything"

class Fails(Suffix):
    def format_remote_topic(self, source, topic):
        raise LookupError("planted")

def no_policy(config):
    return object()
'''
NAMES = {"Suffix": "Suffix", "AllInOne": "AllInOne", "Fails": "Fails", "NoPolicy": "no_policy"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A properties file, beside a package with policies that is installed."""
    package = tmp_path / "packages"
    about = package / "acme_names-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-names\nVersion: 1.0\n")
    entries = [f"com.acme.{name} = acme_names_of_tests:{made_by}" for name, made_by in NAMES.items()]
    entries.append("com.acme.Gone = acme_names_of_tests_gone:Policy")
    (about / "entry_points.txt").write_text("\n".join(["[twinlog.policies]", *entries]) + "\n")
    (package / "acme_names_of_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(package)
    return tmp_path / "mm2.properties"


def flow(file: Path, policy: str) -> FlowConfig:
    file.write_text(
        "clusters = A, B\nA->B.enabled = true\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        f"emit.heartbeats.enabled = false\nreplication.policy.class = {policy}\n"
    )
    [found] = load(file, environ={}).flows
    return found


def test_a_file_may_name_the_policy_of_an_installed_package(file: Path) -> None:
    config = flow(file, "com.acme.Suffix")

    policy = policy_from_config(config.policy_config)
    assert policy.format_remote_topic(ClusterAlias("A"), "orders") == "orders.from-A"
    assert policy.upstream_topic("orders.from-A") == "orders"
    selector = topic_selector(config)
    assert selector.selects("orders")
    assert not selector.selects("orders.from-B"), "it came from there"


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("com.acme.AllInOne", "two topics one name"),
        ("com.acme.Fails", "LookupError: planted"),
        ("com.acme.NoPolicy", "it has no"),
        ("com.acme.Gone", "cannot be imported"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_before_anything_is_copied(
    file: Path, policy: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        policy_from_config(flow(file, policy).policy_config)


def test_a_policy_that_no_package_has_is_refused_as_before(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"com\.acme\.Unknown"):
        flow(file, "com.acme.Unknown")
