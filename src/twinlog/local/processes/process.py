"""Processes that never outlive their owner, even when the owner dies by kill -9.

Between the owner (this process) and the command stands a guard (`guard.py`, ~8 MB, 30 ms to start). Signals
go through it, so a pid is never signalled after it was reaped and given to another process. Brokers,
MirrorMaker 2, services and JVMs run this way.

Every call here blocks (briefly, unless its docstring says otherwise) and is thread-safe.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import psutil

from twinlog.errors import TwinlogError

_GUARD = Path(__file__).with_name("guard.py")
_KILL_WAIT_SECONDS = 10.0
_STOPPED_WAIT_SECONDS = 10.0
_STOPPED_POLL_SECONDS = 0.001


class Pipe(Enum):
    """For `GuardedProcess(output=PIPE)`."""

    PIPE = "pipe"


PIPE: Final = Pipe.PIPE


class ProcessError(TwinlogError):
    """A program could not be started, or ended unexpectedly."""

    default_reason = "PROCESS_FAILED"


class GuardedProcess:
    """A running command with its guard. Starts at once; use as a context manager, or call `stop` or `kill`.

    `output` receives stdout: a file to append to, PIPE (then read `stdout`), or None to drop it. `errors` is
    a file for stderr, which otherwise goes to the same place as stdout. Raises ProcessError when the command
    cannot run.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        output: Path | Pipe | None = None,
        errors: Path | None = None,
    ) -> None:
        self.command = tuple(str(part) for part in command)
        self._lifeline_lock = threading.Lock()
        try:
            self._start(env=env, cwd=cwd, output=output, errors=errors)
        except OSError as error:
            raise ProcessError(
                f"cannot run {self.command[0]}: {error.strerror or error}",
                metadata={"program": self.command[0]},
            ) from error

    def _start(
        self,
        *,
        env: Mapping[str, str] | None,
        cwd: Path | None,
        output: Path | Pipe | None,
        errors: Path | None,
    ) -> None:
        """Raises ProcessError, and OSError when the guard or a pipe cannot be created."""
        lifeline_reader, self._lifeline = os.pipe()
        status_reader, status_writer = os.pipe()
        self._end, end_writer = os.pipe()
        try:
            self._guard = _start_guard(
                self.command,
                descriptors=(lifeline_reader, status_writer, end_writer),
                env=env,
                cwd=cwd,
                output=output,
                errors=errors,
            )
        except BaseException:
            os.close(self._lifeline)
            os.close(self._end)
            os.close(status_reader)
            raise
        finally:
            os.close(lifeline_reader)
            os.close(status_writer)
            os.close(end_writer)
        try:
            with os.fdopen(status_reader, "rb") as status:
                self.pid = _read_pid(status.read(), self.command)
        except BaseException:
            self._close_pipes()
            self._guard.wait()
            raise

    def fileno(self) -> int:
        """A descriptor for event loops that becomes readable when the command ends. `poll`, `wait` and `kill`
        close it once they have seen the end."""
        return self._end

    @property
    def stdout(self) -> IO[bytes]:
        """The command's stdout, when `output` was PIPE."""
        if self._guard.stdout is None:
            raise ValueError("the process was not started with output=PIPE")
        return self._guard.stdout

    @property
    def running(self) -> bool:
        return self.poll() is None

    def poll(self) -> int | None:
        """The exit code (128 + signal where a signal ended it), None while it runs."""
        code = self._guard.poll()
        if code is not None:
            self._close_pipes()
        return code

    def wait(self, timeout_seconds: float | None = None) -> int:
        """Block until it ends. Raises TimeoutError."""
        try:
            code = self._guard.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(
                f"{self.command[0]} (pid {self.pid}) still runs after {timeout_seconds} s"
            ) from error
        self._close_pipes()
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """SIGKILL, SIGSTOP and SIGCONT reach the whole process group, others only the command. No-op after
        its end."""
        if not self.running:
            return
        with self._lifeline_lock:
            # It may have ended since; then nobody reads, or another thread closed our end.
            if self._lifeline >= 0:
                with suppress(BrokenPipeError):
                    os.write(self._lifeline, bytes([number]))

    def kill(self) -> int:
        """Send SIGKILL, and wait until the command and all its descendants are gone."""
        self.send_signal(signal.SIGKILL)
        code = self.wait(_KILL_WAIT_SECONDS)
        self._close_stdout()
        return code

    def pause(self) -> None:
        """Send SIGSTOP, and wait until the command has stopped: it keeps its sockets and no longer answers.

        The signal goes through the guard, so it may take a while to arrive. Raises ProcessError.
        """
        self.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + _STOPPED_WAIT_SECONDS
        while self.running and not _is_stopped(self.pid):
            if time.monotonic() > deadline:
                raise ProcessError(
                    f"{self.command[0]} (pid {self.pid}) runs {_STOPPED_WAIT_SECONDS:g} s after SIGSTOP"
                )
            time.sleep(_STOPPED_POLL_SECONDS)

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    def stop(self, grace_seconds: float) -> int:
        """SIGTERM; SIGKILL after `grace_seconds`. Wakes it first if it was paused. Idempotent."""
        self.resume()
        self.send_signal(signal.SIGTERM)
        try:
            code = self.wait(grace_seconds)
        except TimeoutError:
            return self.kill()
        self._close_stdout()
        return code

    def cpu_seconds(self) -> float:
        """User and system time of the command and its living children. Raises ProcessError after its end."""
        try:
            process = psutil.Process(self.pid)
            family = [process, *process.children(recursive=True)]
            return sum(_own_cpu_seconds(member) for member in family)
        except psutil.Error as error:
            raise ProcessError(f"{self.command[0]} (pid {self.pid}) has ended") from error

    def resident_bytes(self) -> int:
        """Resident memory of the command itself. Raises ProcessError after its end."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error as error:
            raise ProcessError(f"{self.command[0]} (pid {self.pid}) has ended") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _close_pipes(self) -> None:
        with self._lifeline_lock:
            if self._lifeline >= 0:
                os.close(self._lifeline)
                os.close(self._end)
                self._lifeline = self._end = -1

    def _close_stdout(self) -> None:
        if self._guard.stdout is not None:
            self._guard.stdout.close()


def _is_stopped(pid: int) -> bool:
    """Whether the first thread has stopped: a stop signal keeps every thread out of user mode."""
    try:
        return str(psutil.Process(pid).status()) == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return True


def _start_guard(
    command: Sequence[str],
    *,
    descriptors: tuple[int, int, int],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    output: Path | Pipe | None,
    errors: Path | None,
) -> subprocess.Popen[bytes]:
    with ExitStack() as files:
        stdout: int | IO[bytes] = subprocess.DEVNULL if output is None else subprocess.PIPE
        stderr: int | IO[bytes] = subprocess.STDOUT
        if isinstance(output, Path):
            stdout = files.enter_context(output.open("ab"))
        if errors is not None:
            stderr = files.enter_context(errors.open("ab"))
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARD), *map(str, descriptors), *command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=None if env is None else dict(env),
            cwd=cwd,
            pass_fds=descriptors,
            # A terminal's Ctrl-C goes to the owner alone, which then stops its children in order.
            start_new_session=True,
        )


def _read_pid(status: bytes, command: Sequence[str]) -> int:
    pid: int | None = None
    for line in status.splitlines():
        if line.startswith(b"!"):
            raise ProcessError(
                f"cannot run {command[0]}: {os.strerror(int(line[1:]))}", metadata={"program": command[0]}
            )
        pid = int(line)
    if pid is None:
        raise ProcessError(
            f"cannot run {command[0]}: its guard ended at once", metadata={"program": command[0]}
        )
    return pid


def _own_cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
