"""The task's end of the control stream: says hello, gets ready, copies when told, reports, and ends by
command or when its lease is over.

The driver is the only authority: a task copies only from positions that it was given.

Invariant: a task that has not heard its driver for `lease` does not commit any more.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from typing import Any

import grpc
import structlog

from twinlog import __version__
from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.api.source.v1 import worker_service_pb2_grpc as pb_grpc
from twinlog.clock import Clock, SystemClock
from twinlog.errors import FatalKafkaError, TransientKafkaError, TwinlogError
from twinlog.kafka.deadline import pause
from twinlog.model import TopicPartition
from twinlog.service.rpc import GRPC, Rpc
from twinlog.service.waiting import wait_or_stop
from twinlog_source.log.facts import FENCED
from twinlog_source.partitions.orders import (
    Answer,
    End,
    NewProducer,
    Reopened,
    Route,
    SetPaused,
    Start,
    TaskCommand,
    TaskReport,
    TaskSetup,
    WantRoutes,
    WhoWrote,
    Writers,
)
from twinlog_source.partitions.planner import SlotLimits
from twinlog_source.reasons import EndReason
from twinlog_source.records.changing import ChangingOf
from twinlog_source.task.assembly import open_copier
from twinlog_source.task.copier import Copier
from twinlog_source.task.reading.answers import Echoes
from twinlog_source.task.settings import TaskSpec
from twinlog_source.task.stream.driver_lease import DriverLease
from twinlog_source.task.stream.messages import Question, command_of, fill, question_message

SHORTEST_REPORT_SECONDS = 1.0
CLOSE_TIMEOUT_SECONDS = 5.0
AWAKE_SECONDS = 0.5


DRIVER_NAME = "driver.twinlog"
"""The name in the driver's certificate: tasks find the driver at any address."""

CHANNEL_OPTIONS = (
    ("grpc.ssl_target_name_override", DRIVER_NAME),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", 32 << 20),
    ("grpc.max_send_message_length", 32 << 20),
    ("grpc.enable_retries", 0),
    # Pings for measuring bandwidth double the cost of an idle stream; the window is large enough without.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 20),
    ("grpc.enable_http_proxy", 0),
)

