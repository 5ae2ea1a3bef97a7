"""WorkerService: the driver's end of every task's control stream."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from itertools import starmap
from typing import TypeVar

import structlog

from twinlog import __version__
from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.api.source.v1 import worker_service_pb2_grpc as pb_grpc
from twinlog.errors import NotFoundError, StateError, TwinlogError
from twinlog.model import Flow
from twinlog.service.errors_wire import PeerUnavailableError
from twinlog.service.grpc_server import Context
from twinlog.service.health_calls import FirstMessages
from twinlog.service.waiting import wait_or_stop
from twinlog_source.driver.epoch import Epoch, LastWords, Slot, SlotState, rejoin_wait
from twinlog_source.driver.stream.stream_pace import LONGEST_ALIVE_SECONDS, alive_seconds
from twinlog_source.driver.stream.task_host import TaskHost
from twinlog_source.driver.worker_pool import Place, WorkerPool
from twinlog_source.partitions.orders import (
    Answer,
    Echo,
    NewProducer,
    Reopened,
    StoredPosition,
    TaskReport,
    WantRoutes,
    WhoWrote,
)
from twinlog_source.partitions.planner import LimitDebt
from twinlog_source.reasons import EndReason
from twinlog_source.records.pipe import PipeJob
from twinlog_source.task.stream.messages import Question, command_message, question_of, value_of

HELLO_SECONDS = 10.0
MOST_SILENT_STREAMS = 500
"""A client without a token may open streams. Until it has shown a token, streams are limited in number and
time."""
REPORTS_OF_A_HEALTHY_TASK = 10
"""A task that has sent this many reports, one every second or few, does not crash at its start."""

T = TypeVar("T", pb.WorkerReport, pb.WorkerSign)

log = structlog.get_logger(__name__)


class WorkerServicer(pb_grpc.WorkerServiceServicer):
    """Serves tasks of every flow of the process; refuses clients without the token of a live epoch."""

    def __init__(self, hosts: Mapping[Flow, TaskHost]) -> None:
        self.workers: WorkerPool | None = None
        """None while there are none."""
        self._hosts = hosts
        self._first_messages = FirstMessages(most=MOST_SILENT_STREAMS, seconds=HELLO_SECONDS)

    async def Run(  # type: ignore[override]  # noqa: N802  # reads and writes through the context
        self, request_iterator: AsyncIterator[pb.WorkerReport], context: Context
    ) -> None:
        requests = aiter(request_iterator)
        first = await self._first(requests)
        host, epoch, slot = self._admit(first.hello)
        talk = _Conversation(host, epoch, slot, context)
        await talk.run(requests, worker=first.hello.worker)

    async def Work(  # type: ignore[override]  # noqa: N802  # reads and writes through the context
        self, request_iterator: AsyncIterator[pb.WorkerSign], context: Context
    ) -> None:
        signs = aiter(request_iterator)
        first = await self._first(signs)
        pool = self.workers
        if pool is None:
            raise NotFoundError("no live driver knows this worker", reason="EPOCH_UNKNOWN")
        worker = pool.admit(first.number, first.token)
        try:
            _require_release(first.worker, first.version)
        except StateError as error:
            pool.refused(worker, error)
            raise
        orders = pool.joined(worker)
        log.debug("worker_joined", number=worker.number, worker=first.worker)
        try:
            await _Orders(self._hosts, context).run(orders, signs, lambda: pool.heard(worker))
        finally:
            log.debug("worker_left", number=worker.number, worker=first.worker)
            pool.left(worker, orders)

    async def _first(self, requests: AsyncIterator[T]) -> T:
        """The first message. Raises PeerUnavailableError (HELLO_MISSING): what was only slow comes again."""
        first = await self._first_messages.of(requests)
        if first is None:
            raise PeerUnavailableError(
                f"the stream did not say within {HELLO_SECONDS:g} s which task it is", reason="HELLO_MISSING"
            )
        return first

    def _admit(self, hello: pb.Hello) -> tuple[TaskHost, Epoch, Slot]:
        host = self._hosts.get(Flow(hello.flow.source, hello.flow.target))
        epoch = host.epoch_of(hello.epoch) if host is not None else None
        if host is None or epoch is None or not epoch.accepts(hello.token) or hello.slot >= len(epoch.slots):
            raise NotFoundError("no live epoch knows this task", reason="EPOCH_UNKNOWN")
        _require_release(hello.worker, hello.version)
        if epoch.ending:
            # A refused task returns normally. If only its stream ended, it would count as lost, and Spark
            # would run it again.
            raise StateError(f"epoch {epoch.number} is over: {epoch.ending}", reason=EndReason.EPOCH_OVER)
        return host, epoch, epoch.slots[hello.slot]


def _require_release(worker: str, version: str) -> None:
    """Raises StateError (WORKER_VERSION)."""
    if version == __version__:
        return
    # The protocol between the two is part of a release: a half understood message could lose records.
    log.error("task_of_another_release", worker=worker, version=version, driver=__version__)
    raise StateError(
        f"the worker {worker} runs Twinlog {version or 'of an earlier release'}, its"
        f" driver {__version__}: install the same twinlog-source on the driver and on every executor",
        reason="WORKER_VERSION",
        metadata={"worker": worker, "version": version, "driver": __version__},
    )


class _Orders:
    """The stream of one worker: what it is told, and the jobs of its pipes, which end with it."""

    def __init__(self, hosts: Mapping[Flow, TaskHost], context: Context) -> None:
        self._hosts = hosts
        self._context = context
        self._writing = asyncio.Lock()
        """gRPC takes one message at a time."""
        self._pipes: dict[int, asyncio.Task[None]] = {}
        """The last job of each pipe."""

    async def run(
        self,
        orders: asyncio.Queue[Place | None],
        signs: AsyncIterator[pb.WorkerSign],
        heard: Callable[[], None],
    ) -> None:
        async with asyncio.TaskGroup() as group:
            both = [
                group.create_task(self._listen(signs, heard, group), name="signs of a worker"),
                group.create_task(self._tell(orders), name="orders for a worker"),
            ]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for each in (*both, *self._pipes.values()):
                each.cancel()

    async def _listen(
        self, signs: AsyncIterator[pb.WorkerSign], heard: Callable[[], None], group: asyncio.TaskGroup
    ) -> None:
        async for sign in signs:
            heard()
            if sign.HasField("run_pipe"):
                asked = sign.run_pipe
                if asked.pipe in self._pipes:
                    # The worker has given it up; it may hang in a function.
                    self._pipes[asked.pipe].cancel()
                self._pipes[asked.pipe] = group.create_task(self._run_pipe(asked), name="job of a pipe")

    async def _tell(self, orders: asyncio.Queue[Place | None]) -> None:
        await self._write(pb.TaskOrder())
        while (place := await orders.get()) is not None:
            epoch, slot = place
            flow = types_pb2.Flow(source=epoch.flow.source, target=epoch.flow.target)
            await self._write(pb.TaskOrder(flow=flow, epoch=epoch.number, slot=slot, token=epoch.token))

    async def _run_pipe(self, asked: pb.PipeJob) -> None:
        ended = pb.PipeEnded(number=asked.number)
        host = self._hosts[Flow(asked.flow.source, asked.flow.target)]
        try:
            await host.run_pipe(value_of(PipeJob, asked))
        except TwinlogError as error:
            ended.reason, ended.message = error.reason, str(error)
        await self._write(pb.TaskOrder(pipe_ended=ended))

    async def _write(self, order: pb.TaskOrder) -> None:
        async with self._writing:
            await self._context.write(order)


class _Conversation:
    """The stream of one task, from hello to its last message or its loss."""

    def __init__(self, host: TaskHost, epoch: Epoch, slot: Slot, context: Context) -> None:
        self._host = host
        self._epoch = epoch
        self._slot = slot
        self._context = context
        slot.joined += 1
        slot.waits_for_driver = False
        self._serial = slot.joined
        self._questions: asyncio.TaskGroup | None = None
        self._asked: set[asyncio.Task[None]] = set()
        """Questions about the source, which may take as long as the source does: reports are read
        meanwhile."""
        if slot.state in (SlotState.PREPARED, SlotState.RUNNING):
            # The stream of the task before still looks alive. This one is not ready.
            epoch.move(slot, SlotState.LOST if slot.started else SlotState.WAITING)

    @property
    def _is_served(self) -> bool:
        return self._slot.joined == self._serial

    async def run(self, requests: AsyncIterator[pb.WorkerReport], *, worker: str) -> None:
        slot, epoch = self._slot, self._epoch
        slot.worker = worker
        slot.commands = asyncio.Queue(maxsize=slot.commands.maxsize)
        log.debug("task_joined", flow=str(epoch.flow), epoch=epoch.number, slot=slot.index, worker=worker)
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read(requests), name="task reports")
                commanding = group.create_task(self._command(), name="task commands")
                self._questions = group
                await asyncio.wait([reading, commanding], return_when=asyncio.FIRST_COMPLETED)
                for each in (reading, commanding, *self._asked):
                    each.cancel()
        finally:
            self._left()

    def _left(self) -> None:
        slot = self._slot
        if not self._is_served or slot.state is SlotState.FINISHED:
            return
        if slot.started or not self._epoch.ending:
            slot.losses += 1
            log.info(
                "task_lost",
                flow=str(self._epoch.flow),
                epoch=self._epoch.number,
                slot=slot.index,
                worker=slot.worker,
                losses=slot.losses,
            )
        self._epoch.move(slot, SlotState.LOST if slot.started else SlotState.WAITING)

    async def _command(self) -> None:
        wait_seconds = rejoin_wait(self._slot.losses)
        if wait_seconds:
            await wait_or_stop(self._epoch.over, wait_seconds)
        silent_seconds = LONGEST_ALIVE_SECONDS
        if not self._epoch.ending:
            setup = self._host.prepare(self._epoch, self._slot)
            silent_seconds = alive_seconds(setup.lease_seconds)
            await self._context.write(command_message(setup))
        while self._is_served:
            try:
                async with asyncio.timeout(silent_seconds):
                    message = command_message(await self._slot.commands.get())
            except TimeoutError:
                message = pb.WorkerCommand(alive=pb.Alive())
            await self._context.write(message)

    async def _read(self, requests: AsyncIterator[pb.WorkerReport]) -> None:
        epoch, slot = self._epoch, self._slot
        reports = 0
        async for report in requests:
            if not self._is_served:
                return
            match report.WhichOneof("report"):
                case "prepared":
                    await self._before_reports(self._prepared())
                case "question":
                    await self._take(report.question.number, question_of(report.question))
                case "partitions":
                    self._host.observe(epoch, slot, value_of(TaskReport, report.partitions))
                    reports += 1
                    if reports == REPORTS_OF_A_HEALTHY_TASK:
                        slot.losses = 0
                case "finished":
                    finished = report.finished
                    slot.final = LastWords(
                        reason=finished.reason,
                        message=finished.message,
                        debt=value_of(LimitDebt, finished.debt),
                    )
                    self._host.observe(epoch, slot, value_of(TaskReport, finished.reports))
                    epoch.move(slot, SlotState.FINISHED)
                    return
                case _:
                    pass

    async def _take(self, number: int, question: Question) -> None:
        assert self._questions is not None
        answering = self._answer(number, question)
        match question:
            case WhoWrote() | WantRoutes():
                asked = self._questions.create_task(answering, name="answer a task")
                self._asked.add(asked)
                asked.add_done_callback(self._asked.discard)
            case _:
                await self._before_reports(answering)

    async def _before_reports(self, answering: Coroutine[None, None, None]) -> None:
        """The task's reports are read after the answer, which takes as long as a transaction stays open."""
        self._slot.waits_for_driver = True
        try:
            await answering
        finally:
            if self._is_served:
                self._slot.waits_for_driver = False

    async def _answer(self, number: int, question: Question) -> None:
        try:
            answer = await self._found(question)
        except TwinlogError as error:
            answer = Answer(reason=error.reason, message=str(error))
        if self._is_served:
            self._slot.tell(replace(answer, number=number))

    async def _found(self, question: Question) -> Answer:
        """Raises TwinlogError: the answer is no, or the work failed."""
        host = self._host
        match question:
            case Reopened():
                positions = await host.reopened(self._epoch, self._slot)
                return Answer(positions=tuple(starmap(StoredPosition, positions.items())))
            case NewProducer():
                await host.store_producer(self._slot, question.producer_id, question.transactional_id)
            case WhoWrote():
                echoes = await host.who_wrote(self._slot, dict(question.writers))
                return Answer(echoes=tuple(Echo(*pair, *where) for pair, where in echoes.items()))
            case WantRoutes():
                return Answer(routes=tuple(await host.want_routes(question.partition, question.names)))
        return Answer()

    async def _prepared(self) -> None:
        epoch, slot = self._epoch, self._slot
        if not slot.started:
            epoch.move(slot, SlotState.PREPARED)
            return
        try:
            start = await self._host.rejoin(epoch, slot)
        except TwinlogError as error:
            # The stream is closed; the worker runs the task again, and it asks again.
            log.warning("rejoin_failed", flow=str(epoch.flow), slot=slot.index, error=str(error))
            epoch.cut_off(slot)
            return
        if self._is_served:
            slot.tell(start)
            epoch.move(slot, SlotState.RUNNING)
