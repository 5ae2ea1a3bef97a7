"""A copy that has lost its last commit marker, as after an unclean election: its records are there, and no
consumer sees them."""

from pathlib import Path

import pytest

from simulated import histories
from simulated.histories import DEFAULT
from simulated.world import World, live, lives_in
from twinlog.cli.verdict.verdict import verdict_of
from twinlog.testing.broker.calls import KAFKA_3_9, KAFKA_4_3, Release


async def pressing(world: World) -> list[str]:
    return [each.reason for each in verdict_of(await world.status()).pressing]


@pytest.mark.parametrize(("release", "ends"), [(KAFKA_4_3, True), (KAFKA_3_9, False)])
def test_a_commit_marker_that_the_target_lost_is_told_and_written_again_where_the_outcome_is_certain(
    tmp_path: Path, *, release: Release, ends: bool
) -> None:
    """It is with transactions of version 2: each has an epoch of its own, and its position was committed."""

    async def life() -> None:
        settings = DEFAULT + "twinlog.offsets = translated\n"
        async with World(tmp_path, settings, seed=1, release=release) as world:
            await histories.begin(world, partitions=1, prefix="A.")
            await world.pause(20)
            copy, cluster = world.on["B"].partition("A.orders"), world.on["B"].cluster
            assert copy.log.batches[-1].marker is not None
            cluster.lose_tail(copy, copy.log.end_offset - 1)
            assert world.on["B"].read("A.orders") == []
            await world.until(lambda: any(each["event"] == "round_failed" for each in world.logged))
            told = []
            for _ in range(40):
                told += await pressing(world)
                await world.pause(1)
            assert told
            assert (len(world.on["B"].read("A.orders")) == 3) is ends
            await world.pause(60)
            assert (await pressing(world) == []) is ends

    live(life())


@lives_in(World, DEFAULT + "twinlog.offsets = translated\n", seed=2, release=KAFKA_3_9)
async def test_a_commit_marker_that_is_missed_by_the_producer_that_committed_is_written_again(
    world: World,
) -> None:
    """Also where epochs do not tell transactions apart: it has committed all that it ended since it began."""
    await histories.begin(world, partitions=1, prefix="A.")
    await world.pause(20)
    copy = world.on["B"].partition("A.orders")
    await world.kafka["B"].stop_node(1)
    copy.log.cut(copy.log.end_offset - 1)
    await world.kafka["B"].start_node(1)
    for number in range(20):
        world.on["A"].produce("orders", 0, b"later %d" % number)
        await world.pause(0.5)
    await world.pause(20)
    assert [each.value for each in world.on["B"].read("A.orders")] == [
        each.value for each in world.on["A"].read("orders")
    ]
