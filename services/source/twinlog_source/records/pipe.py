"""The task's end of a pipe through Spark: sends chunks of records, and gets back what became of them.

The pipe is a Spark job that the driver runs; its two workers connect to this process. It is opened when there
is something to send, stays for the tasks that come later, and is opened again after it broke. Then nothing of
it counts: whoever sent a chunk is told that it was lost, and why.
"""

import asyncio
import itertools
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from twinlog.batches.bodies import OpenRecord
from twinlog.errors import TransientKafkaError, TwinlogError, WireFormatError
from twinlog.kafka.deadline import pause
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.transforms.expressions import Expressions
from twinlog_source.records.frames import (
    CHUNK_NUMBERS,
    DRAIN,
    FEED,
    LENGTH,
    LOOPBACK,
    TOKEN_BYTES,
    Back,
    ChunkOut,
    Returned,
    decode_columns,
    encode_chunk,
)

OPEN_SECONDS = 300.0
"""How long the first job may take: Spark loads its SQL, and may wait for a core."""
HELLO_SECONDS = 5.0
LAST_WORDS_SECONDS = 60.0
"""How long after a broken connection the failure of the job is waited for: only with it the record is looked
for."""
REOPEN_SECONDS = 1.0
IDLE_SECONDS = 600.0
"""A job through which nothing has gone for so long is ended: it keeps a thread and processes of Spark."""

log = structlog.get_logger(__name__)


class TransformFailedError(TwinlogError):
    """Spark failed with these records: one of them may be the reason."""

    default_reason = "TRANSFORM_FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeJob:
    """What the driver is asked to run."""

    port: int
    token: bytes = field(repr=False)
    strict: bool
    """An expression that fails ends the job, and its error says why."""
    pipe: int = 0
    """Which of the worker's pipes this is: a pipe has one job at a time."""


class _End(NamedTuple):
    """A worker of the job."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    columns: frozenset[str]
    """What it wants of a record, or what it changes."""


RunJob = Callable[[PipeJob], Awaitable[TwinlogError | None]]
"""Returns when the job has ended, with the reason if it failed; cancelling it ends the job."""


@dataclass(slots=True)
class _Asked:
    chunk: ChunkOut
    answer: "asyncio.Future[Back]"
    sent_at: float | None = None
    """On the loop's clock; None = it was not sent yet."""


