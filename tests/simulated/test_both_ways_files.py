"""Topics that are copied both ways: `twinlog verify`, and a file for each direction."""

import asyncio
from pathlib import Path

from simulated.both_ways_rig import ONE_WAY, all_once, both_have_all, orders_on_all, values, verified, write
from simulated.world import live
from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1.source_service_pb2 import ListPartitionsRequest
from twinlog.model import Flow

LISTEN_BESIDE = "twinlog.source.listen = 127.0.0.1:27401\ntwinlog.configsync.listen = 127.0.0.1:27404\n"
"""Of the services of another file."""


def test_verify_compares_the_records_of_one_cluster_with_their_copies(tmp_path: Path) -> None:
    async def life() -> None:
        async with orders_on_all(tmp_path, seed=11, partition_count=2) as world:
            await write(world, range(6), seconds=0)
            world.start("configsync", "source")
            a_to_b, b_to_a = Flow("A", "B"), Flow("B", "A")
            await world.until(lambda: both_have_all(world) and len(values(world, "A")) == 12)
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(write(world, range(6, 60), seconds=0.3), name="applications")
                for flow in (a_to_b, b_to_a):
                    told = await verified(world, flow, complete=False)
                    assert (told, writing.done()) == (("EQUAL", 0), False), "while both sides write"
            await all_once(world, 120)
            await world.kill("source")
            assert await verified(world, a_to_b) == ("EQUAL", 0)
            assert await verified(world, b_to_a) == ("EQUAL", 0)
            world.on["B"].produce("orders", 0, b"B60", b"B62")
            assert await verified(world, a_to_b) == ("EQUAL", 0)
            assert await verified(world, b_to_a) == ("DIFFERENT", 2)

    live(life())


def test_a_file_for_each_direction(tmp_path: Path) -> None:
    """No process has the flow back: that there is one is known by the positions topic of it."""

    async def life() -> None:
        async with orders_on_all(tmp_path, seed=19, file=ONE_WAY, partition_count=2) as world:
            back = tmp_path / "back.properties"
            back.write_text(world.file.read_text().replace("A->B.enabled", "B->A.enabled") + LISTEN_BESIDE)
            world.start("configsync", "source")
            world.start("configsync 2", "source 2", arguments=("--config", str(back)))
            await write(world, range(60), seconds=0.5)
            await all_once(world, 120)
            for file, flow in ((world.file, Flow("A", "B")), (back, Flow("B", "A"))):
                assert await verified(world, flow, file=file) == ("EQUAL", 0)
            assert not [each for each in world.logged if each["level"] in ("error", "critical")]

    live(life())


def test_what_is_copied_back_by_a_flow_of_another_file_is_not_foreign(tmp_path: Path) -> None:
    """Neither may know of the other when its first tasks begin."""

    async def life() -> None:
        async with orders_on_all(tmp_path, seed=19, file=ONE_WAY) as world:
            back = tmp_path / "back.properties"
            back.write_text(world.file.read_text().replace("A->B.enabled", "B->A.enabled") + LISTEN_BESIDE)
            world.start("configsync", "source")
            world.start("configsync 2", "source 2", arguments=("--config", str(back)))
            await write(world, range(20), partitions=1)
            await all_once(world, 40)
            asked = ListPartitionsRequest(flow=types_pb2.Flow(source="A", target="B"))
            for number in range(20, 22):
                (told,) = (await world.order("ListPartitions", asked)).partitions
                assert (told.foreign_records, len(told.foreign_writes)) == (0, 0)
                await world.kill("source")
                world.start("source")
                await write(world, range(number, number + 1), partitions=1, seconds=60)

    live(life())
