"""MirrorMaker 1's files and options become a flow that does what it did."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinlog.cli import app
from twinlog.config import AutoOffsetReset, Configuration, load
from twinlog.errors import ConfigError
from twinlog.imports.mirror_maker1 import MirrorMaker1, include_pattern, mirror_maker_file
from twinlog.properties import parse
from unit.imports.estates import OneFile

CONSUMER = "bootstrap.servers=a:9092\ngroup.id=mm1\nfetch.max.bytes=1000000\nenable.auto.commit=false\n"
PRODUCER = (
    "bootstrap.servers=b:9092\nacks=all\ncompression.type=zstd\nmax.in.flight.requests.per.connection=1\n"
)


def as_file(consumer: str = CONSUMER, producer: str = PRODUCER, **more: object) -> str:
    options: dict[str, object] = {"include": "orders,pay.*", **more}
    mirror = MirrorMaker1(
        consumer=parse(consumer.encode(), file="c"),
        consumer_file="c",
        producer=parse(producer.encode(), file="p"),
        producer_file="p",
        **options,  # type: ignore[arg-type]
    )
    return mirror_maker_file(mirror).properties


def read(text: str) -> Configuration:
    return load(Path("mm2.properties"), environ={}, files=OneFile(text, {}), strict=True)


def test_it_copies_records_under_their_names_and_nothing_else() -> None:
    [flow] = read(as_file(num_streams=4)).flows

    assert str(flow.flow) == "mm1->target"
    assert flow.configsync.topics.include == ("orders|pay.*",)
    assert flow.policy_config["replication.policy.class"].endswith("IdentityReplicationPolicy")
    assert flow.source.max_slots == 4
    assert not flow.source.offset_syncs.enabled
    assert not flow.checkpoint.enabled
    assert not flow.heartbeat.enabled
    assert not flow.configsync.sync_acls_enabled
    assert not flow.configsync.sync_configs_enabled
    assert flow.clients.source_consumer.properties["fetch.max.bytes"] == "1000000"
    assert flow.clients.data_producer.properties["compression.type"] == "zstd"


def test_it_begins_at_the_groups_offsets_and_else_as_javas_consumer_does() -> None:
    [flow] = read(as_file()).flows
    assert flow.source.start_group == "mm1"
    assert flow.source.auto_offset_reset is AutoOffsetReset.LATEST

    [flow] = read(as_file(f"{CONSUMER}auto.offset.reset=earliest\n")).flows
    assert flow.source.auto_offset_reset is AutoOffsetReset.EARLIEST


def test_mirrors_with_different_groups_do_not_share_positions() -> None:
    [one] = read(as_file()).flows
    [other] = read(as_file(CONSUMER.replace("mm1", "mm/2"))).flows
    [named] = read(as_file(source_alias="berlin")).flows

    topics = {flow.source.offset_storage.topic for flow in (one, other, named)}
    assert topics == {"mm2-offsets.mm1.internal", "mm2-offsets.mm-2.internal", "mm2-offsets.berlin.internal"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [("a,b", "a|b"), (" a , b.* ", "a|b.*"), ("'a|b'", "a|b"), ('"x"', "x"), ("t{1,3}", "t{1|3}")],
)
def test_include_is_read_as_mirror_maker_1_read_it(written: str, meant: str) -> None:
    assert include_pattern(written) == meant


@pytest.mark.parametrize(
    ("consumer", "producer", "problem"),
    [
        ("zookeeper.connect=z:2181\ngroup.id=g\n", PRODUCER, "c:1: zookeeper.connect"),
        ("bootstrap.servers=a:9092\n", PRODUCER, "c: group.id is missing"),
        ("group.id=g\n", PRODUCER, "c: bootstrap.servers is missing"),
        (CONSUMER, "acks=all\n", "p: bootstrap.servers is missing"),
    ],
)
def test_what_is_missing_or_too_old_is_named(consumer: str, producer: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        as_file(consumer, producer)
    assert problem in str(error.value)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "c").write_text(CONSUMER)
    (tmp_path / "p").write_text(PRODUCER)
    return ["--consumer.config", str(tmp_path / "c"), "--producer.config", str(tmp_path / "p")]


def test_old_spellings_are_understood(files: list[str]) -> None:
    options = ["--new.consumer", "--abort.on.send.failure", "false", "--offset.commit.interval.ms", "5"]

    new = CliRunner().invoke(app, ["mirror-maker", *files, "--include", "a,b", "--dry-run"])
    old = CliRunner().invoke(app, ["mirror-maker", *files, "--whitelist", "a,b", *options, "--dry-run"])

    assert new.exit_code == 0, new.output
    assert "mm1->target.topics=a|b" in new.stdout
    assert old.stdout == new.stdout


@pytest.mark.parametrize(
    "option",
    ["--message.handler", "--consumer.rebalance.listener", "--blacklist", "--rebalance.listener.args"],
)
def test_what_cannot_be_obeyed_is_refused_with_its_reason(files: list[str], option: str) -> None:
    answer = CliRunner().invoke(app, ["mirror-maker", *files, "--include", "a", option, "x", "--dry-run"])

    assert answer.exit_code == 2
    assert f"{option}: " in answer.output


def test_topics_that_a_handler_renamed_keep_their_new_names(files: list[str]) -> None:
    handler = ["--message.handler", "com.opencore.RenameTopicHandler", "--message.handler.args", "a,x.a; b,y"]
    answer = CliRunner().invoke(app, ["mirror-maker", *files, "--include", "a,b,c", *handler, "--dry-run"])
    assert answer.exit_code == 0, answer.output
    assert "mm1->target.twinlog.topic.rename=a -> x.a; b -> y" in answer.stdout
    refused = CliRunner().invoke(
        app, ["mirror-maker", *files, "--include", "a", *handler[:3], "a", "--dry-run"]
    )
    assert refused.exit_code == 2
