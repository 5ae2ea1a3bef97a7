"""Each method that changes something says in the audit log what was before and what is after.

The methods are those of the protos that need an operator or an admin: a new one has to be added to `CALLS`.
"""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as sync
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.model import Flow
from twinlog.service.access.audit import MAX_SHOWN, NOT_KNOWN, begun, changed
from twinlog.service.access.roles import is_change
from twinlog.service.clusters import Clusters
from twinlog.service.interceptors import RpcBoundary
from twinlog.telemetry.logging import configure_logging
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_checkpoint.api.servicer import CheckpointServicer
from twinlog_source.api.partition_feed import PartitionBoard
from twinlog_source.api.servicer import SourceServicer
from twinlog_source.driver.commands import FlowOperations
from twinlog_source.driver.moves import PositionMoves
from twinlog_source.log.gaps import Gap
from unit.access.test_roles import METHODS, path
from unit.checkpoint.mirrored_logs import ORIGIN
from unit.checkpoint.moves.test_moves import MoveRig, move_rig
from unit.checkpoint.service_rig import ServiceOnFakes
from unit.configsync.api.test_pages import served
from unit.source.driver.test_moves import Task, moves_of, order_number
from unit.source.flow_rig import FlowRig, P

FLOW = types_pb2.Flow(source="A", target="B")
SCOPE = source.Scope(flow=FLOW)
METER = NoOpMeterProvider().get_meter("test")
PATHS = {method.name: path(method) for method in METHODS}
Line = dict[str, Any]