Outcome = tuple[str, str]
log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class TaskConnection:
    """The conversation of one task with its driver; call `run` once, on its own event loop."""

    spec: TaskSpec
    clock: Clock = field(default_factory=SystemClock)
    rpc: Rpc = GRPC
    changing: ChangingOf
    _lease_seconds: float = 0.0
    _lease: DriverLease | None = None
    """None before the driver has sent its length."""
    _setup: "asyncio.Future[TaskSetup] | None" = None
    _start: "asyncio.Future[Start] | None" = None
    _asked: dict[int, "asyncio.Future[Answer]"] = field(default_factory=dict)
    """The questions that the driver has not answered, by number."""
    _questions: int = 0
    _reopening: int = 0
    """The number of the last question whether the task may continue; 0 = there was none."""
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """gRPC takes one message at a time."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _copier: Copier | None = None
    _outcome: Outcome | None = None

    @property
    def was_served(self) -> bool:
        """Whether the driver has sent orders."""
        return self._lease is not None

    async def run(self) -> Outcome:
        """Return (reason, message): END_OF_EPOCH, EPOCH_OVER (never started), LEASE_LOST, REFUSED, or the
        reason of a failure."""
        loop = asyncio.get_running_loop()
        self._setup, self._start = loop.create_future(), loop.create_future()
        worker = self.spec.worker
        self._lease_seconds = worker.connect_timeout_seconds
        trusted = grpc.ssl_channel_credentials(worker.driver_certificate.encode())
        async with self.rpc.secure_channel(worker.driver_endpoint, trusted, CHANNEL_OPTIONS) as channel:
            stream: Any = pb_grpc.WorkerServiceStub(channel).Run(wait_for_ready=True)
            async with asyncio.TaskGroup() as group:
                work = group.create_task(self._work(stream), name="task work")
                listening = group.create_task(self._listen(stream, work), name="commands")
                awake = group.create_task(self._stay_awake(), name="note that the task is awake")
                await asyncio.wait([work])
                listening.cancel()
                awake.cancel()
        assert self._outcome is not None
        return self._outcome

    # ------------------------------------------------------------------------------------------ listening

    async def _listen(self, stream: Any, work: "asyncio.Task[None]") -> None:
        """Carry out commands until the driver is gone, or ends the epoch before it was started; then end the
        work at once."""
        try:
            while True:
                async with asyncio.timeout(self._lease_seconds):
                    command = await stream.read()
                if self._lease is not None:
                    self._lease.heard(self.clock.monotonic())
                if command is grpc.aio.EOF:
                    lost = EndReason.LEASE_LOST, "the driver closed the control stream"
                    break
                told = command_of(command)
                if isinstance(told, End) and not self._is_started:
                    # Nothing is copied, and the driver waits for no last message. Getting ready would take
                    # the ids from a task of a later epoch.
                    lost = EndReason.EPOCH_OVER, told.reason
                    break
                if told is not None:
                    self._obey(told)
        except TimeoutError:
            lost = EndReason.LEASE_LOST, f"the driver was silent for {self._lease_seconds:g} s"
        except grpc.aio.AioRpcError as error:
            refused = error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)
            reason = EndReason.REFUSED if refused else EndReason.LEASE_LOST
            lost = reason, f"the control stream broke: {error.code().name}"
        if self._outcome is None:
            self._outcome = lost
            work.cancel()

    async def _stay_awake(self) -> None:
        """Loop until cancelled: a long time between two iterations shows that this process was suspended."""
        while True:
            if self._lease is not None:
                self._lease.awake(self.clock.monotonic())
            await pause(AWAKE_SECONDS)

    @property
    def _is_started(self) -> bool:
        return self._start is not None and self._start.done()

    def _obey(self, command: TaskCommand) -> None:
        assert self._setup is not None
        assert self._start is not None
        copier = self._copier
        match command:
            case TaskSetup() if not self._setup.done():
                self._lease_seconds = command.lease_seconds
                self._lease = DriverLease(self._lease_seconds, self.clock.monotonic())
                self._setup.set_result(command)
            case Start() if not self._start.done():
                self._start.set_result(command)
            case End(reason=reason):
                if copier is not None:
                    copier.syncs.nobody_goes_on = reason == EndReason.SHUTDOWN
                self._stop.set()
                words = "the epoch was told to end"
                self._answered(Answer(number=self._reopening, reason=EndReason.EPOCH_OVER, message=words))
            case Answer():
                self._answered(command)
            case SetPaused() if copier is not None:
                copier.set_paused(command)
            case SlotLimits() if copier is not None:
                copier.set_limits(command)

    def _answered(self, answer: Answer) -> None:
        asked = self._asked.pop(answer.number, None)
        if asked is not None and not asked.done():
            asked.set_result(answer)

    # ------------------------------------------------------------------------------------------ working

    async def _work(self, stream: Any) -> None:
        try:
            await stream.write(pb.WorkerReport(hello=self._hello()))
            assert self._setup is not None
            setup = await self._setup
            async with open_copier(
                setup,
                self.spec.flow,
                slot=self.spec.slot,
                clock=self.clock,
                ask_driver=lambda: self._ask_driver(stream),
                admit=lambda producer_id, name: self._admit(stream, producer_id, name),
                who_wrote=lambda writers: self._who_wrote(stream, writers),
                ask_routes=lambda partition, names: self._routes(stream, partition, names),
                may_write=self._may_write,
                changing=partial(self.changing, self.spec.flow),
            ) as copier:
                self._copier = copier
                await self._write(stream, pb.WorkerReport(prepared=pb.Prepared()))
                assert self._start is not None
                report_seconds = max(SHORTEST_REPORT_SECONDS, setup.report_seconds)
                await self._copy(stream, copier, await self._start, report_seconds)
                await self._finish(stream, EndReason.END_OF_EPOCH, "", copier)
        except TwinlogError as error:
            log.warning(
                "task_failed",
                flow=str(self.spec.flow),
                slot=self.spec.slot,
                reason=error.reason,
                error=str(error),
            )
            await self._finish(stream, error.reason, str(error))
        except grpc.aio.AioRpcError as error:
            self._outcome = self._outcome or (
                EndReason.LEASE_LOST,
                f"the control stream broke: {error.code().name}",
            )

    async def _ask_driver(self, stream: Any) -> Mapping[TopicPartition, int]:
        """Ask whether the task may continue, and what the log says of its partitions; the lease bounds the
        wait. Raises KafkaError: refused."""
        if self._stop.is_set():
            raise TransientKafkaError("the epoch was told to end", reason=EndReason.EPOCH_OVER)
        self._reopening = self._questions + 1
        return dict((await self._ask(stream, Reopened())).positions)

    async def _admit(self, stream: Any, producer_id: int, transactional_id: str) -> None:
        """Have the driver store a producer id; the lease bounds the wait. Raises KafkaError if it cannot."""
        await self._ask(stream, NewProducer(producer_id, transactional_id))

    async def _who_wrote(self, stream: Any, writers: Mapping[TopicPartition, Collection[int]]) -> Echoes:
        """Ask which batches of these producers are copies; the lease bounds the wait. Raises KafkaError while
        that is not known."""
        named = starmap(Writers, ((partition, tuple(ids)) for partition, ids in writers.items()))
        echoes: dict[TopicPartition, dict[int, tuple[int, int]]] = {}
        for each in (await self._ask(stream, WhoWrote(tuple(named)))).echoes:
            echoes.setdefault(each.partition, {})[each.producer_id] = each.from_offset, each.to_offset
        return echoes

    async def _routes(
        self, stream: Any, partition: TopicPartition, names: Collection[str]
    ) -> Collection[Route]:
        """Ask where records go that take these routes; the lease bounds the wait. Raises KafkaError."""
        return (await self._ask(stream, WantRoutes(partition, tuple(names)))).routes

    async def _ask(self, stream: Any, question: Question) -> Answer:
        """Raises TwinlogError when the driver refuses, or the stream breaks."""
        self._questions += 1
        number = self._questions
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            await self._write(stream, question_message(number, question))
            answer: Answer = await asked
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise TransientKafkaError("the control stream broke", reason=EndReason.LEASE_LOST) from error
        finally:
            self._asked.pop(number, None)
        if answer.reason == FENCED:
            raise FatalKafkaError(answer.message, reason=FENCED)
        if answer.reason:
            raise TransientKafkaError(answer.message, reason=answer.reason)
        return answer

    def _may_write(self) -> bool:
        return self._lease is not None and self._lease.holds(self.clock.monotonic())

    async def _write(self, stream: Any, report: pb.WorkerReport) -> None:
        async with self._writing:
            await stream.write(report)

    async def _copy(self, stream: Any, copier: Copier, start: Start, report_seconds: float) -> None:
        copier.assign(start)
        failure: TwinlogError | None = None

        async def copy() -> None:
            nonlocal failure
            try:
                await copier.run(self._stop)
            except TwinlogError as error:
                failure = error
            finally:
                self._stop.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(copy(), name="copy")
            group.create_task(self._report(stream, copier, report_seconds), name="reports")
        if failure is not None:
            raise failure

    async def _report(self, stream: Any, copier: Copier, every_seconds: float) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while not await wait_or_stop(self._stop, every_seconds):
                await self._write(stream, _message(copier.reporter.report()))

    async def _finish(self, stream: Any, reason: str, message: str, copier: Copier | None = None) -> None:
        """Send the last message; the driver closes the stream when it has it."""
        self._outcome = reason, message
        finished = pb.Finished(reason=reason, message=message)
        if copier is not None:
            fill(finished.reports, copier.reporter.report(everything=True))
            fill(finished.debt, copier.throttle.owed(self.clock.monotonic()))
        with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError, asyncio.InvalidStateError):
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await stream.write(pb.WorkerReport(finished=finished))
                await stream.done_writing()
                await stream.code()

    def _hello(self) -> pb.Hello:
        return pb.Hello(
            flow=types_pb2.Flow(source=self.spec.flow.source, target=self.spec.flow.target),
            epoch=self.spec.epoch,
            slot=self.spec.slot,
            token=self.spec.token,
            worker=f"{socket.gethostname()}:{os.getpid()}",
            version=__version__,
        )


def _message(report: TaskReport) -> pb.WorkerReport:
    message = pb.WorkerReport()
    fill(message.partitions, report)
    return message
