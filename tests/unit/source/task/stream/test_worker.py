"""Tasks of several flows in one worker: what happens to one is nothing to the others."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import grpc
import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.api.source.v1 import worker_service_pb2_grpc as pb_grpc
from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.model import Flow, TopicPartition
from twinlog.testing.rpc import MemoryRpc, RpcNetwork
from twinlog.transforms.expressions import Expressions
from twinlog_source.reasons import EndReason
from twinlog_source.records.changing import Changing, ChangingOf
from twinlog_source.records.pipe import PipeJob, RecordPipe, RunJob, TransformFailedError
from twinlog_source.task.settings import TaskLostError, TaskSpec, WorkerSpec
from twinlog_source.task.stream.worker import Worker

FLOWS = ("A->C", "B->C", "D->C")
Ended = tuple[str, str]
LOST = EndReason.LEASE_LOST, "the control stream broke"
ENDED = EndReason.END_OF_EPOCH, ""


@dataclass(slots=True)
class Connection:
    """To a driver that is told by the test what to do with it."""

    spec: TaskSpec
    serve: Callable[["Connection"], Awaitable[Ended]]
    changing: ChangingOf
    was_served: bool = False

    async def run(self) -> Ended:
        return await self.serve(self)


class Driver(pb_grpc.WorkerServiceServicer):
    """Orders a task of each flow, and lets the worker go when it may."""

    async def Run(self, request_iterator: object, context: object) -> None:  # type: ignore[override]  # noqa: N802
        raise AssertionError

    def __init__(self) -> None:
        self.may_go = asyncio.Event()
        self.refusal: grpc.StatusCode | None = None
        self.failures: dict[bool, TwinlogError | None] = {}
        """Why the jobs of pipes have ended, by whether they are strict."""

    async def Work(  # type: ignore[override]  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.WorkerSign],
        context: grpc.aio.ServicerContext[object, object],
    ) -> None:
        assert (await anext(request_iterator)).number == 7
        if self.refusal is not None:
            await context.abort(self.refusal, "no")
        await context.write(pb.TaskOrder())
        for each in FLOWS:
            source, target = each.split("->")
            flow = types_pb2.Flow(source=source, target=target)
            await context.write(pb.TaskOrder(flow=flow, epoch=3, slot=1, token="t"))
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(self._answer(request_iterator, context), name="answers")
            await self.may_go.wait()
            answering.cancel()

    async def _answer(
        self,
        signs: AsyncIterator[pb.WorkerSign],
        context: grpc.aio.ServicerContext[object, object],
    ) -> None:
        async for sign in signs:
            if sign.HasField("run_pipe"):
                assert str(Flow(sign.run_pipe.flow.source, sign.run_pipe.flow.target)) == FLOWS[0]
                reason = "TRANSFORM_FAILED" if sign.run_pipe.strict else "SPARK_UNAVAILABLE"
                ended = pb.PipeEnded(number=sign.run_pipe.number, reason=reason, message="words")
                await context.write(pb.TaskOrder(pipe_ended=ended))

    def pipe(
        self, run_job: RunJob, _expressions: Expressions, strict: bool, idle_seconds: float
    ) -> RecordPipe:
        async def run_and_note(job: PipeJob) -> TwinlogError | None:
            self.failures[strict] = await run_job(job)
            return self.failures[strict]

        return RecordPipe(run_job=run_and_note, timeout_seconds=5, strict=strict, idle_seconds=idle_seconds)


async def worked(driver: Driver, serve: Callable[[Connection], Awaitable[Ended]]) -> None:
    rpc = MemoryRpc(RpcNetwork())
    server = rpc.server()
    pb_grpc.add_WorkerServiceServicer_to_server(driver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    spec = WorkerSpec(
        number=7,
        driver_endpoint=f"127.0.0.1:{port}",
        driver_certificate="",
        token="",
        connect_timeout_seconds=5.0,
    )
    worker = Worker(
        spec=spec,
        connect=lambda task, changing: Connection(task, serve, changing),
        rpc=rpc,
        make_pipe=driver.pipe,
    )
    await worker.run()


async def test_a_task_that_is_lost_or_crashes_is_run_again_while_the_others_continue() -> None:
    driver = Driver()
    served: Counter[str] = Counter()

    async def serve(connection: Connection) -> Ended:
        flow = str(connection.spec.flow)
        served[flow] += 1
        connection.was_served = True
        if flow != "A->C":
            await driver.may_go.wait()
            return ENDED
        match served[flow]:
            case 1:
                return LOST
            case 2:
                raise RuntimeError("a mistake of ours")
        driver.may_go.set()
        return EndReason.REFUSED, "the epoch is over"

    await worked(driver, serve)
    assert served == {"A->C": 3, "B->C": 1, "D->C": 1}


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND])
async def test_a_worker_is_run_again_only_if_its_driver_may_know_it(code: grpc.StatusCode) -> None:
    driver = Driver()
    driver.refusal = code

    async def serve(connection: Connection) -> Ended:
        raise AssertionError

    if code is grpc.StatusCode.NOT_FOUND:
        await worked(driver, serve)
    else:
        with pytest.raises(TaskLostError, match="UNAVAILABLE"):
            await worked(driver, serve)


async def test_a_worker_that_is_let_go_leaves_no_task_behind() -> None:
    driver = Driver()
    running: Counter[str] = Counter()

    async def serve(connection: Connection) -> Ended:
        running[str(connection.spec.flow)] += 1
        if running.total() == len(FLOWS):
            driver.may_go.set()
        try:
            await asyncio.Event().wait()
        finally:
            running[str(connection.spec.flow)] -= 1
        return ENDED

    await worked(driver, serve)
    assert not running.total()


def test_a_pipe_hears_why_its_job_has_ended_and_stays_when_the_task_goes_that_wanted_it() -> None:
    async def scenario() -> None:
        driver = Driver()
        seen: list[Changing] = []

        async def serve(connection: Connection) -> Ended:
            if str(connection.spec.flow) != FLOWS[0]:
                return ENDED
            changing = connection.changing(Flow.parse(FLOWS[0]), Expressions(topics=("t",), where="true"))
            seen.append(changing)
            if len(seen) == 1:
                return LOST
            for pipe in (changing.pipe, changing.strict):
                with pytest.raises(TransientKafkaError, match="words"):
                    await pipe.change(TopicPartition("t", 0), [])
            driver.may_go.set()
            return ENDED

        await worked(driver, serve)
        assert seen[0] is seen[1]
        assert [type(driver.failures[strict]) for strict in (False, True)] == [
            TransientKafkaError,
            TransformFailedError,
        ]

    asyncio.run(scenario())
