"""The control stream between a task and its driver, over real gRPC: a task of an epoch that is over ends, and
is not run again."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2_grpc
from opentelemetry.metrics import NoOpMeterProvider

from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.clock import SystemClock
from twinlog.config import Address, load
from twinlog.model import Flow, TopicPartition
from twinlog.service.errors_wire import error_from_rpc
from twinlog.testing.brokers import eventually
from twinlog_source.config import SourceFlow, source_flows
from twinlog_source.driver.epoch import Epoch, Slot, SlotState
from twinlog_source.driver.stream.task_commands import Start
from twinlog_source.driver.stream.task_settings import TaskSettings
from twinlog_source.driver.stream.worker_port import WorkerPort
from twinlog_source.driver.stream.worker_servicer import WorkerServicer
from twinlog_source.partitions.reports import TaskReport
from twinlog_source.reasons import EndReason
from twinlog_source.task.stream.session import DRIVER_NAME, Outcome, TaskConnection

FLOW = Flow("A", "B")
PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class Host:
    """A driver with one epoch; it says when it was asked to prepare a task."""

    epoch: Epoch
    flow: SourceFlow
    asked: int = 0
    prepared: asyncio.Event = field(default_factory=asyncio.Event)

    def epoch_of(self, number: int) -> Epoch | None:
        return self.epoch if number == self.epoch.number else None

    def prepare(self, epoch: Epoch, slot: Slot) -> pb.Prepare:
        self.asked += 1
        self.prepared.set()
        return TaskSettings(flow=self.flow).prepare(epoch.number, slot.index, positions_partition_count=1)

    async def rejoin(self, epoch: Epoch, slot: Slot) -> Start:
        return Start()

    async def reopened(self, epoch: Epoch, slot: Slot) -> Mapping[TopicPartition, int]:
        return {}

    async def store_producer(self, slot: Slot, producer_id: int, transactional_id: str) -> None:
        """It is stored."""

    def observe(self, epoch: Epoch, slot: Slot, report: TaskReport) -> None:
        """Nothing is kept."""


@dataclass(slots=True)
class Rig:
    host: Host
    port: int
    certificate: str

    async def task(self, *, connect_timeout_seconds: float = PATIENCE_SECONDS) -> Outcome:
        """One task, as Spark runs it."""
        session = TaskConnection(
            flow=FLOW,
            epoch=self.host.epoch.number,
            slot=0,
            driver_endpoint=f"127.0.0.1:{self.port}",
            driver_certificate=self.certificate,
            token=self.host.epoch.token,
            connect_timeout_seconds=connect_timeout_seconds,
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await session.run()


@asynccontextmanager
async def silent_broker() -> AsyncIterator[int]:
    """Takes connections, and says nothing."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with silent_broker() as broker_port:
        file = tmp_path / "mm2.properties"
        file.write_text(
            f"clusters = A, B\nA.bootstrap.servers = 127.0.0.1:{broker_port}\n"
            f"B.bootstrap.servers = 127.0.0.1:{broker_port}\nA->B.enabled = true\n"
        )
        (flow,) = source_flows(load(file, environ={}))
        epoch = Epoch(flow=FLOW, number=1, plan=((TopicPartition("t", 0),),))
        host = Host(epoch=epoch, flow=flow)
        port = WorkerPort(
            WorkerServicer({FLOW: host}),
            listen=Address(host="127.0.0.1", port=0),
            meter=NoOpMeterProvider().get_meter("test"),
            clock=SystemClock(),
        )
        await port.start()
        try:
            yield Rig(host=host, port=port.number, certificate=port.certificate)
        finally:
            await port.stop()


async def test_a_task_that_comes_to_an_epoch_that_is_over_is_refused_and_returns(rig: Rig) -> None:
    """A task whose stream only ended would count as lost: Spark would run it again, for ever."""
    rig.host.epoch.end("NOT_NEEDED")
    reason, _ = await rig.task()
    assert reason == EndReason.REFUSED
    assert rig.host.asked == 0


async def test_an_epoch_that_ends_while_a_task_gets_ready_ends_the_task(rig: Rig) -> None:
    """Its brokers do not answer: it would take ids over at any later time, from a task of a later epoch."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(rig.task(), name="task")
        await rig.host.prepared.wait()
        rig.host.epoch.end("NOT_NEEDED")
    assert task.result() == (EndReason.EPOCH_OVER, "NOT_NEEDED")
    slot = rig.host.epoch.slots[0]
    assert await eventually(lambda: slot.state is SlotState.WAITING)
    assert slot.final is None, "nobody may take this for the last words of a task that copied"


async def test_a_task_that_always_crashes_waits_longer_each_time(rig: Rig) -> None:
    """Once it crashed several times it is told to get ready later; an end of the epoch does not wait."""
    slot = rig.host.epoch.slots[0]
    slot.losses = 100
    async with asyncio.TaskGroup() as group:
        task = group.create_task(rig.task(), name="task")
        await eventually(lambda: slot.joined == 1)
        rig.host.epoch.end("NOT_NEEDED")
    assert task.result() == (EndReason.EPOCH_OVER, "NOT_NEEDED")
    assert rig.host.asked == 0


async def test_a_task_gives_nothing_to_a_driver_that_is_not_its_own(rig: Rig) -> None:
    """Not even its token: somebody else listens where its driver was."""
    other = WorkerPort(
        WorkerServicer({FLOW: rig.host}),
        listen=Address(host="127.0.0.1", port=0),
        meter=NoOpMeterProvider().get_meter("test"),
        clock=SystemClock(),
    )
    await other.start()
    try:
        impostor = Rig(host=rig.host, port=other.number, certificate=rig.certificate)
        reason, _ = await impostor.task(connect_timeout_seconds=2.0)
    finally:
        await other.stop()
    assert reason == EndReason.LEASE_LOST
    assert rig.host.asked == 0


async def test_operators_calls_are_not_served_where_tasks_come(rig: Rig) -> None:
    trusted = grpc.ssl_channel_credentials(rig.certificate.encode())
    options = (("grpc.ssl_target_name_override", DRIVER_NAME),)
    async with grpc.aio.secure_channel(f"127.0.0.1:{rig.port}", trusted, options) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call: Any = stub.ServerReflectionInfo(timeout=PATIENCE_SECONDS)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
    assert error_from_rpc(refused.value).reason == "WRONG_PORT"
