"""Starts services as forks of one process (see `fork_server`): the supervisor's side."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import IO

from twinlog.local.processes.process import ProcessError
from twinlog.service.waiting import finish_or_cancel
from twinlog.supervisor.child import ChildProcess, ChildSpec, start_program
from twinlog.supervisor.command_line import padding
from twinlog.supervisor.fork_server import MODULE, READY, Order

_FORK_SECONDS = 10.0
"""Limit for a fork, which takes milliseconds. Other services start meanwhile."""
_LOAD_SECONDS = 60.0
"""Limit for loading all modules, which takes one or two seconds. No service runs before that."""
_STDERR = 2
_KILLED = 128 + signal.SIGKILL


class ForkServer:
    """A running fork server. Linux only. Ends with `close`, or with this process."""

    def __init__(self, modules: Sequence[str], *, environment: Mapping[str, str]) -> None:
        """Starts it. `modules`: the services' modules; `environment`: also the services'. Raises
        ProcessError."""
        try:
            self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise ProcessError(f"no process that forks services: {error}") from error
        self._is_silent = False
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", MODULE, str(theirs.fileno()), padding()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=_STDERR,  # also where it is not inherited: see `complete_standard_streams`
                    env=dict(environment),
                    pass_fds=(theirs.fileno(),),
                    # A terminal's Ctrl-C must reach only the supervisor, which then stops services in order.
                    start_new_session=True,
                )
            self._orders.send(json.dumps(list(modules)).encode())
            self._orders.setblocking(False)
        except OSError as error:
            self._orders.close()
            raise ProcessError(f"cannot run {sys.executable}: {error}") from error

    async def ready(self, *, timeout_seconds: float) -> bool:
        """Wait until all modules are loaded. False when it ended or took too long."""
        try:
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.get_running_loop().sock_recv(self._orders, len(READY)) == READY
        except OSError:
            return False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def answers(self) -> bool:
        """False once it has ended or has not answered an order: later orders would wait as long."""
        return self.running and not self._is_silent

    async def fork(self, order: Order, *, timeout_seconds: float = _FORK_SECONDS) -> "ForkedProcess":
        """Raises ProcessError when the fork fails or takes too long. Then nothing of the service runs, or it
        is killed as soon as it starts."""
        try:
            async with asyncio.timeout(timeout_seconds):
                return await _ask(self._orders, order)
        except TimeoutError as error:
            self._is_silent = True
            raise ProcessError(
                f"{order.module} was not forked: the process that forks it does not answer"
            ) from error

    def close(self) -> None:
        """End it together with its forks. Idempotent."""
        self._orders.close()
        self._process.kill()
        self._process.wait()


Tell = Callable[[str], None]
"""Receives the reason why a service is not forked; it runs nevertheless."""


class Starter:
    """Starts children: as forks while a fork server runs, else as separate programs, which need more
    memory."""

    def __init__(self, server: ForkServer | None, *, tell: Tell, fork_seconds: float = _FORK_SECONDS) -> None:
        self._server = server
        self._tell = tell
        self._fork_seconds = fork_seconds

    async def __call__(self, spec: ChildSpec) -> ChildProcess:
        """Raises as `start_program`."""
        if self._server is not None and self._server.answers and spec.order is not None:
            try:
                return await self._server.fork(spec.order, timeout_seconds=self._fork_seconds)
            except ProcessError as error:
                self._tell(str(error))
        return await start_program(spec)


@asynccontextmanager
async def open_starter(
    modules: Sequence[str], environment: Mapping[str, str], *, stop: asyncio.Event, tell: Tell
) -> AsyncIterator[Starter]:
    """A starter with a fork server, if the system supports one (Linux) and it is ready before `stop`."""
    if sys.platform != "linux":
        yield Starter(None, tell=tell)
        return
    try:
        server = ForkServer(modules, environment=environment)
    except ProcessError as error:
        tell(str(error))
        yield Starter(None, tell=tell)
        return
    try:
        loading = server.ready(timeout_seconds=_LOAD_SECONDS)
        is_ready = await finish_or_cancel(loading, stop=stop, grace_seconds=0.0)
        yield Starter(server if is_ready else None, tell=tell)
    finally:
        server.close()


class ForkedProcess:
    """A running fork with its guard. Neither it nor its descendants outlive this process."""

    def __init__(self, pid: int, *, lifeline: int, end: int, output: int) -> None:
        """Takes ownership of the descriptors."""
        self.pid = pid
        self._lifeline = lifeline
        self._end = end
        self._code: int | None = None
        self._said = b""
        self.stdout: IO[bytes] = os.fdopen(output, "rb", buffering=0)

    def fileno(self) -> int:
        """A descriptor that becomes readable at its end. `poll` closes it once it has seen the end."""
        return self._end

    def poll(self) -> int | None:
        """The exit code (128 + signal where a signal ended it), None while it or its guard runs."""
        while self._code is None and select.select([self._end], [], [], 0)[0]:
            said = os.read(self._end, 16)
            self._said += said
            if not said:
                # The guard has ended as well. If it said nothing, it was killed, and the service with it.
                self._code = int(self._said) if self._said else _KILLED
                os.close(self._end)
                os.close(self._lifeline)
        return self._code

    def send_signal(self, number: signal.Signals) -> None:
        """SIGKILL, SIGSTOP and SIGCONT reach its whole process group, others only the process. No-op after
        its end."""
        if self.poll() is None:
            with suppress(BrokenPipeError):
                os.write(self._lifeline, bytes([number]))


async def _ask(orders: socket.socket, order: Order) -> ForkedProcess:
    """Send the order, and wait until it is carried out. Raises ProcessError. After a failure or cancellation
    the lifeline closes: a guard kills any fork made after that."""
    with ExitStack() as kept, ExitStack() as handed_over:
        try:
            lifeline, lifeline_writer = _pipe(handed_over, kept)
            status, status_writer = _pipe(kept, handed_over)
            end, end_writer = _pipe(kept, handed_over)
            output, output_writer = _pipe(kept, handed_over)
            descriptors = [lifeline, status_writer, end_writer, output_writer]
            socket.send_fds(orders, [order.encoded()], descriptors)
            handed_over.close()
            pid = _pid(await _read_all(status), order)
        except TimeoutError:
            raise
        except OSError as error:
            raise ProcessError(f"{order.module} was not forked: {error.strerror or error}") from error
        kept.pop_all()
    os.close(status)
    return ForkedProcess(pid, lifeline=lifeline_writer, end=end, output=output)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A new pipe; each stack closes its end."""
    ends = os.pipe()
    for stack, end in zip((reader, writer), ends, strict=True):
        stack.callback(os.close, end)
    return ends


async def _read_all(descriptor: int) -> bytes:
    """All bytes of a pipe until its end."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    said = b""
    loop.add_reader(descriptor, readable.set)
    try:
        while True:
            await readable.wait()
            readable.clear()
            more = os.read(descriptor, 64)
            if not more:
                return said
            said += more
    finally:
        loop.remove_reader(descriptor)


def _pid(said: bytes, order: Order) -> int:
    """The process id in the answer to an order. Raises ProcessError when the answer is an error or empty."""
    for line in said.splitlines():
        if not line.startswith(b"!"):
            return int(line)
        raise ProcessError(f"{order.module} was not forked: {os.strerror(int(line[1:]))}")
    raise ProcessError(f"{order.module} was not forked: the process that forks it gave no answer")
