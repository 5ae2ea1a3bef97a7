"""checkpoint as a process of its own against two real clusters, asked over gRPC."""

from pathlib import Path

import grpc
import pytest

from integration.checkpoint.checkpoint_rig import Ends, mirror
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1.types_pb2 import Flow
from twinlog.testing.brokers import KafkaPair, eventually
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess, run_service
from twinlog.wire import Checkpoint
from twinlog_checkpoint.translation.sync_history_log import SAVE_AFTER_SYNCS


async def test_checkpoints_appear_and_idle_groups_get_their_offsets(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    async with mirror(Ends.of(kafka_pair), "sync.group.offsets.enabled = true") as flow:
        await flow.fill(range(50), ahead=7)
        await flow.sync(0, 7)
        await flow.sync(40, 47)
        await flow.commit(40)
        async with run_service("checkpoint", tmp_path, flow.properties) as service:
            emitted = await eventually(flow.checkpoints)
            assert emitted == [
                Checkpoint(group=flow.group, partition=flow.copy, upstream_offset=40, downstream_offset=47)
            ]

            async def committed() -> bool:
                return await flow.committed_on_target() == 47

            await eventually(committed)

            async def shown() -> bool:
                (row,) = await flow.rows(service)
                return row.committed_on_target and row.downstream_offset == 47

            await eventually(shown)


async def test_a_restart_emits_nothing_twice_and_goes_on(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    async with mirror(Ends.of(kafka_pair)) as flow:
        await flow.fill(range(50))
        await flow.sync(0, 0)
        await flow.sync(40, 40)
        await flow.commit(40)
        async with run_service("checkpoint", tmp_path / "first", flow.properties) as service:
            await eventually(flow.checkpoints)
            await service.kill()
        before = await flow.checkpoints()
        async with run_service("checkpoint", tmp_path / "second", flow.properties) as service:

            async def seen() -> bool:
                return bool(await flow.rows(service))

            await eventually(seen)
            assert await flow.checkpoints() == before
            await flow.sync(49, 49)
            await flow.commit(49)

            async def went_on() -> bool:
                return len(await flow.checkpoints()) == len(before) + 1

            await eventually(went_on)
        assert (await flow.checkpoints())[-1].downstream_offset == 49


async def test_a_start_takes_what_was_kept_of_many_syncs_and_answers_the_same(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    async with mirror(Ends.of(kafka_pair)) as flow:
        await flow.fill(range(50))
        others = [(f"other-{number % 100}", number) for number in range(SAVE_AFTER_SYNCS)]
        await flow.many_syncs(others)
        await flow.sync(40, 40)
        await flow.commit(41)
        answers = []
        for start in ("first", "second"):
            async with run_service("checkpoint", tmp_path / start, flow.properties) as service:

                async def exact(service: ServiceProcess = service) -> bool:
                    return [row.downstream_offset for row in await flow.rows(service)] == [41]

                await eventually(exact)
                answers.append([row.downstream_offset for row in await flow.rows(service)])
                done = "sync_history_saved" if start == "first" else "sync_history_taken"

                def kept(service: ServiceProcess = service, done: str = done) -> bool:
                    return done in service.log()

                await eventually(kept)
        assert answers[0] == answers[1]


async def test_it_serves_with_the_source_away_and_says_so(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    async with mirror(Ends.of(kafka_pair)) as flow:
        config = flow.properties.replace(kafka_pair.a.bootstrap_servers, "127.0.0.1:1")
        async with run_service("checkpoint", tmp_path, config) as service:
            stub = CheckpointServiceStub(service.channel)

            async def told() -> bool:
                answer = await stub.ListGroups(pb2.ListGroupsRequest(), timeout=CALL_SECONDS)
                states = {status.alias: status for status in answer.clusters}
                return states[flow.b].reachable and bool(states[flow.a].reason) and not answer.ready_flows

            await eventually(told)


async def test_an_unknown_flow_is_named(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    async with (
        mirror(Ends.of(kafka_pair)) as flow,
        run_service("checkpoint", tmp_path, flow.properties) as service,
    ):
        stub = CheckpointServiceStub(service.channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ListGroups(
                pb2.ListGroupsRequest(flow=Flow(source="x", target=flow.b)), timeout=CALL_SECONDS
            )
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert f"{flow.a}->{flow.b}" in (refused.value.details() or "")
