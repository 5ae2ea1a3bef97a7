"""The parent of a guarded process: ends it, with everything it started, when the owner is gone.

Runs as a script of its own (`python -I -S guard.py …`), so it imports the standard library only. See
`process.py` for the owner's side. How it learns of the owner's death, however sudden:
- end of file on the lifeline, a pipe whose other end only the owner holds (everywhere);
- the owner's pidfd, where there is one (Linux): also holds if a fork of the owner keeps the pipe open; and
  should this guard itself be killed, the process dies with it by PR_SET_PDEATHSIG (Linux).

Arguments: lifeline fd, status fd, end fd, then the command. Each byte that comes over the lifeline is a
signal number to pass on. Over status goes the pid in a line, then `!` and errno in another if the command
cannot be run; it closes when the command runs. End is only held, so that it closes when this guard ends. The
exit code is the command's, 128 + signal where a signal ended it.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_GROUP_SIGNALS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT}
_ON_LINUX = sys.platform == "linux"


def main() -> int:
    lifeline, status, end = map(int, sys.argv[1:4])
    exit_code = guard(lifeline, status, end)
    if exit_code is None:
        _run(sys.argv[4:], status)
        return 127  # not reached
    return exit_code


def guard(lifeline: int, status: int, end: int) -> int | None:
    """Fork a process, and guard it to its end: its exit code. Returns None in that process, with default
    signals and, of the descriptors, `status` open: it has to close it once it runs. Where it cannot be forked
    that is said over `status`, and 127 returned."""
    for descriptor in (lifeline, status, end):
        os.set_inheritable(descriptor, False)
    owner = os.getppid()
    libc = ctypes.CDLL(None) if _ON_LINUX else None
    if libc is not None:
        # Orphans of the command become our children, so that they can be found at the end.
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_reader = _wake_on_signals()
    try:
        child = os.fork()
    except OSError as error:
        os.write(status, b"!%d\n" % (error.errno or 0))
        os.close(status)
        return 127
    if child == 0:
        _leave_guard(libc, lifeline, end, wake_reader)
        return None
    with contextlib.suppress(OSError):
        # Also done by the child itself: either comes first, and the group exists before a signal is passed
        # on.
        os.setpgid(child, child)
    os.write(status, b"%d\n" % child)
    os.close(status)
    _release_standard_streams()
    exit_code = _watch(child, lifeline, wake_reader, owner)
    _end_descendants()
    return exit_code


def _leave_guard(libc: "ctypes.CDLL | None", *descriptors: int) -> None:
    """In the child: nothing of the guard's stays."""
    guard_pid = os.getppid()
    os.setpgid(0, 0)
    if libc is not None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard_pid:
            os._exit(137)
    os.close(signal.set_wakeup_fd(-1))
    for descriptor in descriptors:
        os.close(descriptor)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def _run(command: list[str], status: int) -> None:
    """Become the command. Never returns."""
    try:
        os.execvp(command[0], command)  # noqa: S606 (a list, no shell)
    except OSError as error:
        os.write(status, b"!%d\n" % (error.errno or 0))
        os._exit(127)


def _wake_on_signals() -> int:
    """Make SIGCHLD and SIGTERM readable as bytes; keep a terminal's signals from ending the guard first."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return reader


def _release_standard_streams() -> None:
    """The reader of the command's output sees its end when the command ends, not when the guard does."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _watch(child: int, lifeline: int, wake_reader: int, owner: int) -> int:
    """Pass signals on until the child is gone; end it when the owner is."""
    watched = [lifeline, wake_reader]
    owner_handle = _open_owner(owner)
    if owner_handle is not None:
        watched.append(owner_handle)
    while True:
        readable, _, _ = select.select(watched, [], [])
        exit_code = _reap(child)
        if exit_code is not None:
            return exit_code
        commands = os.read(lifeline, 64) if lifeline in readable else None
        if commands == b"" or (owner_handle is not None and owner_handle in readable):
            _pass_on(child, signal.SIGKILL)
            watched = [wake_reader]
            owner_handle = None
            continue
        for number in commands or b"":
            _pass_on(child, number)
        if wake_reader in readable and signal.SIGTERM in os.read(wake_reader, 64):
            _pass_on(child, signal.SIGTERM)


def _open_owner(owner: int) -> int | None:
    """A descriptor that becomes readable when the owner is gone, or None where the system has none."""
    if not _ON_LINUX:
        return None
    try:
        handle = os.pidfd_open(owner)
    except OSError:
        return None
    if os.getppid() != owner:
        # It died before we looked; the pid may be another's by now. The lifeline tells.
        os.close(handle)
        return None
    return handle


def _reap(child: int) -> int | None:
    """Collect what ended (orphans too); the child's exit code once it is among them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if pid == 0:
            return None
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _pass_on(child: int, number: int) -> None:
    """SIGKILL, SIGSTOP, SIGCONT to the whole process group; others to the child alone, which ends its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if number in _GROUP_SIGNALS:
            os.killpg(child, number)
        else:
            os.kill(child, number)


def _end_descendants() -> None:
    """Kill what the command left behind (Linux): each round turns orphans into children of ours."""
    children_file = f"/proc/self/task/{os.getpid()}/children"
    while True:
        try:
            with open(children_file) as file:  # noqa: PTH123 (pathlib costs this script half its start)
                children = [int(pid) for pid in file.read().split()]
        except OSError:
            return
        if not children:
            return
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main())