@dataclass(slots=True, kw_only=True)
class RecordPipe:
    run_job: RunJob
    timeout_seconds: float
    """How long Spark may take for a chunk; then the job is ended."""
    strict: bool = False
    idle_seconds: float = IDLE_SECONDS
    number: int = field(default_factory=itertools.count().__next__)
    """Tells the pipes of a process apart."""
    _asked: dict[int, _Asked] = field(default_factory=dict)
    _number: int = 0
    _sent: int = 0
    """How many chunks were sent so far."""
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _inside: deque[_Asked] = field(default_factory=deque)
    """What the job has not given back yet, in order."""

    async def change(self, partition: TopicPartition, records: Sequence[OpenRecord]) -> Back:
        """What came out. Needs `run`. Raises TransformFailedError when Spark failed while
        it had these records, ConfigError for expressions that it refuses, and KafkaError when it is away."""
        self._number = (self._number + 1) % CHUNK_NUMBERS
        number = self._number
        asked = _Asked(ChunkOut(number, partition, records, []), asyncio.get_running_loop().create_future())
        self._asked[number] = asked
        self._wanted.set()
        try:
            return await asked.answer
        finally:
            del self._asked[number]

    async def run(self) -> None:
        """Loop until cancelled: one job after another, as long as something is asked."""
        while True:
            await self._wanted.wait()
            before = self._sent
            failure = await self._one_job()
            if failure is None:
                continue
            if isinstance(failure, TransformFailedError) and self._sent == before:
                # It had no records, so none of them is the reason.
                failure = TransientKafkaError(str(failure), reason="SPARK_UNAVAILABLE")
            is_of_records = isinstance(failure, TransformFailedError)
            self._wanted.clear()
            for asked in list(self._asked.values()):
                if asked.answer.done():
                    continue
                if is_of_records and asked.sent_at is None:
                    self._wanted.set()  # For the next job.
                else:
                    asked.answer.set_exception(failure)
            if not isinstance(failure, TransformFailedError):
                # What could not be started is not started again at once.
                await pause(REOPEN_SECONDS)

    async def _one_job(self) -> TwinlogError | None:
        """Run a job until it ends or breaks, and return why; None if it was idle."""
        token = secrets.token_bytes(TOKEN_BYTES)
        failures: list[TwinlogError | None] = []
        with socket.create_server((LOOPBACK, 0)) as listener:
            listener.setblocking(False)
            job = PipeJob(port=listener.getsockname()[1], token=token, strict=self.strict, pipe=self.number)

            async def run_job() -> None:
                failure = await self.run_job(job)
                if failure is not None:
                    failures.append(failure)

            async def move() -> None:
                try:
                    async with asyncio.timeout(OPEN_SECONDS):
                        ends = await self._accept(listener, token)
                except TimeoutError:
                    told = f"Spark's job for changing records did not start within {OPEN_SECONDS:g} s"
                    failures.append(TransientKafkaError(told, reason="SPARK_UNAVAILABLE"))
                    return
                await self._move(ends, failures)

            async with asyncio.TaskGroup() as group:
                running = group.create_task(run_job(), name="job of the pipe")
                moving = group.create_task(move(), name="pipe")
                await asyncio.wait([running, moving], return_when=asyncio.FIRST_COMPLETED)
                moving.cancel()
                # The connection breaks before the job says why.
                await asyncio.wait([running], timeout=0 if failures else LAST_WORDS_SECONDS)
                running.cancel()
        return failures[0] if failures else TransientKafkaError("the pipe broke", reason="SPARK_UNAVAILABLE")

    async def _accept(self, listener: socket.socket, token: bytes) -> Mapping[bytes, _End]:
        """Both ends of the pipe, as FEED and DRAIN."""
        loop = asyncio.get_running_loop()
        ends: dict[bytes, _End] = {}
        while len(ends) < len((FEED, DRAIN)):
            connection, _ = await loop.sock_accept(listener)
            reader, writer = await asyncio.open_connection(sock=connection)
            hello = b""
            with suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                async with asyncio.timeout(HELLO_SECONDS):
                    hello = await reader.readexactly(1 + TOKEN_BYTES + 1)
            if secrets.compare_digest(hello[1:-1], token) and hello[:1] in (FEED, DRAIN):
                ends[hello[:1]] = _End(reader, writer, decode_columns(hello[-1]))
            else:
                writer.close()
        return ends

    async def _move(self, ends: Mapping[bytes, _End], failures: list[TwinlogError | None]) -> None:
        """Return when the pipe is broken or too slow."""
        self._inside.clear()
        try:
            async with asyncio.TaskGroup() as group:
                parts = [
                    group.create_task(self._send(ends[FEED], failures), name="feed"),
                    group.create_task(self._receive(ends[DRAIN], failures), name="drain"),
                    group.create_task(self._watch(failures), name="time-out of the pipe"),
                ]
                await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                for part in parts:
                    part.cancel()
        finally:
            for end in ends.values():
                end.writer.close()

    async def _send(self, feed: _End, failures: list[TwinlogError | None]) -> None:
        with suppress(OSError):
            while True:
                self._wanted.clear()
                for asked in list(self._asked.values()):
                    if asked.sent_at is None and not asked.answer.done():
                        try:
                            written = encode_chunk(asked.chunk, feed.columns)
                        except WireFormatError as error:
                            asked.answer.set_exception(TransformFailedError(str(error)))
                            continue
                        asked.sent_at = asyncio.get_running_loop().time()
                        self._sent += 1
                        self._inside.append(asked)
                        feed.writer.write(written)
                        await feed.writer.drain()
                if not (await wait_or_stop(self._wanted, self.idle_seconds) or self._asked):
                    failures.append(None)
                    return

    async def _receive(self, drain: _End, failures: list[TwinlogError | None]) -> None:
        returned = Returned(changed=drain.columns)
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                length = LENGTH.unpack(await drain.reader.readexactly(LENGTH.size))[0]
                content = await drain.reader.readexactly(length)
                try:
                    ended = returned.take(content, [asked.chunk for asked in self._inside])
                except WireFormatError as error:
                    failures.append(TransformFailedError(str(error)))
                    return
                for back in ended:
                    asked = self._inside.popleft()
                    if not asked.answer.done():
                        asked.answer.set_result(back)

    async def _watch(self, failures: list[TwinlogError | None]) -> None:
        """Return when Spark has taken too long for a chunk."""
        while not failures:
            await pause(min(1.0, self.timeout_seconds / 4))
            since = asyncio.get_running_loop().time() - self.timeout_seconds
            waiting = [each.sent_at for each in self._asked.values() if not each.answer.done()]
            if any(at is not None and at < since for at in waiting):
                failures.append(TransformFailedError(f"took longer than {self.timeout_seconds:g} s"))


def record_pipe(run_job: RunJob, expressions: Expressions, strict: bool) -> RecordPipe:
    return RecordPipe(run_job=run_job, timeout_seconds=expressions.timeout_seconds, strict=strict)
