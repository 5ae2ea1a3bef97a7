"""Forks children of this process, which has loaded their modules, and waits for their ends.

Four Python processes that load the same libraries take three seconds of a core and 140 MB more than four
forks of one. A fork shows the command line of the program that it is, because that is what people and their
scripts look for.
"""

import ctypes
import gc
import multiprocessing
import os
import runpy
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from twinlog.supervisor.runs import silence

ON_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_ARG_START, _ARG_END = 47, 48
"""Fields of /proc/self/stat, from 0 (proc_pid_stat(5))."""
_M_ARENA_MAX = -8
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIGNALLED = 128
"""Added to a signal's number it is the exit code of what the signal ended, as in a shell."""
# System libraries of macOS do not survive a fork.
_PROCESSES: Any = multiprocessing.get_context("fork" if ON_LINUX else "spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`python -m MODULE ARGUMENTS…`."""

    name: str
    module: str
    arguments: Sequence[str]


def load(modules: Collection[str]) -> None:
    """Load what children will share. None of the modules may start a thread or open a socket."""
    # gRPC reads this when it is loaded. Forks happen before its first use, and it would warn of each.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        # Each of glibc's per-thread arenas costs memory that a service does not need.
        libc.mallopt(_M_ARENA_MAX, 2)
    if ON_LINUX:
        for module in modules:
            # What a signal raises in the middle of an import can be lost there.
            with _signals_held_back():
                import_module(module)
    # Collections in a child then skip these objects and leave shared memory shared.
    gc.collect()
    gc.freeze()


@dataclass(slots=True)
class Children:
    """Running children by name. Neither they nor what they have started outlive this process. Use it from the
    main thread only."""

    _processes: dict[str, BaseProcess] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """A defect of this process leaves none running: the interpreter would wait for their ends."""
        for name in self._processes:
            self.signal(name, signal.SIGKILL)

    def start(self, program: Program) -> int:
        """Its process id. Raises OSError."""
        process: BaseProcess = _PROCESSES.Process(target=_become, args=(program, os.getpid()))
        with _signals_held_back():
            process.start()
        self._processes[program.name] = process
        assert process.pid is not None
        return process.pid

    def signal(self, name: str, number: signal.Signals) -> None:
        """No-op after its end."""
        process = self._processes.get(name)
        if process is not None and process.exitcode is None:
            assert process.pid is not None
            os.kill(process.pid, number)

    def wait(self, seconds: float | None, wake: int) -> list[tuple[str, int]]:
        """The exit codes of those that have ended. Waits for the first end, and for something to read at
        `wake`."""
        sentinels = [process.sentinel for process in self._processes.values()]
        connection.wait([*sentinels, wake], seconds)
        ended = []
        for name, process in list(self._processes.items()):
            if process.exitcode is not None:
                code = process.exitcode
                ended.append((name, code if code >= 0 else _SIGNALLED - code))
                del self._processes[name]
                process.close()
        return ended


@contextmanager
def signals(numbers: Collection[signal.Signals]) -> Iterator[int]:
    """A descriptor from which the numbers of these signals are read."""
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    # First, so that no signal is lost between the two.
    former_fd = signal.set_wakeup_fd(writer)
    former = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(former_fd)
        for number, handler in former.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def read_signals(descriptor: int) -> bytes:
    """The numbers that wait there."""
    try:
        return os.read(descriptor, 64)
    except BlockingIOError:
        return b""


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Deliver them afterwards. A fork would write a signal of its own to the descriptor of this process."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _become(program: Program, parent: int) -> None:
    """In the child: be the program, and exit."""
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    # A terminal's Ctrl-C must reach only the parent, which then stops its children in order.
    os.setsid()
    end_with(parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
    os.dup2(2, 1)
    sys.argv = [program.module, *program.arguments]
    _show_command_line([sys.executable, "-m", program.module, *program.arguments])
    try:
        runpy.run_module(program.module, run_name="__main__", alter_sys=True)
    finally:
        # Where nobody reads any more, what is left would fail the process at its exit.
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                silence(stream)


def end_with(parent: int) -> None:
    """Have this process killed as soon as its parent is gone, however that ended."""
    if ON_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(_SIGNALLED + signal.SIGKILL)
        return
    of_parent = multiprocessing.parent_process()
    assert of_parent is not None

    def follow() -> None:
        connection.wait([of_parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=follow, name="parent", daemon=True).start()


def _show_command_line(arguments: Sequence[str]) -> None:
    """Show these arguments in a list of processes, cut to the room that the command line of the first process
    has. Does nothing where the kernel does not tell where that is."""
    try:
        # The process name, in parentheses, may contain spaces.
        numbers = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = (int(numbers[field - 2]) for field in (_ARG_START, _ARG_END))
    except (OSError, ValueError, IndexError):
        return
    if 0 < start < end:
        shown = b"\0".join(os.fsencode(argument) for argument in arguments)[: end - start - 1]
        ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)
