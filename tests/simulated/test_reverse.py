"""`twinlog reverse`: the flow back takes over, once, whatever is interrupted."""

import re
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from simulated.both_ways_rig import FILE, all_once, stands_still, values
from simulated.test_steering import scope
from simulated.world import SERVICES, World, lives_in
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.common.call import Services
from twinlog.cli.moves.reverse import Reversal
from twinlog.cli.moves.tail import BothClusters, LeftTail
from twinlog.cli.source.client import every_partition
from twinlog.cli.source.partitions import state_name
from twinlog.cli.verdict.verdict import verdict_of
from twinlog.errors import StateError
from twinlog.kafka.cluster import open_cluster
from twinlog.testing.broker.acls import Authorizer
from twinlog.testing.rpc import MemoryRpc

STEPS = ("STOP", "FENCE", "DRAIN", "COMMIT", "PAUSE", "STOP", "UNFENCE", "START")
ADDRESSES = {"source": "127.0.0.1:17401", "checkpoint": "127.0.0.1:17402", "configsync": "127.0.0.1:17404"}


class Killed(Exception):  # noqa: N818 - no error
    pass


@asynccontextmanager
async def services(world: World) -> AsyncIterator[Services]:
    rpc = MemoryRpc(world.rpc)
    async with Services(open_to=lambda name: rpc.insecure_channel(ADDRESSES[name])) as at:
        yield at


class Reversing:
    """Runs the command; `until` names how many steps it tells before it dies."""

    def __init__(
        self, world: World, *, until: int = 1000, tail: LeftTail = LeftTail.REFUSE, **options: Any
    ) -> None:
        self.world, self.until, self.tail, self.options = world, until, tail, options
        self.told: list[tuple[str, str]] = []

    def tell(self, step: str, message: str) -> None:
        self.told.append((step, message))
        if len(self.told) == self.until:
            raise Killed

    async def follow(self, events: AsyncIterable[pb2.RunFailoverResponse]) -> None:
        async for event in events:
            if event.HasField("step") and event.step.state == pb2.STEP_STATE_DONE:
                self.tell(event.step.name, event.step.message)
            if event.HasField("report"):
                assert not event.report.left_behind, event.report.left_behind

    async def run(self, begin: str = "A", end: str = "B", *, wait_seconds: float = 60) -> list[str]:
        async with AsyncExitStack() as stack:
            at = await stack.enter_async_context(services(self.world))
            clusters = [
                await stack.enter_async_context(
                    open_cluster(alias, {"bootstrap.servers": kafka.bootstrap}, timeout_seconds=30)
                )
                for alias, kafka in self.world.kafka.items()
            ]
            options = pb2.MoveOptions(by="somebody", **self.options)
            options.wait.FromMilliseconds(round(wait_seconds * 1000))
            reversal = Reversal(
                at=at,
                flow=scope("", begin, end).flow,
                options=options,
                tail=self.tail,
                clusters=BothClusters(source=clusters[begin == "B"], target=clusters[end == "B"]),
                tell=self.tell,
                follow=self.follow,
            )
            await reversal.run()
        return [step for step, _ in self.told]


async def begin(world: World) -> None:
    for application in world.on.values():
        application.cluster.authorizer = Authorizer(super_users=["User:ANONYMOUS"])
        application.cluster.create_topic("orders")
    world.on["A"].produce("orders", 0, *(b"A%d" % number for number in range(5)))
    world.start(*SERVICES)
    await world.until(lambda: len(values(world, "B")) == 5)
    world.on["A"].commit("readers", "orders", {0: 3})


def acls(world: World) -> list[object]:
    found = [application.cluster.authorizer for application in world.on.values()]
    return [each for authorizer in found if authorizer is not None for each in authorizer.acls]


