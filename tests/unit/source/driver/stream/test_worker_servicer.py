"""Streams that come to the WorkerService: those that do not say which task they are, few and short, and those
of tasks, which hear their driver."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from twinlog import __version__
from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.errors import KafkaError, NotFoundError, StateError, TransientKafkaError
from twinlog.model import Flow, TopicPartition
from twinlog.service.errors_wire import PeerUnavailableError
from twinlog.service.grpc_server import Context
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.virtual_time import run_in_virtual_time
from twinlog_source.driver.epoch import Epoch, Slot, SlotState
from twinlog_source.driver.lender import Lender
from twinlog_source.driver.stream.stream_pace import LONGEST_REPORT_SECONDS
from twinlog_source.driver.stream.task_host import TaskHost
from twinlog_source.driver.stream.worker_servicer import MOST_SILENT_STREAMS, WorkerServicer
from twinlog_source.driver.worker_pool import Place, PooledWorker, WorkerPool
from twinlog_source.partitions.orders import Echoes, NewProducer, Route, Start, TaskReport, TaskSetup
from twinlog_source.partitions.standing import SILENT_SECONDS
from twinlog_source.records.pipe import PipeJob
from twinlog_source.task.stream.messages import question_message

NO_CONTEXT = cast("Context", None)


async def silent() -> AsyncIterator[pb.WorkerReport]:
    await asyncio.Event().wait()
    yield pb.WorkerReport()


async def ended() -> AsyncIterator[pb.WorkerReport]:
    return
    yield pb.WorkerReport()


async def stranger() -> AsyncIterator[pb.WorkerReport]:
    yield pb.WorkerReport(hello=pb.Hello(token="guess"))


@pytest.mark.parametrize("stream", [silent, ended])
async def test_a_stream_without_a_hello_may_come_again(stream: type) -> None:
    with pytest.raises(PeerUnavailableError) as refused:
        await WorkerServicer({}).Run(stream(), NO_CONTEXT)
    assert refused.value.reason == "HELLO_MISSING"


async def test_silent_streams_are_few_and_keep_no_task_out() -> None:
    """Nobody is asked for a token before a stream: strangers could hold all of them open."""

    servicer = WorkerServicer({})
    async with asyncio.TaskGroup() as group:
        streams = [
            group.create_task(refused(servicer), name=f"stream {number}")
            for number in range(MOST_SILENT_STREAMS)
        ]
        await wait_or_stop(asyncio.Event(), 1.0)
        with pytest.raises(NotFoundError):
            await servicer.Run(stranger(), NO_CONTEXT)
        await wait_or_stop(asyncio.Event(), 1.0)
        assert [stream for stream in streams if stream.done()] == streams[:1]
    assert {stream.result() for stream in streams} == {"HELLO_MISSING"}


async def refused(servicer: WorkerServicer) -> str:
    with pytest.raises(PeerUnavailableError) as error:
        await servicer.Run(silent(), NO_CONTEXT)
    return error.value.reason


FLOW = Flow("A", "B")
EPOCH = Epoch(flow=FLOW, number=1, plan=((TopicPartition("t", 0),),))


@dataclass(slots=True)
class Host:
    """A driver that says nothing of its own accord."""

    lease_seconds: int
    epoch: Epoch = field(default_factory=lambda: EPOCH)
    stored: dict[int, str] = field(default_factory=dict)
    jobs: list[int] = field(default_factory=list)
    """The ports of the pipes whose jobs run."""
    away: KafkaError | None = None
    """Why the target takes nothing."""

    def epoch_of(self, number: int) -> Epoch | None:
        return self.epoch

    async def who_wrote(self, slot: Slot, asked: Mapping[TopicPartition, Collection[int]]) -> Echoes:
        return {}

    async def want_routes(self, partition: TopicPartition, names: Collection[str]) -> Collection[Route]:
        return ()

    def prepare(self, epoch: Epoch, slot: Slot) -> TaskSetup:
        return TaskSetup(
            clients={},
            settings={},
            positions_topic="",
            positions_partition_count=1,
            connector_name="",
            read_committed=True,
            lease_seconds=self.lease_seconds,
            report_seconds=1.0,
        )

    async def rejoin(self, epoch: Epoch, slot: Slot) -> Start:
        return Start()

    async def reopened(self, epoch: Epoch, slot: Slot) -> Mapping[TopicPartition, int]:
        return {}

    async def run_pipe(self, job: PipeJob) -> None:
        self.jobs.append(job.port)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.jobs.remove(job.port)

    async def store_producer(self, slot: Slot, producer_id: int, transactional_id: str) -> None:
        assert slot.waits_for_driver
        if self.away is not None:
            raise self.away
        self.stored[producer_id] = transactional_id

    def observe(self, epoch: Epoch, slot: Slot, report: TaskReport) -> None:
        """Nothing is kept."""


def servicer_of(host: Host) -> WorkerServicer:
    return WorkerServicer({FLOW: cast("TaskHost", host)})


@dataclass(slots=True)
class Heard:
    """The task's end: when it heard what."""

    at: list[float] = field(default_factory=list)
    answers: list[pb.Answer] = field(default_factory=list)

    async def write(self, command: pb.WorkerCommand | pb.TaskOrder) -> None:
        if isinstance(command, pb.WorkerCommand) and command.HasField("answer"):
            self.answers.append(command.answer)
        self.at.append(asyncio.get_running_loop().time())


async def task() -> AsyncIterator[pb.WorkerReport]:
    flow = types_pb2.Flow(source=FLOW.source, target=FLOW.target)
    hello = pb.Hello(flow=flow, epoch=1, slot=0, token=EPOCH.token, version=__version__)
    yield pb.WorkerReport(hello=hello)
    await wait_or_stop(asyncio.Event(), 60.0)