class Caller:
    """A call's context."""

    def peer(self) -> str:
        return "ipv4:10.0.0.1:1"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("x-request-id", "r-1"),)

    async def send_initial_metadata(self, _metadata: object) -> None:
        """It hears nothing of it."""

    def time_remaining(self) -> None:
        """It waits for as long as it takes."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.FAILED_PRECONDITION

    async def abort_with_status(self, status: Any) -> None:
        raise grpc.aio.AbortError(status.details)


class Details(grpc.HandlerCallDetails):
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


@dataclass
class Port:
    """Calls methods as the port of a service does, and reads the audit log."""

    log: io.StringIO
    directory: Path

    async def _handler(self, method: Any) -> Any:
        async def found(_details: object) -> Any:
            make = getattr(grpc, f"unary_{kind}_rpc_method_handler")
            return make(method)

        kind = "stream" if method.__name__.startswith("Run") else "unary"
        boundary = RpcBoundary(service="test", meter=METER)
        handler = await boundary.intercept_service(found, Details(PATHS[method.__name__]))
        return handler.unary_stream or handler.unary_unary

    async def call(self, method: Callable[..., Any], request: Message) -> Any:
        handler = await self._handler(method)
        return await handler(request, Caller())

    async def stream(self, method: Callable[..., Any], request: Message) -> AsyncIterator[Any]:
        handler = await self._handler(method)
        async with aclosing(handler(request, Caller())) as answers:
            async for answer in answers:
                yield answer

    async def whole(self, method: Callable[..., Any], request: Message) -> list[Any]:
        return [each async for each in self.stream(method, request)]

    async def hang_up_at(self, step: str, method: Callable[..., Any], request: Message) -> None:
        async with aclosing(self.stream(method, request)) as answers:  # type: ignore[type-var]
            async for answer in answers:
                if answer.step.name == step:
                    return

    def lines(self, method: str = "") -> list[Line]:
        found = [json.loads(line) for line in self.log.getvalue().splitlines() if '"audit"' in line]
        return [line for line in found if line["event"] == "audit" and method in ("", line["method"])]


@pytest.fixture
def port(tmp_path: Path, log_stream: io.StringIO) -> Port:
    configure_logging(service="s", version="1", format="json", level="error", stream=log_stream)
    return Port(log=log_stream, directory=tmp_path)


# -- source ------------------------------------------------------------------------------------------


@dataclass
class SourceUnderTest:
    servicer: SourceServicer
    task: Task
    operations: FlowOperations


async def source_service(stack: AsyncExitStack) -> SourceUnderTest:
    rig = FlowRig(stack=stack)
    moves, task = await moves_of(rig)
    driver = replace(moves.driver, _owned=True)
    flow = Flow("A", "B")
    operations = FlowOperations(driver=driver, clock=rig.clock)
    servicer = SourceServicer(
        {flow: operations},
        moves={flow: PositionMoves(driver=driver, source=rig.source, clock=rig.clock)},
        board=PartitionBoard({flow: driver}, history_id="h", meter=METER, clock=rig.clock),
        clusters=Clusters(
            {}, open_cluster=lambda _config, _timeout: FakeCluster(), stack=stack, clock=rig.clock
        ),
        stop=asyncio.Event(),
    )
    return SourceUnderTest(servicer=servicer, task=task, operations=operations)


async def pause(port: Port) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        request = source.PauseReplicationRequest(scope=SCOPE, by="ann")
        await port.call(service.servicer.PauseReplication, request)
    (line,) = port.lines("PauseReplication")
    assert (line["before"], line["after"]["pauses"][0]["by"]) == ([], "ann")


async def resume(port: Port) -> None:
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


async def throttle(port: Port) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        request = source.SetThrottleRequest(scope=SCOPE, bytes_per_second=1000, by="ann")
        await port.call(service.servicer.SetThrottle, request)
    (line,) = port.lines("SetThrottle")
    assert (line["before"], line["after"]["throttles"][0]["bytes_per_second"]) == ([], "1000")


async def positions(port: Port) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        service.task.says(position=1)

        async def confirm() -> None:
            ordered = await eventually(service.task.heard)
            service.task.says(position=3, repositioned=order_number(ordered))

        request = source.SetPositionsRequest(scope=SCOPE, target=source.PositionTarget(offset=3), by="ann")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(confirm(), name="task")
            await port.call(service.servicer.SetPositions, request)
    (line,) = port.lines("SetPositions")
    assert (line["before"], line["after"]) == ({str(P): 1}, {str(P): 3})


async def acknowledge(port: Port) -> None:
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


# -- configsync --------------------------------------------------------------------------------------


async def apply(port: Port) -> None:
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


async def rules(port: Port) -> None:
    flow, stub, _ = served(port.directory, 1)
    change = sync.RuleChange(key="twinlog.sync.mode", operation=sync.RULE_OPERATION_SET, value="manual")
    await port.call(stub.servicer.UpdateRules, sync.UpdateRulesRequest(flow=FLOW, changes=[change]))
    (line,) = port.lines("UpdateRules")
    assert line["before"] == {"version": 0, "twinlog.sync.mode": "automatic"}
    assert line["after"] == {"version": 1, "twinlog.sync.mode": "manual"}
    assert flow.passes.memory.changes[-1].method == "UpdateRules"


# -- checkpoint --------------------------------------------------------------------------------------


@dataclass
class MovesUnderTest:
    rig: MoveRig
    service: ServiceOnFakes

    @property
    def servicer(self) -> CheckpointServicer:
        return self.service.servicer


def options(**fields: Any) -> checkpoint.MoveOptions:
    return checkpoint.MoveOptions(by="ann", **fields)


def failover_request(**fields: Any) -> checkpoint.RunFailoverRequest:
    return checkpoint.RunFailoverRequest(flow=FLOW, options=options(**fields))


async def with_moves(
    body: Callable[[MovesUnderTest], Awaitable[None]], *, backlog: int = 0, groups: int = 1
) -> None:
    async with move_rig() as rig:
        for number in range(groups):
            rig.logs.source.set_group(f"g{number}", {ORIGIN: 100})
        rig.logs.produce(backlog)
        service = ServiceOnFakes(rig.fakes, rig.parts)
        async with service.hosting():
            await body(MovesUnderTest(rig=rig, service=service))


async def failover(port: Port) -> None:
    async def body(moves: MovesUnderTest) -> None:
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


async def failback(port: Port) -> None:
    async def body(moves: MovesUnderTest) -> None:
        await port.whole(moves.servicer.RunFailover, failover_request())
        request = checkpoint.RunFailbackRequest(flow=FLOW, options=options(accept_loss=True))
        await port.whole(moves.servicer.RunFailback, request)

    await with_moves(body)
    started, ended = port.lines("RunFailback")
    assert (started["outcome"], ended["outcome"]) == ("STARTED", "OK")
    assert ended["after"]["kind"] == "failback"
    assert ended["before"]["committed_offsets"].keys() == ended["after"]["committed_offsets"].keys()


async def cancel(port: Port) -> None:
    async def body(moves: MovesUnderTest) -> None:
        await port.hang_up_at("DRAIN", moves.servicer.RunFailover, failover_request(fence=True))
        request = checkpoint.CancelMoveRequest(flow=FLOW, by="bob")
        await port.call(moves.servicer.CancelMove, request)

    await with_moves(body, backlog=40)
    (line,) = port.lines("CancelMove")
    assert (line["before"]["running"], line["before"]["by"]) == (True, "ann")
    assert (line["after"]["running"], line["after"]["reason"]) == (False, "MOVE_CANCELLED")


async def abort(port: Port) -> None:
    async def body(moves: MovesUnderTest) -> None:
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


CALLS: dict[str, Callable[[Port], Awaitable[None]]] = {
    "PauseReplication": pause,
    "ResumeReplication": resume,
    "SetThrottle": throttle,
    "SetPositions": positions,
    "AcknowledgeGaps": acknowledge,
    "ApplySync": apply,
    "UpdateRules": rules,
    "RunFailover": failover,
    "RunFailback": failback,
    "CancelMove": cancel,
    "AbortMove": abort,
}


@pytest.mark.parametrize("method", sorted(method.name for method in METHODS if is_change(path(method))))
async def test_every_change_says_what_was_before_and_what_is_after(port: Port, method: str) -> None:
    assert method in CALLS, f"{method} changes something: call `changed` in it, and add its call here"
    await CALLS[method](port)
    last = port.lines(method)[-1]
    assert last["outcome"] == "OK"
    assert {"before", "after"} <= last.keys()
    assert last["before"] != last["after"]
    for shown in (last["before"], last["after"]):
        assert isinstance(shown, dict | list)
        assert len(json.dumps(shown)) <= MAX_SHOWN


async def test_a_run_is_on_record_when_it_begins_and_when_it_ends_though_its_caller_hung_up(
    port: Port,
) -> None:
    async def body(moves: MovesUnderTest) -> None:
        await port.hang_up_at("CHECK", moves.servicer.RunFailover, failover_request(fence=True))
        (line,) = port.lines()
        assert (line["method"], line["outcome"]) == ("RunFailover", "STARTED")
        await moves.rig.copy()
        await moves.service.moves.host.latest().ended()

    await with_moves(body, backlog=40)
    _, ended = port.lines()
    assert (ended["method"], ended["outcome"], ended["after"]["offsets"]) == ("RunFailover", "OK", 1)


async def test_a_run_that_fails_says_how_far_it_came(port: Port) -> None:
    async def body(moves: MovesUnderTest) -> None:
        await port.hang_up_at("DRAIN", moves.servicer.RunFailover, failover_request(fence=True))
        await port.call(moves.servicer.CancelMove, checkpoint.CancelMoveRequest(flow=FLOW, by="bob"))

    await with_moves(body, backlog=40)
    started, ended = port.lines("RunFailover")
    assert (started["outcome"], ended["outcome"]) == ("STARTED", "MOVE_CANCELLED")
    assert ended["before"] == {"steps": {}}
    assert ended["after"]["steps"]["FENCE"].startswith("DONE: ")
    assert ended["after"]["steps"]["DRAIN"].startswith("PROGRESS: ")


async def test_a_run_that_is_refused_has_one_line(port: Port) -> None:
    async def body(moves: MovesUnderTest) -> None:
        await port.hang_up_at("DRAIN", moves.servicer.RunFailover, failover_request(fence=True))
        with pytest.raises(grpc.aio.AbortError):
            await port.whole(moves.servicer.RunFailback, checkpoint.RunFailbackRequest(flow=FLOW))
        await port.call(moves.servicer.CancelMove, checkpoint.CancelMoveRequest(flow=FLOW, by="bob"))

    await with_moves(body, backlog=40)
    (line,) = port.lines("RunFailback")
    assert line["outcome"] == "MOVE_IN_PROGRESS"


async def test_the_outcome_of_a_run_that_nobody_began_by_a_call_has_no_line(port: Port) -> None:
    changed(before=1, after=2)
    begun().ended("OK", before=1, after=2)
    assert port.lines() == []


async def test_a_run_that_the_service_does_not_begin_any_more_has_its_outcome(port: Port) -> None:
    async with move_rig() as rig:
        service = ServiceOnFakes(rig.fakes, rig.parts)

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


async def test_positions_that_may_be_set_are_on_record_though_the_caller_disconnected(port: Port) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        service.task.says(position=1)
        request = source.SetPositionsRequest(scope=SCOPE, target=source.PositionTarget(offset=3), by="ann")
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(port.call(service.servicer.SetPositions, request), name="call")
            await eventually(service.task.heard)
            call.cancel()
    (line,) = port.lines()
    assert (line["outcome"], line["before"], line["after"]) == ("CANCELLED", {str(P): 1}, NOT_KNOWN)


async def test_a_line_of_many_groups_is_bounded(port: Port) -> None:
    groups = 300

    async def body(moves: MovesUnderTest) -> None:
        await port.whole(moves.servicer.RunFailover, failover_request())

    await with_moves(body, groups=groups)
    _, ended = port.lines("RunFailover")
    assert ended["after"]["offsets"] == groups
    assert 0 < len(ended["after"]["committed_offsets"]) < groups
