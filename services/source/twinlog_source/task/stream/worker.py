"""A Python worker of Spark: runs the tasks that its driver orders, of any epoch and flow, on one event loop.

So the tasks of an epoch get ready beside those of the epoch before, in the same workers: no core waits for
them.

Invariant A: a task that is lost or crashes is run again here, and the others continue.

The pipes through which records are changed are the worker's: one that takes longer to open than an epoch
lasts serves the next one.

Invariant B: the worker ends when its driver no longer needs it. When it has lost its driver, its tasks end by
themselves (their leases are over), and a driver that lives runs the worker again.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import grpc
import structlog
import uvloop

from twinlog import __version__
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.api.source.v1 import worker_service_pb2_grpc as pb_grpc
from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.model import Flow
from twinlog.service.rpc import GRPC, Rpc
from twinlog.service.waiting import wait_or_stop
from twinlog.transforms.expressions import Expressions
from twinlog_source.reasons import EndReason
from twinlog_source.records.changing import ChangingOf, MakePipe, kept_pipes
from twinlog_source.records.pipe import PipeJob, TransformFailedError, record_pipe
from twinlog_source.records.reach import towards
from twinlog_source.task.settings import (
    TaskLostError,
    TaskSpec,
    WorkerSpec,
    configure_task_logging,
    give_back_memory,
)
from twinlog_source.task.stream.messages import fill
from twinlog_source.task.stream.session import CHANNEL_OPTIONS, TaskConnection
from twinlog_source.task.writing.spans import export_spans

SIGN_SECONDS = 3.0
"""Time between two signs of life."""
AGAIN_SECONDS = 0.5
"""The wait before a task is run again. A driver makes a task wait longer that was lost several times."""
LONGEST_AGAIN_SECONDS = 10.0
"""The same for a task that its driver repeatedly did not serve."""

log = structlog.get_logger(__name__)


class Connection(Protocol):
    """One connection of a task to its driver."""

    @property
    def was_served(self) -> bool:
        """Whether the driver has sent orders."""
        ...

    async def run(self) -> tuple[str, str]:
        """Return why it ended: reason and message. It ends when the driver is silent for too long."""
        ...


Connect = Callable[[TaskSpec, ChangingOf], Connection]


def connection(spec: TaskSpec, changing: ChangingOf) -> Connection:
    return TaskConnection(spec=spec, changing=changing)


def _pipes_of(spec: WorkerSpec) -> MakePipe:
    if not spec.is_on_cluster:
        return record_pipe
    return partial(record_pipe, reach=partial(towards, spec.driver_endpoint))


def run_worker(spec: WorkerSpec) -> None:
    """Copy until the driver needs the worker no longer. Blocks. Raises TaskLostError when the driver was
    lost; the next run shows whether it still lives."""
    configure_task_logging(spec)
    export_spans()
    try:
        uvloop.run(Worker(spec=spec, connect=connection, make_pipe=_pipes_of(spec)).run())
    finally:
        give_back_memory()


@dataclass(slots=True, kw_only=True)
class Worker:
    spec: WorkerSpec
    connect: Connect
    rpc: Rpc = GRPC
    make_pipe: MakePipe = record_pipe
    again_seconds: float = AGAIN_SECONDS
    _lost: str = ""
    """Why the worker has no driver any more."""
    _signs: asyncio.Queue[pb.WorkerSign] = field(default_factory=asyncio.Queue)
    """What the driver is told next."""
    _jobs: dict[int, "asyncio.Future[TwinlogError | None]"] = field(default_factory=dict)
    """The jobs of pipes, by number: why each has ended."""

    async def run(self) -> None:
        """Return when the driver needs the worker no longer, or does not know it. Raises TaskLostError."""
        trusted = grpc.ssl_channel_credentials(self.spec.driver_certificate.encode())
        async with self.rpc.secure_channel(self.spec.driver_endpoint, trusted, CHANNEL_OPTIONS) as channel:
            stream: Any = pb_grpc.WorkerServiceStub(channel).Work(wait_for_ready=True)
            over = asyncio.Event()
            async with (
                kept_pipes(self._run_pipe, self.make_pipe, tries_again=True) as changing,
                asyncio.TaskGroup() as group,
            ):
                signs = group.create_task(self._give_signs(stream), name="signs of life")
                tasks: set[asyncio.Task[None]] = set()

                def begin(spec: TaskSpec) -> None:
                    task = group.create_task(self._stay(spec, changing, over), name=f"task of {spec.flow}")
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)

                try:
                    await self._follow(stream, begin)
                finally:
                    over.set()
                    signs.cancel()
                if not self._lost:
                    for task in tasks:
                        task.cancel()
        if self._lost:
            raise TaskLostError(self._lost)

    async def _follow(self, stream: Any, begin: Callable[[TaskSpec], None]) -> None:
        """Begin what the driver orders, until it lets the worker go or is lost."""
        limit: float | None = self.spec.connect_timeout_seconds
        try:
            while True:
                async with asyncio.timeout(limit):
                    order = await stream.read()
                limit = None  # gRPC notices a driver that is gone, because signs are sent.
                if order is grpc.aio.EOF:
                    if await stream.code() is not grpc.StatusCode.OK:
                        self._lost = "the driver closed the stream"
                    return
                if order.epoch:
                    begin(self._task_of(order))
                elif order.HasField("pipe_ended"):
                    self._ended(order.pipe_ended)
        except TimeoutError:
            self._lost = f"the driver was silent for {self.spec.connect_timeout_seconds:g} s"
        except grpc.aio.AioRpcError as error:
            if error.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION):
                self._lost = f"the stream of the worker broke: {error.code().name}"

    def _task_of(self, order: pb.TaskOrder) -> TaskSpec:
        return TaskSpec(
            flow=Flow(order.flow.source, order.flow.target),
            epoch=order.epoch,
            slot=order.slot,
            token=order.token,
            worker=self.spec,
        )

    async def _give_signs(self, stream: Any) -> None:
        """Loop until cancelled, or until the stream is over."""
        spec = self.spec
        sign = pb.WorkerSign(
            number=spec.number,
            token=spec.token,
            worker=f"{socket.gethostname()}:{os.getpid()}",
            version=__version__,
        )
        try:
            while True:
                await stream.write(sign)
                sign = pb.WorkerSign()
                with suppress(TimeoutError):
                    async with asyncio.timeout(SIGN_SECONDS):
                        sign = await self._signs.get()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # `_follow` knows why.

    async def _run_pipe(self, flow: Flow, _: Expressions, job: PipeJob) -> None:
        """Have the driver run the job. Raises TwinlogError: why it has ended."""
        ended = self._jobs[job.number] = asyncio.get_running_loop().create_future()
        sign = pb.WorkerSign()
        fill(sign.run_pipe, job)
        fill(sign.run_pipe.flow, flow)
        self._signs.put_nowait(sign)
        try:
            failure = await ended
        finally:
            del self._jobs[job.number]
        if failure is not None:
            raise failure

    def _ended(self, told: pb.PipeEnded) -> None:
        ended = self._jobs.get(told.number)
        if ended is None or ended.done():
            return
        if told.reason == TransformFailedError.default_reason:
            ended.set_result(TransformFailedError(told.message))
        elif told.reason:
            ended.set_result(TransientKafkaError(told.message, reason=told.reason))
        else:
            ended.set_result(None)

    async def _stay(self, spec: TaskSpec, changing: ChangingOf, over: asyncio.Event) -> None:
        """Serve one slot until its driver ends it, or the worker's driver is lost."""
        unserved = 0
        """The number of connections in a row that ended before the driver had sent orders."""
        while True:
            reason, message, was_served = await self._once(spec, changing)
            give_back_memory()
            if reason != EndReason.LEASE_LOST or over.is_set():
                return
            log.info("task_runs_again", flow=str(spec.flow), epoch=spec.epoch, why=message)
            unserved = 0 if was_served else unserved + 1
            seconds = min(self.again_seconds * 2.0 ** min(unserved, 10), LONGEST_AGAIN_SECONDS)
            if await wait_or_stop(over, seconds):
                return

    async def _once(self, spec: TaskSpec, changing: ChangingOf) -> tuple[str, str, bool]:
        """Why its next connection ended, and whether the driver served it."""
        try:
            connected = self.connect(spec, changing)
            return *await connected.run(), connected.was_served
        except Exception as error:
            # The boundary of one flow. Its driver counts the task as lost, and makes the next one wait.
            log.exception("task_crashed", flow=str(spec.flow), epoch=spec.epoch, slot=spec.slot)
            return EndReason.LEASE_LOST, type(error).__name__, True
