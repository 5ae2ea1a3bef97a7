"""`twinlog start`: the file that it writes, and what it refuses to start."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinlog.cli import app
from twinlog.cli.common.failures import RUN
from twinlog.cli.start import (
    FirstFlow,
    first_file,
    is_there,
    read,
    refuse_ends,
    refuse_errors,
    told,
    wanted_from,
)
from twinlog.errors import ConfigError
from twinlog.selection_configured import topic_selector
from twinlog.testing.broker import FakeKafka
from twinlog.testing.virtual_time import VirtualTimeLoop
from unit.preflight.facts_rig import AWAY, cluster, facts_of

FILE = Path("twinlog.properties")


def wanted(source: str = "a:9092", target: str = "b:9092", **changes: str) -> FirstFlow:
    options = {"topics": ".*", "names": "source,target"} | changes
    return wanted_from(source, target, file=FILE, topics=options["topics"], names=options["names"])


@pytest.mark.parametrize("alias", ["nord-süd", "dc1"])
def test_names_and_topics_are_read_back_as_they_were_given(alias: str) -> None:
    ends = wanted(names=f"{alias},b").ends
    flow = read(first_file(*ends, topics=r"orders,pay\.ments.*"), FILE).enabled_flows[0]
    assert flow.flow.source == alias
    selector = topic_selector(flow)
    chosen = [selector.selects(name) for name in ("orders", "pay.ments1", "payments")]
    assert chosen == [True, True, False]


@pytest.mark.parametrize(
    ("source", "changes", "named"),
    [
        ("kafka-a", {}, "SOURCE 'kafka-a': expected host:port"),
        ("kafka-a:", {}, "expected host:port"),
        ("kafka-a:99999", {}, "a port from 1 to 65535"),
        ("http://kafka-a:9092", {}, "expected host:port"),
        ("a:9092,", {}, "expected host:port"),
        ("a:9092", {"names": "one"}, "names 'one': expected two"),
        ("a:9092", {"names": "x,x"}, "two different names"),
        ("a:9092", {"topics": " "}, "--topics is empty"),
        ("a:9092, b:9092", {}, "SOURCE and TARGET both name b:9092"),
    ],
)
def test_what_is_no_address_or_name_is_refused_before_anything_is_asked(
    source: str, changes: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        wanted(source, **changes)


def test_a_cluster_that_does_not_answer_is_named_with_the_keys_for_a_login() -> None:
    found = {"source": cluster("source"), "target": cluster("target", unreachable=AWAY)}
    with pytest.raises(ConfigError) as refused:
        refuse_ends(wanted(), found)
    assert str(refused.value).startswith("b:9092: no answer in time")
    assert "target.sasl.jaas.config" in str(refused.value)


def test_two_addresses_of_one_cluster_are_refused() -> None:
    found = {alias: cluster(alias, cluster_id="same") for alias in ("source", "target")}
    with pytest.raises(ConfigError, match="a:9092 and b:9092 are the same cluster, with id same"):
        refuse_ends(wanted(), found)


def test_what_preflight_calls_an_error_is_not_started_and_the_plan_names_the_copies() -> None:
    configuration = read(first_file(*wanted(names="A,B").ends), FILE)
    facts = facts_of(configuration)
    refuse_errors(facts)
    assert "  orders -> A.orders" in told(wanted(names="A,B"), facts)
    with pytest.raises(ConfigError, match="3 replicas on B"):
        refuse_errors(facts_of(configuration, clusters={"B": cluster("B", broker_count=1)}))


def test_a_file_with_other_content_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "twinlog.properties"
    text = first_file(*wanted().ends)
    assert not is_there(file, text)
    file.write_text(text)
    assert is_there(file, text)
    file.write_text("clusters = A, B\n")
    with pytest.raises(ConfigError, match=r"twinlog run .*twinlog\.properties` runs it as it is; --file"):
        is_there(file, text)
    assert file.read_text() == "clusters = A, B\n"


def test_copies_keep_their_names_where_that_is_asked() -> None:
    asked = wanted_from("a:9092", "b:9092", topics=".*", names="a,b", file=FILE, keep_names=True)
    flow = read(asked.text(), FILE).enabled_flows[0]
    assert flow.policy_config["replication.policy.class"].endswith(".IdentityReplicationPolicy")


def test_five_answers_write_a_file_although_no_cluster_answers(tmp_path: Path) -> None:
    file = tmp_path / "first.properties"
    answers = "127.0.0.1:1\n127.0.0.1:2\neast,west\norders\ny\n"
    told = CliRunner().invoke(app, ["init", str(file)], input=answers)
    assert told.exit_code == 0, told.output
    assert "not checked on the clusters: 127.0.0.1:1" in told.stderr
    assert f"next: twinlog preflight {file}" in told.stdout
    configured = read(file.read_text(), FILE).enabled_flows[0]
    assert str(configured.flow) == "east->west"
    again = CliRunner().invoke(app, ["init", str(file)])
    assert again.exit_code == 2, "it asks nothing"
    assert f"`twinlog run {file}` runs it" in again.stderr


def test_names_that_are_not_two_are_asked_for_again_at_once(tmp_path: Path) -> None:
    file = tmp_path / "first.properties"
    answers = "127.0.0.1:1\n127.0.0.1:2\neast\neast,west\norders\ny\n"
    told = CliRunner().invoke(app, ["init", str(file)], input=answers)
    assert told.exit_code == 0, told.output
    assert "names 'east': expected two different names" in told.output
    assert str(read(file.read_text(), FILE).enabled_flows[0].flow) == "east->west"


def test_without_a_terminal_it_says_what_asks_nothing(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["init", str(tmp_path / "first.properties")], input="a:9092\n")
    assert told.exit_code == 2
    assert "stdin ended before the fifth answer" in told.stderr
    assert "--dry-run" in told.stderr


def test_an_address_that_is_none_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "first.properties"
    told = CliRunner().invoke(app, ["init", str(file)], input="kafka\nb:9092\n\n\n\n")
    assert told.exit_code == 2
    assert not file.exists()


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    """A cluster of two brokers, which commands reach."""

    async def begin() -> FakeKafka:
        return await FakeKafka(node_count=2, seed=1).__aenter__()

    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(1e-6)) as runner:
        cluster = runner.run(begin())
        run = RUN.set(runner.run)
        yield cluster
        RUN.reset(run)
        runner.run(cluster.__aexit__(None, None, None))


def test_two_addresses_of_one_cluster_are_refused_and_nothing_is_written(
    kafka: FakeKafka, tmp_path: Path
) -> None:
    file = tmp_path / "first.properties"
    one, other = kafka.bootstrap.split(",")
    told = CliRunner().invoke(app, ["init", str(file)], input=f"{one}\n{other}\n\n\n\n")
    assert told.exit_code == 2, told.output
    assert "are the same cluster, with id" in told.stderr
    assert not file.exists()
