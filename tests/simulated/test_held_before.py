"""A target topic that has records before its copy begins: whose they are is told, by all commands alike."""

from pathlib import Path

import pytest

from simulated import histories
from simulated.histories import DEFAULT, IDENTITY
from simulated.test_steering import scope
from simulated.world import SERVICES, World, live
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.verdict.verdict import verdict_of
from twinlog.kafka.codes import ErrorCode
from twinlog.preflight.checks import judge
from twinlog.preflight.facts import Severity
from twinlog.preflight.gather import gather_facts
from twinlog.service.options import ServiceOptions, load_configuration


async def found(world: World, what: str) -> list[str]:
    """The findings of preflight with these words."""
    configuration = load_configuration("source", ServiceOptions(config=world.file), environment={})
    findings = judge(await gather_facts(configuration, timeout_seconds=10))
    return [each.message for each in findings if what in each.message]


async def held(world: World) -> list[str]:
    """What preflight says of records that are on the target already."""
    return await found(world, "already")


async def foreign(world: World) -> list[str]:
    """What status says of foreign records."""
    return [each.message for each in verdict_of(await world.status()).pressing if each.reason == "FOREIGN"]


@pytest.mark.parametrize("settings", ["", "twinlog.offsets = translated\n"])
@pytest.mark.parametrize("runs", [False, True])
def test_records_of_others_under_a_copys_name_are_told_before_and_after_it_begins(
    tmp_path: Path, *, settings: str, runs: bool
) -> None:
    async def life() -> None:
        async with World(tmp_path, DEFAULT + settings, seed=1) as world:
            if runs:
                await histories.begin(world, prefix="A.")
                assert await held(world) == [], "of a preserved copy, whose position is not stored yet"
                await world.pause(20)
                assert await held(world) == []
            name = "orders.more"
            world.on["B"].cluster.create_topic(f"A.{name}", partition_count=2)
            world.on["B"].produce(f"A.{name}", 1, b"1", b"2", b"3")
            world.on["A"].cluster.create_topic(name, partition_count=2)
            world.on["A"].produce(name, 1, b"one")
            (told,) = await held(world)
            assert f"A.{name} on B holds 3 records already in partition 1" in told
            if not runs:
                world.start(*SERVICES)
            await world.until(lambda: len(world.on["B"].read(f"A.{name}")) == 4)
            await world.kill("source")
            world.start("source")
            await world.pause(30)
            told = f"other producers wrote 3 records into the copies of {name}-1"
            assert await foreign(world) == [told]
            ask = source.AcknowledgeForeignWritesRequest(scope=scope(name), by="somebody")
            (copy,) = (await world.order("AcknowledgeForeignWrites", ask)).copies
            assert (copy.records, copy.last.from_offset, copy.last.to_offset) == (3, 0, 3)
            assert await foreign(world) == []
            await world.pause(20)
            await world.kill("source")
            world.start("source")
            await world.pause(30)
            assert await foreign(world) == [], "the next owner knows that it was acknowledged"

    live(life())


def test_what_mirror_maker_copied_is_nobody_elses(tmp_path: Path) -> None:
    async def life() -> None:
        async with World(tmp_path, DEFAULT, seed=1) as world:
            world.on["A"].cluster.create_topic("orders")
            world.on["A"].produce("orders", 0, *(b"%d" % number for number in range(8)))
            histories.mirror_maker(world, copied_records=5)
            assert await held(world) == []
            world.start(*SERVICES)
            await histories.copied(world, prefix="A.")
            await world.pause(30)
            assert await foreign(world) == []

    live(life())


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_what_a_topic_that_comes_back_holds_is_nobody_elses(tmp_path: Path, *, policy: str) -> None:
    async def life() -> None:
        async with World(tmp_path, IDENTITY, seed=1) as world:
            world.on["A"].cluster.create_topic("orders", configs={"cleanup.policy": policy})
            world.on["A"].produce("orders", 0, b"one", b"two")
            world.start(*SERVICES)
            await histories.copied(world)
            await world.pause(20)
            for name in SERVICES:
                await world.stop(name)
            world.on["B"].produce("orders", 0, b"three")
            world.file.write_text(world.file.read_text().replace("A->B", "B->A"))
            world.start(*SERVICES)
            await world.until(lambda: world.on["A"].read("orders")[-1].value == b"three")
            await world.pause(30)
            assert await foreign(world) == []

    live(life())


@pytest.mark.parametrize("settings", ["", "B.exactly.once.source.support = disabled\n"])
def test_what_the_flow_copied_before_it_lost_its_positions_is_nobody_elses(
    tmp_path: Path, settings: str
) -> None:
    async def life() -> None:
        async with World(tmp_path, DEFAULT + settings, seed=1) as world:
            await histories.begin(world, prefix="A.")
            await world.pause(20)
            for name in SERVICES:
                await world.stop(name)
            world.on["B"].cluster.delete_topic("mm2-offsets.A.internal")
            told = await held(world)
            assert [each.partition(":")[0] for each in told] == ["orders"], (
                "and that they may be the source's"
            )
            world.start(*SERVICES)
            world.on["A"].produce("orders", 0, b"four")
            await histories.copied(world, prefix="A.")
            await world.pause(30)
            assert await foreign(world) == []

    live(life())


@pytest.mark.parametrize("settings", ["", "twinlog.offsets = translated\n"])
def test_preflight_names_the_copies_that_lose_the_sources_offsets(tmp_path: Path, settings: str) -> None:
    async def life() -> None:
        async with World(tmp_path, DEFAULT + settings, seed=1) as world:
            await histories.begin(world, prefix="A.")
            where = "twinlog.transform.topics = orders\ntwinlog.transform.where = offset > 1\n"
            world.file.write_text(world.file.read_text() + where)
            told = await found(world, "for good")
            assert [each.partition(":")[0] for each in told] == ([] if settings else ["orders"])

    live(life())


@pytest.mark.parametrize(
    ("topics", "left_out"), [("orders.*", []), ("", ["1: orders"]), ("order, or.ders", ["1: orders"])]
)
def test_preflight_names_the_topics_that_the_file_no_longer_selects(
    tmp_path: Path, topics: str, left_out: list[str]
) -> None:
    async def life() -> None:
        async with World(tmp_path, DEFAULT, seed=1) as world:
            await histories.begin(world, prefix="A.")
            world.file.write_text(world.file.read_text().replace("topics = orders.*", f"topics = {topics}"))
            told = await found(world, "no longer with this file")
            assert [each.partition("file: ")[2] for each in told] == left_out

    live(life())


def test_preflight_says_which_right_the_changed_rules_need(tmp_path: Path) -> None:
    """They may win over the file that it checks."""

    async def life() -> None:
        async with World(tmp_path, DEFAULT, seed=1) as world:
            await histories.begin(world, prefix="A.")
            for name in SERVICES:
                await world.stop(name)
            with world.kafka["B"].faults.during(api="fetch", error=ErrorCode.topic_authorization_failed):
                configuration = load_configuration(
                    "source", ServiceOptions(config=world.file), environment={}
                )
                findings = judge(await gather_facts(configuration, timeout_seconds=10))
            (told,) = [each for each in findings if "rules in force are not known" in each.message]
            assert (told.level, told.check) == (Severity.ERROR, "rights")
            assert "Allow this client to READ mm2-configsync.A.internal on B" in told.message

    live(life())