@pytest.mark.parametrize(
    ("is_started", "before", "after"),
    [(False, SlotState.PREPARED, SlotState.WAITING), (True, SlotState.RUNNING, SlotState.LOST)],
)
async def test_a_task_that_replaces_another_one_is_not_ready_itself(
    is_started: bool, before: SlotState, after: SlotState
) -> None:
    """The host of the task before vanished, so its stream still looks alive. The new one has not initialised
    its ids: were it started, that would be after the driver looked whether the flow is still its own."""
    epoch = Epoch(flow=FLOW, number=1, plan=((TopicPartition("t", 0),),))
    (slot,) = epoch.slots
    slot.started = is_started

    async def newcomer() -> AsyncIterator[pb.WorkerReport]:
        flow = types_pb2.Flow(source=FLOW.source, target=FLOW.target)
        yield pb.WorkerReport(hello=pb.Hello(flow=flow, epoch=1, token=epoch.token, version=__version__))
        await wait_or_stop(asyncio.Event(), 60.0)

    servicer = servicer_of(Host(10, epoch))
    epoch.move(slot, before)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(servicer.Run(newcomer(), cast("Context", Heard())), name="newcomer")
        await wait_or_stop(asyncio.Event(), 1.0)
        assert slot.state is after
        serving.cancel()


@pytest.mark.parametrize("lease_seconds", [1, 5, 10, 60])
def test_a_task_hears_its_driver_several_times_in_its_lease(lease_seconds: int) -> None:
    async def scenario() -> list[float]:
        heard = Heard()
        await servicer_of(Host(lease_seconds)).Run(task(), cast("Context", heard))
        return heard.at

    at = run_in_virtual_time(scenario())
    silences = [after - before for before, after in itertools.pairwise(at)]
    assert max(silences) <= lease_seconds / 4
    assert len(at) <= 60.0 / min(3.0, lease_seconds / 4) + 1, "no more than it needs"


def test_a_task_that_reports_as_seldom_as_it_may_is_not_taken_for_silent() -> None:
    assert LONGEST_REPORT_SECONDS * 1.5 < SILENT_SECONDS


@pytest.mark.parametrize("version", ["", "0.0.9", "99.0.0"])
async def test_a_task_of_another_release_than_its_driver_is_refused(version: str) -> None:
    async def task_of_another_release() -> AsyncIterator[pb.WorkerReport]:
        flow = types_pb2.Flow(source=FLOW.source, target=FLOW.target)
        hello = pb.Hello(flow=flow, epoch=1, slot=0, token=EPOCH.token, worker="host:1", version=version)
        yield pb.WorkerReport(hello=hello)

    with pytest.raises(StateError, match=f"driver {__version__}") as refused:
        await servicer_of(Host(10)).Run(task_of_another_release(), cast("Context", Heard()))
    assert refused.value.reason == "WORKER_VERSION"
    assert refused.value.metadata["version"] == version


async def test_the_release_of_a_worker_is_told_to_nobody_without_the_token() -> None:
    with pytest.raises(NotFoundError):
        await servicer_of(Host(10)).Run(stranger(), NO_CONTEXT)


@pytest.mark.parametrize("away", [None, TransientKafkaError("B is away", reason="KAFKA_UNAVAILABLE")])
async def test_a_task_hears_whether_its_producer_id_is_stored(away: KafkaError | None) -> None:
    epoch = Epoch(flow=FLOW, number=1, plan=((TopicPartition("t", 0),),))

    async def task_with_an_id() -> AsyncIterator[pb.WorkerReport]:
        flow = types_pb2.Flow(source=FLOW.source, target=FLOW.target)
        hello = pb.Hello(flow=flow, epoch=1, slot=0, token=epoch.token, version=__version__)
        yield pb.WorkerReport(hello=hello)
        yield question_message(3, NewProducer(7, "id"))
        await wait_or_stop(asyncio.Event(), 1.0)

    host, heard = Host(10, epoch, away=away), Heard()
    await servicer_of(host).Run(task_with_an_id(), cast("Context", heard))
    (answer,) = heard.answers
    assert (answer.number, answer.reason) == (3, "" if away is None else away.reason)
    assert host.stored == ({7: "id"} if away is None else {})


class Pool:
    """Of one worker."""

    def admit(self, _number: int, _token: str) -> PooledWorker:
        return PooledWorker(number=1, home=Lender(name="other"), since=0.0)

    def joined(self, _worker: PooledWorker) -> asyncio.Queue[Place | None]:
        return asyncio.Queue()

    def heard(self, worker: PooledWorker) -> None: ...

    def left(self, worker: PooledWorker, orders: asyncio.Queue[Place | None]) -> None: ...


async def test_the_job_of_a_pipe_ends_with_the_next_one_and_with_its_worker() -> None:
    host = Host(10)
    seen: list[list[int]] = []

    async def worker_with_pipes() -> AsyncIterator[pb.WorkerSign]:
        yield pb.WorkerSign(version=__version__)
        flow = types_pb2.Flow(source=FLOW.source, target=FLOW.target)
        for port, pipe in ((1, 7), (2, 8), (3, 7)):
            yield pb.WorkerSign(run_pipe=pb.PipeJob(port=port, token=b"t", pipe=pipe, flow=flow))
            await wait_or_stop(asyncio.Event(), 0.1)
            seen.append(sorted(host.jobs))

    servicer = servicer_of(host)
    servicer.workers = cast("WorkerPool", Pool())
    await servicer.Work(worker_with_pipes(), cast("Context", Heard()))
    assert (seen, host.jobs) == ([[1], [1, 2], [2, 3]], [])
