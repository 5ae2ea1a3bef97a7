"""Streams that come to the WorkerService and do not say which task they are: few, short, and no traceback."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.errors import NotFoundError, StateError
from twinlog.service.errors_wire import ExhaustedError
from twinlog.service.grpc_server import Context
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.virtual_time import run_in_virtual_time
from twinlog_source.driver.worker_servicer import MOST_SILENT_STREAMS, WorkerServicer

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
def test_a_stream_without_a_hello_ends_with_a_typed_error(stream: type) -> None:
    async def scenario() -> None:
        with pytest.raises(StateError) as refused:
            await WorkerServicer({}).Run(stream(), NO_CONTEXT)
        assert refused.value.reason == "HELLO_MISSING"

    run_in_virtual_time(scenario())


def test_silent_streams_are_few_and_their_places_come_back() -> None:
    async def scenario() -> None:
        servicer = WorkerServicer({})
        async with asyncio.TaskGroup() as group:
            streams = [
                group.create_task(refused(servicer), name=f"stream {number}")
                for number in range(MOST_SILENT_STREAMS)
            ]
            await wait_or_stop(asyncio.Event(), 1.0)
            with pytest.raises(ExhaustedError) as full:
                await servicer.Run(silent(), NO_CONTEXT)
            assert full.value.reason == "TOO_MANY_STREAMS"
        assert {stream.result() for stream in streams} == {"HELLO_MISSING"}
        with pytest.raises(NotFoundError):
            await servicer.Run(stranger(), NO_CONTEXT)

    run_in_virtual_time(scenario())


async def refused(servicer: WorkerServicer) -> str:
    with pytest.raises(StateError) as error:
        await servicer.Run(silent(), NO_CONTEXT)
    return error.value.reason
