"""A task's end of the pipe, against a job that fails."""

import asyncio
import ssl
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from twinlog.batches.bodies import encode_body
from twinlog.errors import KafkaError, TwinlogError
from twinlog.kafka.deadline import pause
from twinlog.model import TopicPartition
from twinlog_source.records.frames import (
    DRAIN,
    FEED,
    LENGTH,
    PASSED,
    decode_buffers,
    encode_buffers,
    encode_columns,
)
from twinlog_source.records.pipe import PipeJob, RecordPipe, TransformFailedError
from twinlog_source.records.reach import LOOPBACK, NAME, Reach, over_network, tls_to, towards

P = TopicPartition("t", 0)
RECORD = (0, 0, encode_body(b"k", b"v"))


@asynccontextmanager
async def running(pipe: RecordPipe) -> AsyncIterator[None]:
    run = asyncio.ensure_future(pipe.run())
    try:
        async with asyncio.timeout(20):
            yield
    finally:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


async def dial(
    job: PipeJob, certificate: str, greeting: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls, name = (tls_to(certificate), NAME) if certificate else (None, None)
    reader, writer = await asyncio.open_connection(job.host, job.port, ssl=tls, server_hostname=name)
    writer.write(greeting)
    return reader, writer


async def in_job(
    job: PipeJob, work: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> None:
    """As the two workers of a job."""
    feed, to_task = await dial(job, job.certificate, FEED + job.token + encode_columns(()))
    _, drain = await dial(job, job.certificate, DRAIN + job.token + encode_columns(["value"]))
    try:
        await work(feed, drain)
    finally:
        to_task.close()
        drain.close()


async def next_rows(feed: asyncio.StreamReader) -> list[int]:
    length = LENGTH.unpack(await feed.readexactly(LENGTH.size))[0]
    return decode_buffers(await feed.readexactly(length))[0].cast("i").tolist()


def batch(rows: list[int], *values: bytes) -> bytes:
    """Of a job that changes values. Rows that end a chunk have none."""
    lengths = [*map(len, values), *[-1] * (len(rows) - len(values))]
    outcomes = array("b", [PASSED] * len(rows)).tobytes()
    columns = (array("i", rows).tobytes(), outcomes, array("i", lengths).tobytes(), b"".join(values))
    return encode_buffers(columns)


async def test_a_job_that_fails_before_it_has_records_says_nothing_of_them() -> None:
    async def run_job(_: PipeJob) -> TwinlogError | None:
        return TransformFailedError("no worker could be started")

    pipe = RecordPipe(run_job=run_job, timeout_seconds=10, idle_seconds=60)
    async with running(pipe):
        with pytest.raises(KafkaError, match="no worker") as refused:
            await pipe.change(P, [RECORD])
        assert refused.value.reason == "SPARK_UNAVAILABLE"


async def test_records_that_a_failed_job_never_had_go_to_the_next_one() -> None:
    jobs = 0
    broken, asked_more = asyncio.Event(), asyncio.Event()

    async def run_job(job: PipeJob) -> TwinlogError | None:
        nonlocal jobs
        jobs += 1

        async def break_at_once(feed: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await next_rows(feed)

        async def give_back(feed: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
            drain.write(batch(await next_rows(feed), b"changed"))
            await asyncio.get_running_loop().create_future()

        if jobs > 1:
            await in_job(job, give_back)
        await in_job(job, break_at_once)
        await pause(0.2)
        broken.set()
        await asked_more.wait()
        return TransformFailedError("it broke")

    pipe = RecordPipe(run_job=run_job, timeout_seconds=10, idle_seconds=60)
    async with running(pipe):
        first = asyncio.ensure_future(pipe.change(P, [RECORD]))
        await broken.wait()
        second = asyncio.ensure_future(pipe.change(P, [RECORD]))
        await pause(0)
        asked_more.set()
        with pytest.raises(TransformFailedError):
            await first
        assert [body for _, _, body in (await second).passed] == [encode_body(b"k", b"changed")]
        assert jobs == 2


@pytest.mark.parametrize("places", [(0, 0), (1,), (0, None)])
async def test_rows_that_are_not_those_of_the_chunk_in_their_order_are_no_answer(
    places: tuple[int | None, ...],
) -> None:
    async def run_job(job: PipeJob) -> TwinlogError | None:
        async def repeat(feed: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
            *_, end = await next_rows(feed)
            drain.write(batch([end - 1 if place is None else place for place in places] + [end]))
            await asyncio.get_running_loop().create_future()

        await in_job(job, repeat)
        return None

    pipe = RecordPipe(run_job=run_job, timeout_seconds=10, idle_seconds=60)
    async with running(pipe):
        with pytest.raises(TransformFailedError, match="twice, or out of order"):
            await pipe.change(P, [RECORD])


async def test_a_record_that_cannot_be_read_breaks_no_job() -> None:
    async def run_job(job: PipeJob) -> TwinlogError | None:
        async def give_back(feed: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
            drain.write(batch(await next_rows(feed), b"changed"))
            await asyncio.get_running_loop().create_future()

        await in_job(job, give_back)
        return None

    pipe = RecordPipe(run_job=run_job, timeout_seconds=10, idle_seconds=60)
    async with running(pipe):
        with pytest.raises(TransformFailedError, match="past its end"):
            await pipe.change(P, [(0, 0, b"\x40v")])
        assert len((await pipe.change(P, [RECORD])).passed) == 1


async def test_a_job_through_which_nothing_goes_ends_and_the_next_record_has_another_one() -> None:
    jobs, ended = 0, asyncio.Event()

    async def run_job(job: PipeJob) -> TwinlogError | None:
        nonlocal jobs
        jobs += 1

        async def give_back(feed: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
            with suppress(asyncio.IncompleteReadError):
                while True:
                    drain.write(batch(await next_rows(feed), b"changed"))
            ended.set()

        await in_job(job, give_back)
        return None

    pipe = RecordPipe(run_job=run_job, timeout_seconds=10, idle_seconds=0.01)
    async with running(pipe):
        for number in (1, 2):
            assert len((await pipe.change(P, [RECORD])).passed) == 1
            await ended.wait()
            ended.clear()
            assert jobs == number


@pytest.mark.parametrize("reach", [Reach, lambda: over_network(bind=LOOPBACK, host="localhost")])
async def test_only_workers_with_the_token_have_records_and_on_other_machines_over_tls(
    reach: Callable[[], Reach],
) -> None:
    async def run_job(job: PipeJob) -> TwinlogError | None:
        assert bool(job.certificate) == (reach is not Reach)
        greeting = FEED + job.token + encode_columns(())
        strangers = [
            await dial(job, job.certificate, each)
            for each in (FEED + bytes(len(job.token)) + encode_columns(()), b"")
        ]
        assert await strangers[0][0].read() == b""
        if job.certificate:
            strangers.append(await dial(job, "", greeting))
            with pytest.raises(ssl.SSLCertVerificationError):
                await dial(job, over_network(bind=LOOPBACK, host=LOOPBACK).certificate, greeting)

        async def give_back(feed: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
            rows = await next_rows(feed)
            with pytest.raises(ConnectionRefusedError):
                await dial(job, "", b"")
            for reader, writer in strangers:
                assert len(await reader.read()) <= len("alert: "), "no more than TLS says of itself"
                writer.close()
            drain.write(batch(rows, b"changed"))
            await asyncio.get_running_loop().create_future()

        await in_job(job, give_back)
        return None

    pipe = RecordPipe(run_job=run_job, timeout_seconds=10, idle_seconds=60, reach=reach)
    async with running(pipe):
        (changed,) = (await pipe.change(P, [RECORD])).passed
        assert changed[2] == encode_body(b"k", b"changed")


def test_a_process_is_reached_where_it_reaches_its_driver() -> None:
    found = towards(f"{LOOPBACK}:1")
    assert (found.bind, found.host) == (LOOPBACK, LOOPBACK)
    assert found.tls is not None
    with found.listen() as listener:
        assert listener.getsockname()[0] == LOOPBACK
