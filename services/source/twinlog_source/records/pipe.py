"""The task's end of a pipe through Spark: sends chunks of records, and gets back what became of them.

The pipe is a Spark job that the driver runs; its two workers connect to this process, wherever they are. It
is opened when there is something to send, stays for the tasks that come later, and is opened again after it
broke. Then nothing of it counts: whoever sent a chunk is told that it was lost, and why.
"""

import asyncio
import itertools
import secrets
import socket
import ssl
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
    TOKEN_BYTES,
    Back,
    ChunkOut,
    Returned,
    decode_columns,
    encode_chunk,
)
from twinlog_source.records.reach import LOOPBACK, Reach

OPEN_SECONDS = 300.0
"""How long the first job may take: Spark loads its SQL, and may wait for a core."""
HELLO_SECONDS = 5.0
MOST_GREETINGS = 16
"""So many connections at once may be without a token."""
LAST_WORDS_SECONDS = 20.0
"""How long after a broken connection the failure of the job is waited for: only with it the record is looked
for. The job of a machine that is lost does not fail: Spark keeps it until there is a core to run it again."""
REOPEN_SECONDS = 1.0
_NUMBERS = itertools.count(1)

log = structlog.get_logger(__name__)


class TransformFailedError(TwinlogError):
    """Spark failed with these records: one of them may be the reason."""

    default_reason = "TRANSFORM_FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeJob:
    """What the driver is asked to run."""

    number: int = 0
    """Of the job, in the process that asks for it."""
    pipe: int = 0
    """Which pipe of that process this is: a pipe has one job at a time."""
    host: str = LOOPBACK
    port: int
    """Where the job's two workers connect to."""
    certificate: str = ""
    """PEM: a peer with another certificate is not the process that asks; empty: they are on its machine."""
    token: bytes = field(repr=False)
    strict: bool
    """An expression that fails ends the job, and its error says why."""


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
    idle_seconds: float
    """A job through which nothing has gone for so long is ended: it keeps a core and processes of Spark."""
    reach: Callable[[], Reach] = Reach
    """May block. Raises OSError."""
    number: int = field(default_factory=_NUMBERS.__next__)
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
        try:
            reach = await asyncio.to_thread(self.reach)
            listener = reach.listen()
        except OSError as error:
            told = f"no port for the job that changes records: {error}"
            return TransientKafkaError(told, reason="SPARK_UNAVAILABLE")
        with listener:
            listener.setblocking(False)
            job = PipeJob(
                number=next(_NUMBERS),
                pipe=self.number,
                host=reach.host,
                port=listener.getsockname()[1],
                certificate=reach.certificate,
                token=token,
                strict=self.strict,
            )

            async def run_job() -> None:
                failure = await self.run_job(job)
                if failure is not None:
                    failures.append(failure)

            async def move() -> None:
                try:
                    async with asyncio.timeout(OPEN_SECONDS):
                        ends = await _accept(listener, token, reach.tls)
                except TimeoutError:
                    told = f"Spark's job for changing records did not start within {OPEN_SECONDS:g} s"
                    failures.append(TransientKafkaError(told, reason="SPARK_UNAVAILABLE"))
                    return
                listener.close()  # If Spark runs the job's task again, that fails at once.
                await self._move(ends, failures)

            async with asyncio.TaskGroup() as group:
                running = group.create_task(run_job(), name="job of the pipe")
                moving = group.create_task(move(), name="pipe")
                await asyncio.wait([running, moving], return_when=asyncio.FIRST_COMPLETED)
                moving.cancel()
                # The connection breaks before the job says why.
                await asyncio.wait([running], timeout=0 if failures else LAST_WORDS_SECONDS)
                running.cancel()
        if failures:
            return failures[0]
        told = "Spark's job for changing records was lost, as with a machine of the cluster"
        return TransientKafkaError(told, reason="SPARK_UNAVAILABLE")

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


async def _accept(listener: socket.socket, token: bytes, tls: ssl.SSLContext | None) -> Mapping[bytes, _End]:
    """Both ends of the pipe, as FEED and DRAIN. Whoever shows no token delays neither."""
    loop = asyncio.get_running_loop()
    ends: dict[bytes, _End] = {}
    both, room = asyncio.Event(), asyncio.Semaphore(MOST_GREETINGS)

    async def greet(connection: socket.socket) -> None:
        try:
            name, end = await _greeting(connection, token, tls)
            if name in ends:
                ends[name].writer.close()  # Spark has run its task again.
            ends[name] = end
            if len(ends) == len((FEED, DRAIN)):
                both.set()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            log.debug("pipe_refused", error=str(error))
        finally:
            room.release()

    async def admit(group: asyncio.TaskGroup) -> None:
        while True:
            await room.acquire()
            connection, _ = await loop.sock_accept(listener)
            task = group.create_task(greet(connection), name="greeting of a pipe")
            greetings.add(task)
            task.add_done_callback(greetings.discard)

    greetings: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as group:
        admitting = group.create_task(admit(group), name="greetings of a pipe")
        await both.wait()
        for each in (admitting, *greetings):
            each.cancel()
    return ends


async def _greeting(
    connection: socket.socket, token: bytes, tls: ssl.SSLContext | None
) -> tuple[bytes, _End]:
    """Which end of the pipe a connection is. Raises OSError (also for one that shows another token),
    IncompleteReadError and TimeoutError."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    async with asyncio.timeout(HELLO_SECONDS):
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=tls)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            hello = await reader.readexactly(1 + TOKEN_BYTES + 1)
            if not secrets.compare_digest(hello[1:-1], token) or hello[:1] not in (FEED, DRAIN):
                raise ConnectionRefusedError("another token")
        except BaseException:
            writer.close()
            raise
    return hello[:1], _End(reader, writer, decode_columns(hello[-1]))


def record_pipe(
    run_job: RunJob,
    expressions: Expressions,
    strict: bool,
    idle_seconds: float,
    reach: Callable[[], Reach] = Reach,
) -> RecordPipe:
    return RecordPipe(
        run_job=run_job,
        timeout_seconds=expressions.timeout_seconds,
        strict=strict,
        idle_seconds=idle_seconds,
        reach=reach,
    )
