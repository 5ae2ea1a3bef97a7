"""Services as forks of one process: see `fork_server`. This is the supervisor's side."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import IO

from twinlog.local.processes.process import ProcessError
from twinlog.supervisor.child import ChildProcess, ChildSpec, start_program
from twinlog.supervisor.command_line import padding
from twinlog.supervisor.fork_server import MODULE, READY, Order

_FORK_SECONDS = 10.0
"""What a fork may take, which takes milliseconds."""
_LOAD_SECONDS = 60.0
"""What loading all modules may take, which takes one or two. Until then no service runs."""
_STDERR = 2
_KILLED = 128 + signal.SIGKILL


class ForkServer:
    """A running fork server. Linux only. It ends with `close`, or with this process."""

    def __init__(self, modules: Sequence[str], *, environment: Mapping[str, str]) -> None:
        """Starts it. `modules`: what services will be made of; `environment`: theirs, too. Raises
        ProcessError."""
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", MODULE, str(theirs.fileno()), padding()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=_STDERR,  # also where it is not inherited: see `complete_standard_streams`
                    env=dict(environment),
                    pass_fds=(theirs.fileno(),),
                    # A terminal's Ctrl-C goes to the supervisor alone, which then stops services in order.
                    start_new_session=True,
                )
            self._orders.send(json.dumps(list(modules)).encode())
        except OSError as error:
            self._orders.close()
            raise ProcessError(f"cannot run {sys.executable}: {error}") from error

    async def ready(self, *, timeout_seconds: float) -> bool:
        """Wait until it has loaded everything. False when it ended, or did not come to it in time."""
        self._orders.setblocking(False)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.get_running_loop().sock_recv(self._orders, len(READY)) == READY
        except OSError:
            return False
        finally:
            self._orders.setblocking(True)
            self._orders.settimeout(_FORK_SECONDS)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def fork(self, order: Order) -> "ForkedProcess":
        """Blocks for some milliseconds. Raises ProcessError."""
        return ForkedProcess(order, self._orders)

    def close(self) -> None:
        """End it, and with it what it has forked. Idempotent."""
        self._orders.close()
        self._process.kill()
        self._process.wait()


class Starter:
    """Makes children: forks where a fork server lives, else programs of their own."""

    def __init__(self, server: ForkServer | None) -> None:
        self._server = server

    def __call__(self, spec: ChildSpec) -> ChildProcess:
        """Blocks and raises as `ForkServer.fork` or `start_program`."""
        if self._server is not None and self._server.running and spec.order is not None:
            return self._server.fork(spec.order)
        return start_program(spec)


@asynccontextmanager
async def open_starter(modules: Sequence[str], environment: Mapping[str, str]) -> AsyncIterator[Starter]:
    """With a fork server where the system has what that needs (Linux), and one that has come to be ready."""
    if sys.platform != "linux":
        yield Starter(None)
        return
    server = ForkServer(modules, environment=environment)
    try:
        is_ready = await server.ready(timeout_seconds=_LOAD_SECONDS)
        yield Starter(server if is_ready else None)
    finally:
        server.close()


class ForkedProcess:
    """A running fork with its guard. Neither it nor what it started outlives this process."""

    def __init__(self, order: Order, orders: socket.socket) -> None:
        self._code: int | None = None
        with ExitStack() as kept, ExitStack() as handed_over:
            lifeline, self._lifeline = _pipe(handed_over, kept)
            status, status_writer = _pipe(kept, handed_over)
            self._end, end_writer = _pipe(kept, handed_over)
            output, output_writer = _pipe(kept, handed_over)
            descriptors = [lifeline, status_writer, end_writer, output_writer]
            try:
                socket.send_fds(orders, [order.encoded()], descriptors)
                handed_over.close()
                self.pid = _read_pid(status, order)
            except OSError as error:
                raise ProcessError(f"{order.module} was not forked: {error}") from error
            kept.pop_all()
        os.close(status)
        self.stdout: IO[bytes] = os.fdopen(output, "rb", buffering=0)

    def fileno(self) -> int:
        """A descriptor that becomes readable when it ends. `poll` closes it once it has seen the end."""
        return self._end

    def poll(self) -> int | None:
        """The exit code (128 + signal where a signal ended it), None while it runs."""
        if self._code is None and select.select([self._end], [], [], 0)[0]:
            said = os.read(self._end, 16)
            # Its guard was killed, and took it along.
            self._code = int(said) if said else _KILLED
            os.close(self._end)
            os.close(self._lifeline)
        return self._code

    def send_signal(self, number: signal.Signals) -> None:
        """SIGKILL, SIGSTOP and SIGCONT reach its whole process group, others it alone. No-op once it
        ended."""
        if self.poll() is None:
            with suppress(BrokenPipeError):
                os.write(self._lifeline, bytes([number]))


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A new pipe; each stack closes its end."""
    ends = os.pipe()
    for stack, end in zip((reader, writer), ends, strict=True):
        stack.callback(os.close, end)
    return ends


def _read_pid(status: int, order: Order) -> int:
    """Raises ProcessError when it was not forked in time."""
    said = b""
    while select.select([status], [], [], _FORK_SECONDS)[0]:
        more = os.read(status, 64)
        if not more and said:
            return int(said)
        if not more:
            break
        said += more
    raise ProcessError(f"{order.module} was not forked: the process that forks it does not answer")
