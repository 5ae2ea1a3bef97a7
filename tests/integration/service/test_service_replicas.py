"""Two processes of a service with the same flow: one works, the other stands by and takes over."""

from pathlib import Path

import grpc
import pytest

from integration.in_process import twinlog
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.heartbeat.v1.heartbeat_service_pb2_grpc import HeartbeatServiceStub
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.service.peers import open_to_owner
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess, run_service


def properties(pair: KafkaPair, east: str, west: str) -> str:
    return (
        f"clusters = {east}, {west}\n"
        f"{east}.bootstrap.servers = {pair.a.bootstrap_servers}\n"
        f"{west}.bootstrap.servers = {pair.b.bootstrap_servers}\n"
        f"{east}->{west}.enabled = true\n"
        f"{west}->{east}.emit.heartbeats.enabled = false\n"
        f"topics = {east}-.*\n"
        "replication.factor = 1\noffset.storage.replication.factor = 1\n"
        "heartbeats.topic.replication.factor = 1\nheartbeats.replication.enabled = false\n"
        "refresh.topics.interval.seconds = 0.5\nemit.heartbeats.interval.seconds = 0.2\n"
        "twinlog.drain.seconds = 0\ntwinlog.owner.timeout.seconds = 2\n"
    )


async def create(cluster: KafkaCluster, name: str) -> None:
    topic = NewTopic(name=name, partition_count=1, replication_factor=1)
    await retry_admin(lambda: cluster.create_topics([topic]))


async def ready_topics(service: ServiceProcess) -> set[str]:
    stub = ConfigSyncServiceStub(service.channel)
    answer = await stub.ListTopics(configsync.ListTopicsRequest(), timeout=CALL_SECONDS)
    return {topic.source_topic for topic in answer.topics if topic.state == configsync.TOPIC_STATE_READY}


async def flow_status(service: ServiceProcess) -> configsync.FlowStatus:
    stub = ConfigSyncServiceStub(service.channel)
    (flow,) = (await stub.ListFlows(configsync.ListFlowsRequest(), timeout=CALL_SECONDS)).flows
    return flow


async def add_topic_rule(
    service: ServiceProcess, flow: types_pb2.Flow, name: str
) -> configsync.UpdateRulesResponse:
    change = configsync.RuleChange(key="topics", operation=configsync.RULE_OPERATION_ADD, value=name)
    request = configsync.UpdateRulesRequest(flow=flow, changes=[change])
    return await ConfigSyncServiceStub(service.channel).UpdateRules(request, timeout=CALL_SECONDS)


async def test_a_second_configsync_answers_changes_nothing_and_takes_over(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    east, west = unique_name("east"), unique_name("west")
    first, added, later = f"{east}-first", f"other-{east}", f"{east}-later"
    text = properties(kafka_pair, east, west)
    flow = types_pb2.Flow(source=east, target=west)
    async with open_cluster("A", kafka_pair.a.client_properties()) as source:
        await create(source, first)
        await create(source, added)
        async with run_service("configsync", tmp_path / "one", text) as one:
            await eventually(lambda: _are_ready(one, {first}))
            async with run_service("configsync", tmp_path / "two", text) as two:
                await eventually(lambda: _are_ready(two, {first}))

                async def stands_by() -> bool:
                    status = await flow_status(two)
                    return (status.state, status.reason) == (
                        configsync.FLOW_STATE_SETTLED,
                        "OWNED_ELSEWHERE",
                    )

                await eventually(stands_by)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await add_topic_rule(two, flow, added)
                assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
                port = one.endpoint.rpartition(":")[2]
                assert port in (refused.value.details() or ""), "it says whom to ask"

                assert await command("rules", "add", f"{east}->{west}", "topics", added, asked=two) == 0
                await eventually(lambda: _are_ready(two, {first, added}))
                assert "rules_updated" in one.log(), "the owner has done it"
                assert "rules_updated" not in two.log()
                assert "target_changed" not in two.log()
                assert not (await flow_status(one)).reason

                await one.kill()
                await create(source, later)
                await eventually(lambda: _are_ready(two, {first, added, later}))
                assert not (await flow_status(two)).reason
                await add_topic_rule(two, flow, "one-more")
                assert 'flow_owned"' in two.log()


async def command(*words: str, asked: ServiceProcess) -> int:
    """A command of the command line that calls this process; its exit code."""
    return (await twinlog(*words, "--endpoint", f"{asked.name}={asked.endpoint}")).returncode


async def _are_ready(service: ServiceProcess, names: set[str]) -> bool:
    return await ready_topics(service) == names


async def emitted(service: ServiceProcess) -> int:
    stub = HeartbeatServiceStub(service.channel)
    (delay,) = (await stub.ListDelays(heartbeat.ListDelaysRequest(), timeout=CALL_SECONDS)).delays
    return delay.emitted


async def test_a_second_heartbeat_stays_silent_until_the_first_has_left(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    text = properties(kafka_pair, unique_name("east"), unique_name("west"))
    async with run_service("heartbeat", tmp_path / "one", text) as one:
        await eventually(lambda: _emits(one, 0))
        async with run_service("heartbeat", tmp_path / "two", text) as two:
            await eventually(lambda: "flow_owned_elsewhere" in two.log())
            silent_since = await emitted(two)
            await eventually(lambda: _emits(one, 20))
            # One beat may have been on its way when the owner became known.
            assert await emitted(two) <= silent_since + 1
            await one.kill()
            await eventually(lambda: _emits(two, silent_since + 1))


async def _emits(service: ServiceProcess, more_than: int) -> bool:
    return await emitted(service) > more_than


async def test_a_second_checkpoint_works_only_once_the_first_is_gone(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    east, west = unique_name("east"), unique_name("west")
    flow = types_pb2.Flow(source=east, target=west)
    text = properties(kafka_pair, east, west)
    text += "checkpoints.topic.replication.factor = 1\n"
    async with run_service("checkpoint", tmp_path / "one", text) as one:
        await eventually(lambda: "checkpoints_restored" in one.log())
        async with run_service("checkpoint", tmp_path / "two", text) as two:
            await eventually(lambda: "flow_owned_elsewhere" in two.log())
            assert "checkpoints_restored" not in two.log()
            request = checkpoint.PlanMoveRequest(flow=flow, kind=checkpoint.MOVE_KIND_FAILOVER)
            with pytest.raises(grpc.aio.AioRpcError, match="served by another process"):
                async for _ in CheckpointServiceStub(two.channel).PlanMove(request, timeout=CALL_SECONDS):
                    pass
            async with open_to_owner(two.endpoint, lambda _: None) as channel:
                stub = CheckpointServiceStub(channel)
                told = [each async for each in stub.PlanMove(request, timeout=CALL_SECONDS)]
                assert told[-1].plan.flow == flow
            listed = checkpoint.ListGroupsRequest(from_owner_of=flow)
            with pytest.raises(grpc.aio.AioRpcError, match="served by another process"):
                await CheckpointServiceStub(two.channel).ListGroups(listed, timeout=CALL_SECONDS)
            assert await command("groups", asked=two) == 0
            await one.kill()
            await eventually(lambda: "checkpoints_restored" in two.log())
