"""Processes that never outlive their owner, even when the owner dies by kill -9.

One small process (`reaper.py`) knows the process groups that this process has started, and kills them when it
is gone. Brokers, MirrorMaker 2, services and JVMs run this way.

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
from pathlib import Path
from typing import IO, Self

import psutil

from twinlog.errors import TwinlogError

# Follows a log file that another process writes.


class LogTail:
    """Returns whole new lines, beginning at the file's present end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = path.stat().st_size if path.exists() else 0

    def new_lines(self) -> list[str]:
        """Lines completed since the last call; none while the file does not exist."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                read = file.read()
        except FileNotFoundError:
            return []
        whole = read[: read.rfind(b"\n") + 1]
        self._position += len(whole)
        return whole.decode(errors="replace").splitlines()


def last_lines(path: Path, count: int) -> str:
    """The end of a log for an error message; empty when there is no file."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-count:])


_REAPER = Path(__file__).with_name("reaper.py")
_KILL_WAIT_SECONDS = 10.0
_STOPPED_WAIT_SECONDS = 10.0
_STOPPED_POLL_SECONDS = 0.001
_GROUP_SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)


class ProcessError(TwinlogError):
    """A program could not be started, or ended unexpectedly."""

    default_reason = "PROCESS_FAILED"


class _Reaper:
    """The owner's side of `reaper.py`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    def tell(self, group: int) -> None:
        """A group has begun, or ended (negative)."""
        with self._lock:
            # A fork has groups of its own.
            if self._process is None or self._owner != os.getpid():
                self._owner = os.getpid()
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_REAPER), str(self._owner)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                os.write(self._process.stdin.fileno(), b"%d\n" % group)


_reaper = _Reaper()


class GuardedProcess:
    """A running command, in a process group of its own. Starts at once; use as a context manager, or call
    `stop` or `kill`.

    `output` receives stdout: a file to append to, or None to drop it. `errors` is a file for stderr, which
    otherwise goes to the same place as stdout. Raises ProcessError when the command cannot run.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        output: Path | None = None,
        errors: Path | None = None,
    ) -> None:
        self.command = tuple(str(part) for part in command)
        self._lock = threading.Lock()
        self._is_over = False
        self._owner = os.getpid()
        try:
            with ExitStack() as files:
                stdout: int | IO[bytes] = subprocess.DEVNULL
                stderr: int | IO[bytes] = subprocess.STDOUT
                if output is not None:
                    stdout = files.enter_context(output.open("ab"))
                if errors is not None:
                    stderr = files.enter_context(errors.open("ab"))
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env=None if env is None else dict(env),
                    cwd=cwd,
                    # A terminal's Ctrl-C goes to the owner alone, which then stops its children in order.
                    start_new_session=True,
                )
        except OSError as error:
            raise ProcessError(
                f"cannot run {self.command[0]}: {error.strerror or error}",
                metadata={"program": self.command[0]},
            ) from error
        _reaper.tell(self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self.poll() is None

    def poll(self) -> int | None:
        """The exit code (128 + signal where a signal ended it), None while it runs."""
        code = self._process.poll()
        return None if code is None else self._ended(code)

    def wait(self, timeout_seconds: float | None = None) -> int:
        """Block until it ends. Raises TimeoutError."""
        try:
            return self._ended(self._process.wait(timeout_seconds))
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(
                f"{self.command[0]} (pid {self.pid}) still runs after {timeout_seconds} s"
            ) from error

    def send_signal(self, number: signal.Signals) -> None:
        """SIGKILL, SIGSTOP and SIGCONT reach the whole process group, others only the command. No-op after
        its end."""
        if not self.running:
            return
        if number in _GROUP_SIGNALS:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)
        else:
            self._process.send_signal(number)

    def kill(self) -> int:
        """Send SIGKILL to the command and its process group, and wait until the command is gone."""
        self.send_signal(signal.SIGKILL)
        return self.wait(_KILL_WAIT_SECONDS)

    def pause(self) -> None:
        """Send SIGSTOP, and wait until the command has stopped: it keeps its sockets and no longer answers.

        Raises ProcessError.
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
            return self.wait(grace_seconds)
        except TimeoutError:
            return self.kill()

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

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _ended(self, code: int) -> int:
        with self._lock:
            # To a fork of the owner, which cannot wait for it, it seems to have ended.
            if not self._is_over and self._owner == os.getpid():
                self._is_over = True
                # Its own children may live on for a moment.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                _reaper.tell(-self.pid)
        return code if code >= 0 else 128 - code


def _is_stopped(pid: int) -> bool:
    """Whether the first thread has stopped: a stop signal keeps every thread out of user mode."""
    try:
        return str(psutil.Process(pid).status()) == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return True


def _own_cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