@lives_in(World, FILE, seed=31)
async def test_the_flow_back_takes_over_and_gives_back(world: World) -> None:
    await begin(world)
    a, b = world.on["A"], world.on["B"]
    told = await Reversing(world, fence=True).run()
    assert [step for step in told if step in STEPS] == list(STEPS)
    async with services(world) as at:
        back = await every_partition(at.source, scope("", "B", "A").flow, "orders", from_owner=True)
    assert [state_name(each) for each in back] == ["RUNNING"], "START says that it copies"
    assert not acls(world)
    b.produce("orders", 0, *(b"B%d" % number for number in range(5)))
    await all_once(world, 10)
    assert [each.value for each in b.read("orders")][b.committed("readers")["orders", 0]] == b"A3"
    a.produce("orders", 0, b"late")
    await stands_still(world)
    assert len(values(world, "B")) == 10, "what is written to A now stays there"
    status = await world.status()
    assert {(each.about, each.reason) for each in verdict_of(status).issues if each.stops} == set()
    for name in SERVICES:
        await world.kill(name)
    world.start(*SERVICES)
    await world.pause(20)
    await stands_still(world)
    await Reversing(world, fence=True).run("B", "A")
    await all_once(world, 11)


@pytest.mark.parametrize("until", range(1, 14))
@lives_in(World, FILE, seed=32)
async def test_an_interrupted_command_goes_on_where_it_was(world: World, *, until: int) -> None:
    await begin(world)
    with suppress(Killed):
        await Reversing(world, until=until, fence=True).run()
    for name in SERVICES:
        await world.kill(name)
    world.start(*SERVICES)
    await world.pause(20)
    await Reversing(world, fence=True).run()
    assert not acls(world)
    world.on["B"].produce("orders", 0, *(b"B%d" % number for number in range(5)))
    await all_once(world, 10)


@lives_in(World, FILE, seed=34)
async def test_a_flow_that_somebody_else_stopped_may_not_be_drained(world: World) -> None:
    await begin(world)
    for flow in ("A->B", "B->A"):
        await world.rule(flow, "enabled", "false")
    world.on["A"].produce("orders", 0, b"only here")
    with pytest.raises(StateError, match="it may not have copied everything"):
        await Reversing(world).run()


async def brought_by_the_flow_back(world: World, value: str) -> None:
    world.on["B"].produce("orders", 0, value.encode())
    await world.until(lambda: any(found == (0, value.encode()) for found in values(world, "A")))


@lives_in(World, FILE, seed=35)
async def test_what_the_flow_back_brought_is_no_tail(world: World) -> None:
    await begin(world)
    pause = source.PauseReplicationRequest(scope=scope("", "A", "B"), by="ann")
    await world.order("PauseReplication", pause)
    await brought_by_the_flow_back(world, "B0")
    reversing = Reversing(world, accept_loss=True)
    assert "TAIL" not in await reversing.run(wait_seconds=0)
    world.on["B"].produce("orders", 0, b"B1")
    await all_once(world, 7)


@pytest.mark.parametrize("tail", list(LeftTail))
@lives_in(World, FILE, seed=33)
async def test_a_tail_is_shown_and_becomes_what_was_told(world: World, *, tail: LeftTail) -> None:
    await begin(world)
    a, b = world.on["A"], world.on["B"]
    pause = source.PauseReplicationRequest(scope=scope("", "A", "B"), by="ann")
    await world.order("PauseReplication", pause)
    a.produce("orders", 0, b"only here")
    await brought_by_the_flow_back(world, "B0")
    a.produce("orders", 0, b"here, too")
    await brought_by_the_flow_back(world, "B1")
    reversing = Reversing(world, tail=tail, accept_loss=True)
    if tail is LeftTail.REFUSE:
        with pytest.raises(StateError, match="orders-0: A has records that are not copied"):
            await reversing.run(wait_seconds=0)
        await world.until(lambda: len(values(world, "B")) == 9)
    else:
        await reversing.run(wait_seconds=0)
        b.produce("orders", 0, b"B2")
        await world.until(lambda: len(values(world, "A")) == 10)
        await stands_still(world)
        assert len(values(world, "B")) == 8
        listed = await world.order("ListGaps", source.ListGapsRequest(flow=pause.scope.flow))
        assert [(each.from_offset, each.to_offset) for each in listed.gaps] == [(5, 11)]
    shown = [message for step, message in reversing.told if step == "TAIL"]
    assert any(re.search(r"offset 8 at 2\d+-.* UTC .*here, too", each) for each in shown), shown
    assert not any("B0" in each or "B1" in each for each in shown), shown
    copies = [topic for topic in b.cluster.topics if topic.endswith(".tail-of-A")]
    assert copies == (["orders.tail-of-A"] if tail is LeftTail.TOPIC else [])
    for copy in copies:
        assert [each.value for each in b.read(copy)] == [b"only here", b"here, too"]
