"""An epoch stays while its plan holds."""

from simulated.histories import DEFAULT
from simulated.world import World, lives_in
from twinlog.api.source.v1 import source_service_pb2 as pb

FILE = DEFAULT + "twinlog.epoch.seconds = 1\ntwinlog.epoch.max.seconds = 600\n"


async def epoch(world: World) -> int:
    (flow,) = (await world.order("ListFlows", pb.ListFlowsRequest())).flows
    return int(flow.epoch)


async def stays_and_is_replaced(world: World, copied_again: list[bytes]) -> None:
    """A copy that is created again is noticed beside running tasks, not at the next hand-over."""
    source, target = world.on["A"], world.on["B"]

    def copy(topic: str = "orders") -> list[bytes | None]:
        return [seen.value for seen in target.read(f"A.{topic}")]

    source.cluster.create_topic("orders")
    source.produce("orders", 0, b"first")
    world.start("configsync", "source")
    await world.until(lambda: copy() == [b"first"])
    first = await epoch(world)
    for _ in range(20):
        source.produce("orders", 0, b"more")
        await world.pause(5)
    assert len(copy()) == 21
    assert await epoch(world) == first
    source.cluster.create_topic("orders.later")
    source.produce("orders.later", 0, b"first")
    await world.until(lambda: copy("orders.later") == [b"first"])
    assert (with_topic := await epoch(world)) > first
    target.cluster.delete_topic("A.orders")
    source.produce("orders", 0, b"after")
    await world.until(lambda: "A.orders" in target.cluster.topics and copy() == copied_again)
    await world.pause(10)
    assert await epoch(world) > with_topic


@lives_in(World, FILE)
async def test_tasks_stay_while_their_plan_holds_and_are_replaced_when_it_does_not(world: World) -> None:
    """Where offsets are the source's, all that the source holds is copied again."""
    await stays_and_is_replaced(world, [b"first", *[b"more"] * 20, b"after"])


@lives_in(World, f"{FILE}twinlog.offsets = translated\n")
async def test_a_translated_copy_that_is_created_again_gets_what_came_after(world: World) -> None:
    await stays_and_is_replaced(world, [b"after"])
