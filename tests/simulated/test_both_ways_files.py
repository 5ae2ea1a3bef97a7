"""Topics that are copied both ways: `twinlog verify`, and a file for each direction."""

import asyncio
from pathlib import Path

from simulated.both_ways_rig import ONE_WAY, all_once, both_have_all, orders_on_all, values, verified, write
from simulated.world import live
from twinlog.model import Flow


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
    ports = {"source": 27401, "configsync": 27404}
    listen = "".join(f"twinlog.{name}.listen = 127.0.0.1:{port}\n" for name, port in ports.items())

    async def life() -> None:
        async with orders_on_all(tmp_path, seed=19, file=ONE_WAY, partition_count=2) as world:
            back = tmp_path / "back.properties"
            back.write_text(world.file.read_text().replace("A->B.enabled", "B->A.enabled") + listen)
            world.start("configsync", "source")
            world.start("configsync 2", "source 2", arguments=("--config", str(back)))
            await write(world, range(60), seconds=0.5)
            await all_once(world, 120)
            for file, flow in ((world.file, Flow("A", "B")), (back, Flow("B", "A"))):
                assert await verified(world, flow, file=file) == ("EQUAL", 0)
            assert not [each for each in world.logged if each["level"] in ("error", "critical")]

    live(life())
