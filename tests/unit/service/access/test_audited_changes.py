"""Each method that changes something says in the audit log what was before and what is after.

The methods are those of the protos that need an operator or an admin: a new one has to be added to `CALLS`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import cast

import grpc
import pytest

from twinlog import __version__
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.common.v1 import owners_service_pb2 as owners
from twinlog.api.configsync.v1 import configsync_service_pb2 as sync
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.clock import SystemClock
from twinlog.errors import StateError
from twinlog.service.access.audit import MAX_SHOWN
from twinlog.service.access.roles import is_change
from twinlog.service.clusters import Clusters
from twinlog.service.owner.lease import LeaseState
from twinlog.service.owner.servicer import OwnersServicer
from twinlog.testing.broker import FakeKafka
from twinlog_source.api.servicer import SourceServicer
from twinlog_source.driver.lender import DriverPlace
from twinlog_source.driver.stream.lending import Borrower
from twinlog_source.driver.worker_pool import WorkerPool, Workers
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.orders import ForeignWrite
from unit.checkpoint.mirrored_logs import ORIGIN
from unit.configsync.api.test_pages import served
from unit.service.access.audit_rig import (
    FLOW,
    SCOPE,
    AuditRig,
    MovesRig,
    failover_request,
    options,
    source_service,
    with_moves,
)
from unit.service.access.test_roles import METHODS, path
from unit.service.owner.lease_rig import Process, running, until
from unit.source.flow_rig import P


async def pause(port: AuditRig) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        request = source.PauseReplicationRequest(scope=SCOPE, by="ann")
        await port.call(service.servicer.PauseReplication, request)
    (line,) = port.lines("PauseReplication")
    assert (line["before"], line["after"]["pauses"][0]["by"]) == ([], "ann")


async def resume(port: AuditRig) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        await port.call(
            service.servicer.PauseReplication, source.PauseReplicationRequest(scope=SCOPE, by="ann")
        )
        await port.call(
            service.servicer.ResumeReplication, source.ResumeReplicationRequest(scope=SCOPE, by="bob")
        )
    (line,) = port.lines("ResumeReplication")
    assert (line["before"][0]["by"], line["after"]) == ("ann", {})


async def throttle(port: AuditRig) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        request = source.SetThrottleRequest(scope=SCOPE, bytes_per_second=1000, by="ann")
        await port.call(service.servicer.SetThrottle, request)
    (line,) = port.lines("SetThrottle")
    assert (line["before"], line["after"]["throttles"][0]["bytes_per_second"]) == ([], "1000")


async def move_flow(port: AuditRig) -> None:
    async with (
        FakeKafka() as kafka,
        running(one := Process("box-1:1, process 7, rules ", kafka)),
        running(two := Process("box-2:1, process 7, rules ", kafka)),
    ):
        await until(lambda: one.works and two.lease.state is LeaseState.ELSEWHERE)
        request = owners.MoveFlowRequest(flow=FLOW, to="box-2", dry_run=True)
        await port.call(OwnersServicer({"B": one.membership}).MoveFlow, request)
    (line,) = port.lines("MoveFlow")
    assert (line["before"]["process"], line["after"]["to"]) == ("box-1:1, process 7", "box-2:1, process 7")


async def positions(port: AuditRig) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        service.task.says(position=1)

        request = source.SetPositionsRequest(scope=SCOPE, target=source.PositionTarget(offset=3), by="ann")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.task.ends(), name="task")
            await port.call(service.servicer.SetPositions, request)
    (line,) = port.lines("SetPositions")
    assert (line["before"], line["after"]) == ({str(P): 1}, {str(P): 3})


async def acknowledge(port: AuditRig) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        ledger = service.operations.driver.state.ledger
        count = 25
        for number in range(count):
            await ledger.write(
                Gap(
                    partition=P,
                    from_offset=10 * number,
                    to_offset=10 * number + 3,
                    reason="RETENTION",
                    found_at_ms=1,
                )
            )
        request = source.AcknowledgeGapsRequest(scope=SCOPE, by="ann")
        await port.call(service.servicer.AcknowledgeGaps, request)
    (line,) = port.lines("AcknowledgeGaps")
    before, after = line["before"], line["after"]
    assert (before["gaps"], after["gaps"]) == (count, count)
    assert "acknowledged_by" not in before["first"][0]
    assert after["first"][0]["acknowledged_by"] == "ann"
    assert before["first"][0]["to_offset"] == after["first"][0]["to_offset"] == "3"


async def acknowledge_foreign_writes(port: AuditRig) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        write = ForeignWrite(
            from_offset=5, to_offset=8, records=3, producer_id=7, producer_epoch=0, written_at_ms=0
        )
        service.task.says(position=1, foreign_writes=(write,))
        request = source.AcknowledgeForeignWritesRequest(scope=SCOPE, dry_run=True, by="ann")
        await port.call(service.servicer.AcknowledgeForeignWrites, request)
        request.dry_run = False
        await port.call(service.servicer.AcknowledgeForeignWrites, request)
        rows = service.operations.driver.state.table.rows
        assert rows[P].foreign_records == 0
    tried, line = port.lines("AcknowledgeForeignWrites")
    assert "before" not in tried
    assert line["before"]["first"][0]["records"] == "3"
    assert (line["before"]["copies"], line["after"]) == (1, {"copies": 0})


async def try_transform(port: AuditRig) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        request = source.TryTransformRequest(flow=FLOW, source_topic="orders", last=1)
        answer = await port.call(service.servicer.TryTransform, request)
        (tried,) = answer.records
        assert (tried.before.value, tried.after.value, tried.error) == (b"v", b"V", "")


async def calibrate(port: AuditRig) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        request = source.CalibrateRequest(flow=FLOW, dry_run=True)
        tried = await port.call(service.servicer.Calibrate, request)
        assert (tried.topic.startswith("mm2-calibration.A."), tried.seconds) == (True, 60)
        request.dry_run = False
        answer = await port.call(service.servicer.Calibrate, request)
        assert (answer.max_slots, answer.source_round_trip_ms) == (2, 1.0)
    _, line = port.lines("Calibrate")
    assert (line["before"]["topic"], line["after"]["max_slots"]) == (answer.topic, 2)


# -- configsync --------------------------------------------------------------------------------------


async def apply(port: AuditRig) -> None:
    flow, stub, _ = served(port.directory, 40)
    plan = (await stub.servicer.PlanSync(sync.PlanSyncRequest(flow=FLOW), None)).plan  # type: ignore[arg-type]
    await port.call(stub.servicer.ApplySync, sync.ApplySyncRequest(flow=FLOW, plan_id=plan.plan_id))
    (line,) = port.lines("ApplySync")
    assert line["before"]["plan_id"] == plan.plan_id
    assert (line["after"]["applied"], line["after"]["refused"]) == (plan.change_count, 0)
    # Topics that were not there, and are with one partition.
    assert set(line["before"]["values"]) == {None}
    assert line["after"]["values"][0] == "1"
    assert line["after"]["actions"][0].startswith("CREATE A.t0000 ")
    kept = flow.passes.memory.changes[-1]
    assert (kept.method, kept.after["action 1"]) == ("ApplySync", line["after"]["actions"][0])
    assert len(kept.after) < plan.change_count


async def rules(port: AuditRig) -> None:
    flow, stub, _ = served(port.directory, 1)
    change = sync.RuleChange(key="twinlog.sync.mode", operation=sync.RULE_OPERATION_SET, value="manual")
    await port.call(stub.servicer.UpdateRules, sync.UpdateRulesRequest(flow=FLOW, changes=[change]))
    (line,) = port.lines("UpdateRules")
    assert line["before"] == {"version": 0, "twinlog.sync.mode": "automatic"}
    assert line["after"] == {"version": 1, "twinlog.sync.mode": "manual"}
    assert flow.passes.memory.changes[-1].method == "UpdateRules"


async def failover(port: AuditRig) -> None:
    async def body(moves: MovesRig) -> None:
        await port.whole(moves.servicer.RunFailover, failover_request(fence=True))

    await with_moves(body)
    started, ended = port.lines("RunFailover")
    assert (started["outcome"], ended["outcome"]) == ("STARTED", "OK")
    for fact in ("caller", "role", "via", "peer", "request", "request_id"):
        assert started[fact] == ended[fact]
    assert started["request"]["options"] == {"fence": True, "by": "ann"}
    (name,) = ended["before"]["committed_offsets"]
    assert ended["before"]["committed_offsets"][name] is None
    assert ended["after"]["committed_offsets"][name] > 0
    assert (ended["after"]["offsets"], ended["after"]["fenced"]) == (1, [ORIGIN.topic])


async def failback(port: AuditRig) -> None:
    async def body(moves: MovesRig) -> None:
        await port.whole(moves.servicer.RunFailover, failover_request())
        request = checkpoint.RunFailbackRequest(flow=FLOW, options=options(accept_loss=True))
        await port.whole(moves.servicer.RunFailback, request)

    await with_moves(body)
    started, ended = port.lines("RunFailback")
    assert (started["outcome"], ended["outcome"]) == ("STARTED", "OK")
    assert ended["after"]["kind"] == "failback"
    assert ended["before"]["committed_offsets"].keys() == ended["after"]["committed_offsets"].keys()


async def cancel(port: AuditRig) -> None:
    async def body(moves: MovesRig) -> None:
        await port.hang_up_at("DRAIN", moves.servicer.RunFailover, failover_request(fence=True))
        request = checkpoint.CancelMoveRequest(flow=FLOW, by="bob")
        await port.call(moves.servicer.CancelMove, request)

    await with_moves(body, backlog=40)
    (line,) = port.lines("CancelMove")
    assert (line["before"]["running"], line["before"]["by"]) == (True, "ann")
    assert (line["after"]["running"], line["after"]["reason"]) == (False, "MOVE_CANCELLED")


async def abort(port: AuditRig) -> None:
    async def body(moves: MovesRig) -> None:
        await port.hang_up_at("DRAIN", moves.servicer.RunFailover, failover_request(fence=True))
        await port.call(moves.servicer.CancelMove, checkpoint.CancelMoveRequest(flow=FLOW, by="bob"))
        request = checkpoint.AbortMoveRequest(flow=FLOW, kind=checkpoint.MOVE_KIND_FAILOVER, by="bob")
        await port.call(moves.servicer.AbortMove, request)

    await with_moves(body, backlog=40)
    (line,) = port.lines("AbortMove")
    before, after = line["before"], line["after"]
    assert before["run_id"] == after["run_id"]
    assert (before["aborted"], before["fenced"]) == (False, [ORIGIN.topic])
    assert (after["aborted"], after["fenced"], after["fenced_topics"]) == (True, [], 0)


async def lend(port: AuditRig) -> None:
    async def reach() -> DriverPlace:
        return DriverPlace(endpoint="source:40001", certificate="PEM")

    clock = SystemClock()
    pool = WorkerPool(workers=cast("Workers", None), clock=clock)
    borrower = Borrower(pool=pool, refusal=None, reach=reach, stop=asyncio.Event())
    servicer = SourceServicer({}, moves={}, trials={}, clusters=cast("Clusters", None), borrower=borrower)
    signs = [source.LentCores(version=__version__, cores=cores) for cores in (0, 2)]
    await port.talk(servicer.LendCores, *signs)
    started, ended = port.lines("LendCores")
    assert (started["outcome"], ended["outcome"]) == ("STARTED", "OK")
    assert (ended["before"], ended["after"]) == ({"cores": 2}, {"cores": 0})
    assert not pool.lenders
    borrower.refusal = StateError("no", reason="CORES_NOT_LENT")
    for refused in (borrower, replace(borrower, refusal=None)):
        servicer = SourceServicer({}, moves={}, trials={}, clusters=cast("Clusters", None), borrower=refused)
        with pytest.raises(grpc.aio.AbortError):
            await port.talk(servicer.LendCores, source.LentCores(version="0.0.1"))
        assert port.lines("LendCores").pop()["outcome"] == "CORES_NOT_LENT"
    await port.talk(servicer.LendCores, *signs)


CALLS: dict[str, Callable[[AuditRig], Awaitable[None]]] = {
    "PauseReplication": pause,
    "ResumeReplication": resume,
    "SetThrottle": throttle,
    "MoveFlow": move_flow,
    "SetPositions": positions,
    "AcknowledgeGaps": acknowledge,
    "AcknowledgeForeignWrites": acknowledge_foreign_writes,
    "TryTransform": try_transform,
    "Calibrate": calibrate,
    "ApplySync": apply,
    "UpdateRules": rules,
    "RunFailover": failover,
    "RunFailback": failback,
    "CancelMove": cancel,
    "AbortMove": abort,
    "LendCores": lend,
}


@pytest.mark.parametrize("method", sorted(method.name for method in METHODS if is_change(path(method))))
async def test_every_change_says_what_was_before_and_what_is_after(port: AuditRig, method: str) -> None:
    assert method in CALLS, f"{method} changes something: call `changed` in it, and add its call here"
    await CALLS[method](port)
    last = port.lines(method)[-1]
    assert last["outcome"] == "OK"
    assert {"before", "after"} <= last.keys()
    assert last["before"] != last["after"]
    for shown in (last["before"], last["after"]):
        assert isinstance(shown, dict | list)
        assert len(json.dumps(shown)) <= MAX_SHOWN
