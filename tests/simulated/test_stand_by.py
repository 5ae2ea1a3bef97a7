"""Two processes of a service with the same flow: one works, the other stands by and takes over."""

import grpc
import pytest

from simulated.histories import DEFAULT
from simulated.replicas_rig import OTHERS, asked, owned, place
from simulated.world import World, lives_in
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.testing.rpc import MemoryRpc

FLOW = types_pb2.Flow(source="A", target="B")
FILE = DEFAULT + "twinlog.owner.timeout.seconds = 6\nB->A.emit.heartbeats.enabled = false\n"
SILENT_SECONDS = 60


async def begin(world: World, service: str) -> tuple[str, str]:
    """Two processes of a service, the first of which owns the flow; their names."""
    world.on["B"].cluster.broker_configs["group.initial.rebalance.delay.ms"] = "3000"
    names = f"{service} 1", f"{service} 2"
    world.start(names[0])
    await world.until(lambda: owned(world, names[0]))
    world.start(names[1], arguments=OTHERS)
    await world.pause(SILENT_SECONDS)
    assert [len(owned(world, name)) for name in names] == [1, 0]
    return names


def logged(world: World, event: str) -> int:
    return sum(each["event"] == event for each in world.logged)


@lives_in(World, FILE, machines_differ=True)
async def test_a_second_configsync_answers_changes_nothing_and_takes_over(world: World) -> None:
    for topic in ("orders", "added", "later"):
        world.on["A"].cluster.create_topic(topic)
    one, two = await begin(world, "configsync")

    async def is_ready(topic: str) -> bool:
        async with asked(world, two) as channel:
            stub = ConfigSyncServiceStub(channel)
            told = (await stub.ListTopics(configsync.ListTopicsRequest())).topics
        return configsync.TOPIC_STATE_READY in [each.state for each in told if each.source_topic == topic]

    def add(topic: str) -> configsync.UpdateRulesRequest:
        operation = configsync.RULE_OPERATION_ADD
        change = configsync.RuleChange(key="topics", operation=operation, value=topic)
        return configsync.UpdateRulesRequest(flow=FLOW, changes=[change])

    assert await is_ready("orders")
    async with MemoryRpc(world.rpc).insecure_channel(place(world, two)) as direct:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ConfigSyncServiceStub(direct).UpdateRules(add("added"))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert place(world, one) in (refused.value.details() or ""), "it says whom to ask"
    async with asked(world, two) as channel:
        await ConfigSyncServiceStub(channel).UpdateRules(add("added"))
    await world.pause(30)
    assert await is_ready("added"), "the owner has done it"
    await world.kill(one)
    await world.until(lambda: owned(world, two))
    async with asked(world, two) as channel:
        await ConfigSyncServiceStub(channel).UpdateRules(add("later"))
    await world.pause(30)
    assert await is_ready("later")


@lives_in(World, FILE, machines_differ=True)
async def test_a_second_heartbeat_stays_silent_until_the_first_has_left(world: World) -> None:
    one, two = await begin(world, "heartbeat")
    beats = len(world.on["B"].read("heartbeats"))
    await world.pause(100)
    assert len(world.on["B"].read("heartbeats")) == beats + 10, "one beats every 10 s"
    await world.kill(one)
    await world.pause(SILENT_SECONDS)
    assert len(world.on["B"].read("heartbeats")) > beats + 12
    assert owned(world, two)


@lives_in(World, FILE, machines_differ=True)
async def test_a_second_checkpoint_works_only_once_the_first_is_gone(world: World) -> None:
    one, two = await begin(world, "checkpoint")
    assert logged(world, "checkpoints_restored") == 1
    request = checkpoint.PlanMoveRequest(flow=FLOW, kind=checkpoint.MOVE_KIND_FAILOVER)
    listed = checkpoint.ListGroupsRequest(from_owner_of=FLOW)
    async with MemoryRpc(world.rpc).insecure_channel(place(world, two)) as direct:
        stub = CheckpointServiceStub(direct)
        with pytest.raises(grpc.aio.AioRpcError, match="served by another process"):
            async for _ in stub.PlanMove(request):
                pass
        with pytest.raises(grpc.aio.AioRpcError, match="served by another process"):
            await stub.ListGroups(listed)
    async with asked(world, two) as channel:
        told = [each async for each in CheckpointServiceStub(channel).PlanMove(request)]
        assert told[-1].plan.flow == FLOW
    await world.kill(one)
    await world.until(lambda: owned(world, two))
    await world.pause(10)
    assert logged(world, "checkpoints_restored") == 2
