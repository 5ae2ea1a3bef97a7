"""One child process: starts it, reads its output to the end, stops it, and kills it if it does not stop."""

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Protocol

from twinlog.local.processes.process import PIPE, GuardedProcess
from twinlog.service.waiting import wait_for_any, wait_or_stop
from twinlog.supervisor.fork_server import Order

_REAP_POLL_SECONDS = 0.02
_LAST_WORDS_SECONDS = 1.0
_LINE_LIMIT_BYTES = 1 << 20
_LAST_LINES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    order: Order | None = None
    """The same for a fork server with this environment; None: no fork server can start it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    exit_code: int
    """128 + signal after a signal."""
    killed: bool
    """Whether it was killed because it did not end in time."""
    last_lines: tuple[str, ...]
    """The end of its output."""


class ChildProcess(Protocol):
    """The methods of GuardedProcess that a Child uses."""

    pid: int

    @property
    def stdout(self) -> IO[bytes]: ...

    def fileno(self) -> int: ...

    def poll(self) -> int | None: ...

    def send_signal(self, number: signal.Signals) -> None: ...


Start = Callable[[ChildSpec], Coroutine[Any, Any, ChildProcess]]
"""Starts a child. Raises TwinlogError when it cannot; leaves nothing of the child behind when cancelled."""


async def start_program(spec: ChildSpec) -> ChildProcess:
    """Start it by its command. Blocks for some 30 ms. Raises ProcessError when the command cannot run."""
    return GuardedProcess(spec.command, env=spec.environment, output=PIPE)


class Child:
    """A running child. Neither it nor its descendants outlive this process (GuardedProcess)."""

    def __init__(self, process: ChildProcess, *, on_line: Callable[[str], None]) -> None:
        self._process = process
        self._on_line = on_line
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def run(self, stop: asyncio.Event, *, grace_seconds: float) -> ChildEnd:
        """Return at its end. After `stop` it gets SIGTERM, and after `grace_seconds` it and its descendants
        get SIGKILL.

        Cancelling kills it at once.
        """
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(self._read_lines(), name="child-output")
            try:
                killed = await self._until_ended(stop, grace_seconds)
            except asyncio.CancelledError:
                await self._kill()
                raise
            # A descendant that still holds the pipe must not block the supervisor.
            await asyncio.wait([reader], timeout=_LAST_WORDS_SECONDS)
            reader.cancel()
        exit_code = self._process.poll()
        assert exit_code is not None
        return ChildEnd(exit_code=exit_code, killed=killed, last_lines=tuple(self._last_lines))

    async def _until_ended(self, stop: asyncio.Event, grace_seconds: float) -> bool:
        ended = asyncio.Event()
        with self._setting(ended):
            await wait_for_any(stop, ended)
        killed = not ended.is_set() and not await self._stopped_within(grace_seconds)
        await self._reap()
        return killed

    async def _stopped_within(self, grace_seconds: float) -> bool:
        """Send SIGTERM. False when it had to be killed."""
        self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                await self._ended()
        except TimeoutError:
            await self._kill()
            return False
        return True

    async def _kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        await asyncio.shield(self._ended())

    async def _ended(self) -> None:
        if self._process.poll() is None:
            ended = asyncio.Event()
            with self._setting(ended):
                await ended.wait()

    async def _reap(self) -> None:
        """Wait for the exit code. It arrives a moment after the end of the output, and on a busy machine that
        moment is long: the child must not count as running then."""
        never = asyncio.Event()
        while self._process.poll() is None:
            await wait_or_stop(never, _REAP_POLL_SECONDS)

    @contextmanager
    def _setting(self, ended: asyncio.Event) -> Iterator[None]:
        """Set the event when the process ends; active only inside the context."""
        loop, descriptor = asyncio.get_running_loop(), self._process.fileno()

        def note() -> None:
            loop.remove_reader(descriptor)
            ended.set()

        loop.add_reader(descriptor, note)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)

    async def _read_lines(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_LINE_LIMIT_BYTES)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stdout
        )
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:
                    # Longer than the limit: drop the part that was read; the rest follows as a line of its
                    # own.
                    continue
                if not line:
                    return
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                self._last_lines.append(text)
                self._on_line(text)
        finally:
            transport.close()
