"""The positions topic of a flow is deleted while nothing runs."""

from pathlib import Path

import pytest

from simulated.both_ways_rig import FILE, all_once, orders_on_all, values, write
from simulated.world import SERVICES, World, live


async def stop_and_lose_positions(world: World, *more: str) -> None:
    """`more`: topics on A that are lost, too."""
    for name in list(world.services):
        await world.stop(name)
    world.on["B"].cluster.delete_topic("mm2-offsets.A.internal")
    for topic in more:
        world.on["A"].cluster.delete_topic(topic)


@pytest.mark.parametrize("sides", ["A", "AB"])
def test_a_flow_that_lost_its_positions_and_syncs_does_not_say_that_it_has_copied_nothing(
    tmp_path: Path, sides: str
) -> None:
    async def life() -> None:
        file = FILE + "twinlog.offsets = translated\nA.consumer.auto.offset.reset = latest\n"
        async with orders_on_all(tmp_path, seed=5, file=file) as world:
            world.start(*SERVICES)
            await world.pause(20)
            await write(world, range(10), partitions=1, to=sides)
            await all_once(world, 10 * len(sides))
            await stop_and_lose_positions(world, "mm2-offset-syncs.B.internal")
            world.on["A"].commit("everything", "orders", {0: 3})
            read = {value for _, value in values(world, "A")[:3]}
            world.start(*SERVICES)
            for _ in range(2):
                await world.pause(60)
                place = world.on["B"].committed("everything").get(("orders", 0), 0)
                assert {each.value for each in world.on["B"].read("orders") if each.offset < place} <= read
                await world.kill("source")
                world.start("source")

    live(life())
