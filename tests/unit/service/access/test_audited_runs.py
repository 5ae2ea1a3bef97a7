"""What continues after its call ended is on record when it begins and when it ends."""

import asyncio
from contextlib import AsyncExitStack

import grpc
import pytest

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.service.access.audit import NOT_KNOWN, begun, changed
from twinlog.testing.brokers import eventually
from unit.checkpoint.moves.move_rig import move_rig
from unit.checkpoint.service_rig import CheckpointServiceRig
from unit.service.access.audit_rig import (
    FLOW,
    SCOPE,
    AuditRig,
    MovesRig,
    failover_request,
    source_service,
    with_moves,
)
from unit.source.flow_rig import P


async def test_a_run_is_on_record_when_it_begins_and_when_it_ends_though_its_caller_hung_up(
    port: AuditRig,
) -> None:
    async def body(moves: MovesRig) -> None:
        await port.hang_up_at("CHECK", moves.servicer.RunFailover, failover_request(fence=True))
        (line,) = port.lines()
        assert (line["method"], line["outcome"]) == ("RunFailover", "STARTED")
        await moves.rig.copy()
        await moves.service.moves.host.latest().ended()

    await with_moves(body, backlog=40)
    _, ended = port.lines()
    assert (ended["method"], ended["outcome"], ended["after"]["offsets"]) == ("RunFailover", "OK", 1)


async def test_a_run_that_fails_says_how_far_it_came(port: AuditRig) -> None:
    async def body(moves: MovesRig) -> None:
        await port.hang_up_at("DRAIN", moves.servicer.RunFailover, failover_request(fence=True))
        await port.call(moves.servicer.CancelMove, checkpoint.CancelMoveRequest(flow=FLOW, by="bob"))

    await with_moves(body, backlog=40)
    started, ended = port.lines("RunFailover")
    assert (started["outcome"], ended["outcome"]) == ("STARTED", "MOVE_CANCELLED")
    assert ended["before"] == {"steps": {}}
    assert ended["after"]["steps"]["FENCE"].startswith("DONE: ")
    assert ended["after"]["steps"]["DRAIN"].startswith("STARTED: ")


async def test_a_run_that_is_refused_has_one_line(port: AuditRig) -> None:
    async def body(moves: MovesRig) -> None:
        await port.hang_up_at("DRAIN", moves.servicer.RunFailover, failover_request(fence=True))
        with pytest.raises(grpc.aio.AbortError):
            await port.whole(moves.servicer.RunFailback, checkpoint.RunFailbackRequest(flow=FLOW))
        await port.call(moves.servicer.CancelMove, checkpoint.CancelMoveRequest(flow=FLOW, by="bob"))

    await with_moves(body, backlog=40)
    (line,) = port.lines("RunFailback")
    assert line["outcome"] == "MOVE_IN_PROGRESS"


async def test_the_outcome_of_a_run_that_nobody_began_by_a_call_has_no_line(port: AuditRig) -> None:
    changed(before=1, after=2)
    begun().ended("OK", before=1, after=2)
    assert port.lines() == []


async def test_a_run_that_the_service_does_not_begin_any_more_has_its_outcome(port: AuditRig) -> None:
    async with move_rig() as rig:
        service = CheckpointServiceRig(rig.fakes, rig.parts)

        async def ask() -> None:
            with pytest.raises(grpc.aio.AbortError):
                await port.whole(service.servicer.RunFailover, failover_request())

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ask(), name="stream")
            await eventually(port.lines)
            service.stop.set()
            await service.moves.host.run(service.stop)
    started, ended = port.lines("RunFailover")
    assert (started["outcome"], ended["outcome"]) == ("STARTED", "STOPPING")


async def test_positions_that_may_be_set_are_on_record_though_the_caller_disconnected(port: AuditRig) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        service.task.says(position=1)
        request = source.SetPositionsRequest(scope=SCOPE, target=source.PositionTarget(offset=3), by="ann")
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(port.call(service.servicer.SetPositions, request), name="call")
            await eventually(service.operations.driver.state.moves.ordered.is_set)
            call.cancel()
    (line,) = port.lines()
    assert (line["outcome"], line["before"], line["after"]) == ("CANCELLED", {str(P): 1}, NOT_KNOWN)


async def test_a_line_of_many_groups_is_bounded(port: AuditRig) -> None:
    groups = 300

    async def body(moves: MovesRig) -> None:
        await port.whole(moves.servicer.RunFailover, failover_request())

    await with_moves(body, groups=groups)
    _, ended = port.lines("RunFailover")
    assert ended["after"]["offsets"] == groups
    assert 0 < len(ended["after"]["committed_offsets"]) < groups
