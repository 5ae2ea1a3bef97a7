"""Commands while the target hangs: they fail in time, name it, and have no effect when it comes back."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from integration.source.source_rig import Rig, open_rig
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.testing.brokers import KafkaPair, eventually
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess
from twinlog_source.log.journal import COMMAND_SECONDS


async def test_a_pause_that_a_hung_target_did_not_take_never_takes_effect(
    kafka_pair: KafkaPair,
    start_cluster: Callable[[ClusterSpec], BlockingCluster],
    tmp_path: Path,
    unique_topic: str,
) -> None:
    target = await asyncio.to_thread(start_cluster, ClusterSpec(name="hangs"))
    topic = unique_topic
    async with open_rig(kafka_pair.a, target, tmp_path) as rig:
        rig.extra["topics"] = topic
        await rig.create(topic)
        await rig.produce(topic, [b"before"])
        async with rig.configsync() as configsync:
            async with rig.running(configsync) as service:
                await rig.same(topic)
                await asyncio.to_thread(target.pause_broker, 1)
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await pause(rig, service, topic)
                await asyncio.to_thread(target.resume_broker, 1)
                assert "nothing was changed" in str(failed.value.details())
                assert f"cluster {rig.b}" in str(failed.value.details())
                await rig.produce(topic, [b"after"])
                await rig.same(topic)

                async def nothing_is_left_to_retract() -> bool:
                    """The owner writes what is in force behind the lost record with its next signature."""
                    assert not (await rig.flow_status(service)).pauses
                    return await rig.is_last_control(topic, value=None)

                await eventually(nothing_is_left_to_retract)
            async with rig.running(configsync) as service:
                await rig.produce(topic, [b"after the restart"])
                await rig.same(topic)
                assert not (await rig.flow_status(service)).pauses


async def pause(rig: Rig, service: ServiceProcess, topic: str) -> None:
    scope = pb.Scope(flow=rig.flow, source_topic=topic)
    request = pb.PauseReplicationRequest(scope=scope, by="test")
    timeout = CALL_SECONDS + 2 * COMMAND_SECONDS
    await SourceServiceStub(service.channel).PauseReplication(request, timeout=timeout)
