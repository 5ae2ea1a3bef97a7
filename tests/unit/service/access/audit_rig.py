"""Calls of methods that change something, and the lines of the audit log that they leave."""

import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import grpc
from google.protobuf.message import Message
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.batches.bodies import encode_body
from twinlog.model import Flow, TopicPartition
from twinlog.service.clusters import Clusters
from twinlog.service.interceptors import RpcBoundary
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_checkpoint.api.servicer import CheckpointServicer
from twinlog_source.api.servicer import SourceServicer
from twinlog_source.driver.calibration import Calibration
from twinlog_source.driver.commands import FlowOperations
from twinlog_source.driver.moves import PositionMoves
from twinlog_source.records.changing import Changed
from twinlog_source.records.trial import TransformTrial, Tried
from unit.checkpoint.mirrored_logs import ORIGIN
from unit.checkpoint.moves.move_rig import MoveRig, move_rig
from unit.checkpoint.service_rig import CheckpointServiceRig
from unit.service.access.test_roles import METHODS, path
from unit.source.driver.test_moves import Task, moves_of
from unit.source.flow_rig import FlowRig

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

    async def write(self, _answer: object) -> None:
        """Nor of answers that a method writes itself."""

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


async def sent(*requests: Message) -> AsyncIterator[Message]:
    for request in requests:
        yield request


@dataclass
class AuditRig:
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
        return handler.stream_stream or handler.stream_unary

    async def call(self, method: Callable[..., Any], request: Message) -> Any:
        handler = await self._handler(method)
        return await handler(sent(request), Caller())

    async def talk(self, method: Callable[..., Any], *requests: Message) -> None:
        """Of a method that takes a stream, to its end."""

        async def found(_details: object) -> Any:
            return grpc.stream_stream_rpc_method_handler(method)

        boundary = RpcBoundary(service="test", meter=METER)
        handler: Any = await boundary.intercept_service(found, Details(PATHS[method.__name__]))
        await handler.stream_stream(sent(*requests), Caller())

    async def stream(self, method: Callable[..., Any], request: Message) -> AsyncIterator[Any]:
        handler = await self._handler(method)
        async with aclosing(handler(sent(request), Caller())) as answers:
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


# -- source ------------------------------------------------------------------------------------------


@dataclass
class SourceRig:
    servicer: SourceServicer
    task: Task
    operations: FlowOperations


class FakeTrial:
    """Spark upper-cases the one record that there is."""

    async def try_last(self, topic: str, partition: int | None, last: int) -> list[Tried]:
        assert (topic, partition, last) == ("orders", None, 1)
        before, after = ((7, 0, encode_body(b"k", value)) for value in (b"v", b"V"))
        tried = Changed(passed={7: after})
        return [Tried(partition=TopicPartition(topic, 0), records=[before], changed=tried)]


async def calibrated(*_names: object, **_how: object) -> Calibration:
    speeds = ((1, 10e6), (2, 19e6), (4, 20e6))
    return Calibration(source_seconds=0.001, target_seconds=0.06, bytes_per_second=speeds)


async def source_service(stack: AsyncExitStack) -> SourceRig:
    rig = FlowRig(stack=stack)
    moves, task = await moves_of(rig)
    driver = replace(moves.driver, owned=True)
    flow = Flow("A", "B")
    operations = FlowOperations(driver=driver, clock=rig.clock)
    servicer = SourceServicer(
        {flow: operations},
        moves={flow: PositionMoves(driver=driver, source=rig.source)},
        trials={flow: cast("TransformTrial", FakeTrial())},
        calibrate=calibrated,
        clusters=Clusters(
            {}, open_cluster=lambda _config, _timeout: FakeCluster(), stack=stack, clock=rig.clock
        ),
    )
    return SourceRig(servicer=servicer, task=task, operations=operations)


# -- checkpoint --------------------------------------------------------------------------------------


@dataclass
class MovesRig:
    rig: MoveRig
    service: CheckpointServiceRig

    @property
    def servicer(self) -> CheckpointServicer:
        return self.service.servicer


def options(**fields: Any) -> checkpoint.MoveOptions:
    return checkpoint.MoveOptions(by="ann", **fields)


def failover_request(**fields: Any) -> checkpoint.RunFailoverRequest:
    return checkpoint.RunFailoverRequest(flow=FLOW, options=options(**fields))


async def with_moves(
    body: Callable[[MovesRig], Awaitable[None]], *, backlog: int = 0, groups: int = 1
) -> None:
    async with move_rig() as rig:
        for number in range(groups):
            rig.logs.source.set_group(f"g{number}", {ORIGIN: 100})
        rig.logs.produce(backlog)
        service = CheckpointServiceRig(rig.fakes, rig.parts)
        async with service.hosting():
            await body(MovesRig(rig=rig, service=service))
