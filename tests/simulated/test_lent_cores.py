"""A source process that owns no flow lends its cores to the owner, whose tasks run there as at home."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from simulated.replicas_rig import OTHERS, owned
from simulated.world import ONE_BROKER, World, live, lives_in
from twinlog.api.common.v1 import owners_service_pb2 as owners
from twinlog.api.common.v1 import types_pb2
from twinlog.api.common.v1.owners_service_pb2_grpc import OwnersServiceStub
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.testing.rpc import MemoryRpc
from twinlog_source.driver.stream.lending import AGAIN_SECONDS
from twinlog_source.driver.worker_pool import IDLE_SECONDS

# Two processes on one machine, each of which may use two of its cores.
PROPERTIES = f"""{ONE_BROKER}
A->B.enabled = true
A.consumer.max.partition.fetch.bytes = 30000
A.consumer.fetch.max.bytes = 60000
twinlog.spark.master = local[2]
"""
PARTITIONS, BATCHES, RECORDS = 6, 30, 700
FLOW = types_pb2.Flow(source="A", target="B")
COMES_SECONDS = 30.0
"""Until lent workers copy: the lender is idle, the flow is behind, an epoch begins."""
SECONDS_OF_A_LOSS = 10.0
BYTES_PER_SECOND = 30_000


@asynccontextmanager
async def behind(directory: Path, more: str = "") -> AsyncIterator[World]:
    """A flow that a limit keeps behind, and two processes of source of which the first one owns it."""
    async with World(directory, PROPERTIES + more) as world:
        world.on["A"].cluster.create_topic("orders", partition_count=PARTITIONS)
        world.start("configsync", "source")
        await world.until(lambda: "A->B" in owned(world, "source"))
        await world.until(lambda: world.on["B"].ends("A.orders") == [0] * PARTITIONS)
        await limit(world, BYTES_PER_SECOND)
        world.start("source 2", arguments=OTHERS)
        for index in range(PARTITIONS):
            for batch in range(BATCHES):
                values = [b"%d %d %d" % (index, batch, number) for number in range(RECORDS)]
                world.on["A"].produce("orders", index, *values)
        yield world


async def limit(world: World, bytes_per_second: int) -> None:
    scope = source.Scope(flow=FLOW)
    await world.order(
        "SetThrottle", source.SetThrottleRequest(scope=scope, bytes_per_second=bytes_per_second, by="ann")
    )


def lent(world: World) -> list[str]:
    """The workers of the second process that serve the first one, or the other way round."""
    running = [name for tasks in world._tasks.values() for name in tasks.running]  # noqa: SLF001 (who runs what)
    return [name for name in running if isinstance(name, str)]


def whole(world: World) -> bool:
    return sum(world.on["B"].ends("A.orders")) >= PARTITIONS * BATCHES * RECORDS


def check_copies(world: World) -> None:
    """No record is missing, and none is there twice."""
    copied: dict[int, list[bytes | None]] = {}
    for each in world.on["B"].read("A.orders"):
        copied.setdefault(each.partition, []).append(each.value)
    for index in range(PARTITIONS):
        expected = [b"%d %d %d" % (index, batch, n) for batch in range(BATCHES) for n in range(RECORDS)]
        assert copied[index] == expected, Counter(copied[index]).most_common(3)


async def status(world: World, name: str) -> source.FlowStatus:
    """What a process says of the flow."""
    port = world.contexts[name].bound.number
    async with MemoryRpc(world.rpc).insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = await SourceServiceStub(channel).ListFlows(source.ListFlowsRequest(), timeout=10)
    (flow,) = (each for each in answer.flows if each.flow == FLOW)
    return flow


async def move(world: World, begin: str, end: str, flow: types_pb2.Flow = FLOW) -> None:
    """`twinlog move`."""
    ports = [world.contexts[name].bound.number for name in (begin, end)]
    async with MemoryRpc(world.rpc).insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
        request = owners.MoveFlowRequest(flow=flow, to=f"127.0.0.1:{ports[1]}")
        await OwnersServiceStub(channel).MoveFlow(request, timeout=10)


async def all_go_on(world: World, seconds: float) -> None:
    """Every partition that is not whole gets records within this time."""
    before = world.on["B"].ends("A.orders")
    goal = [min(end + 1, BATCHES * RECORDS) for end in before]
    await world.until(
        lambda: all(end >= least for end, least in zip(world.on["B"].ends("A.orders"), goal, strict=True)),
        seconds,
    )


@lives_in(behind, machines_differ=True)
async def test_an_idle_process_copies_half_of_a_flow_that_is_behind(world: World) -> None:
    await world.until(lambda: len(lent(world)) == 2, COMES_SECONDS)
    await world.pause(5)
    assert (await status(world, "source")).slots == 4
    row = (await world.status()).flows["A->B"]
    (told,) = (each.message for each in row.in_force if each.kind == "LENT_CORES")
    port = world.contexts["source 2"].bound.number
    assert re.fullmatch(rf"2 workers on cores of \S+:{port}, process \d+, which owns no flow", told)
    await world.until(lambda: whole(world))
    check_copies(world)
    await world.until(lambda: not lent(world), 3 * IDLE_SECONDS)
    assert not (await status(world, "source")).lent_workers


@pytest.mark.parametrize("ends", ["kill", "stop"])
@lives_in(behind, machines_differ=True)
async def test_of_two_idle_processes_both_lend_and_one_that_ends_costs_seconds(
    world: World, *, ends: str
) -> None:
    world.start("source 3", arguments=OTHERS)
    await world.until(lambda: len(lent(world)) == 4, COMES_SECONDS)
    await world.pause(5)
    assert (await status(world, "source")).slots == 6
    await getattr(world, ends)("source 3")
    await all_go_on(world, SECONDS_OF_A_LOSS)
    await getattr(world, ends)("source 2")
    await all_go_on(world, SECONDS_OF_A_LOSS)
    await world.pause(5)
    assert (await status(world, "source")).slots == 2, "no more than the owner has cores"
    await world.until(lambda: whole(world))
    check_copies(world)


@lives_in(behind, "B->A.enabled = true\n", machines_differ=True)
async def test_of_two_owners_the_one_that_is_behind_gets_all_cores(world: World) -> None:
    await limit(world, BYTES_PER_SECOND // 4)
    await world.pause(5)
    await move(world, "source", "source 2", types_pb2.Flow(source="B", target="A"))
    await world.until(lambda: owned(world, "source 2") == ["B->A"] and not lent(world), 60)
    world.start("source 3", arguments=OTHERS)
    await world.until(lambda: len(lent(world)) == 2, COMES_SECONDS)
    await world.pause(5)
    assert (await status(world, "source")).slots == 4


@pytest.mark.parametrize("ends", ["kill", "stop"])
@lives_in(behind, machines_differ=True)
async def test_a_lender_becomes_the_owner_when_that_one_ends(world: World, *, ends: str) -> None:
    await world.until(lambda: len(lent(world)) == 2, COMES_SECONDS)
    await world.pause(5)
    began = world.now()
    await getattr(world, ends)("source")
    await world.until(lambda: owned(world, "source 2"), 15)
    assert not lent(world)
    fenced = [each for each in world.logged if each["event"] == "slots_fenced"]
    assert ends == "kill" or (not fenced and world.now() < began + 10)
    await all_go_on(world, 15)
    await world.until(lambda: whole(world))
    check_copies(world)


@lives_in(behind, machines_differ=True)
async def test_a_flow_that_is_moved_to_its_lender_gets_the_cores_of_the_owner_before(world: World) -> None:
    await world.until(lambda: len(lent(world)) == 2, COMES_SECONDS)
    await world.pause(5)
    await move(world, "source", "source 2")
    await world.until(lambda: owned(world, "source 2") == ["A->B"], 30)
    await world.until(lambda: not lent(world), 5)
    await all_go_on(world, 15)
    assert not [each for each in world.logged if each["event"] in ("slots_fenced", "worker_killed")]
    await world.until(lambda: len(lent(world)) == 2, AGAIN_SECONDS + COMES_SECONDS)
    await world.until(lambda: whole(world))
    check_copies(world)


@lives_in(behind, machines_differ=True)
async def test_one_that_loses_a_cluster_takes_its_cores_back(world: World) -> None:
    await world.until(lambda: len(lent(world)) == 2, COMES_SECONDS)
    await world.pause(5)
    world.bar("source 2", "A")
    await world.until(lambda: not lent(world), 60)
    await all_go_on(world, 15)
    await world.until(lambda: whole(world))
    check_copies(world)


@pytest.mark.parametrize("offsets", ["preserved", "translated"])
def test_a_random_life_of_three_misses_and_repeats_nothing(tmp_path: Path, offsets: str) -> None:
    random = Random(offsets)

    async def life() -> None:
        async with behind(tmp_path, f"twinlog.offsets = {offsets}\n") as world:
            world.start("source 3", arguments=OTHERS)
            await world.until(lambda: len(lent(world)) == 4, COMES_SECONDS)
            for event in random.choices(("kill", "stop", "kill_tasks", "bar"), k=6):
                await world.pause(random.uniform(2, 14))
                name = random.choice([each for each in world.services if each.startswith("source")])
                if event == "kill_tasks":
                    await world._tasks[name].close()  # noqa: SLF001 (those of any process)
                elif event == "bar":
                    world.bar(name, random.choice("AB"))
                    await world.pause(random.uniform(1, 25))
                    world.bar(name)
                else:
                    await getattr(world, event)(name)
                    await world.pause(random.uniform(0, 4))
                    world.start(name, arguments=OTHERS if name != "source" else ())
            await world.until(lambda: whole(world), 900)
            check_copies(world)

    live(life(), machines_differ=True)
