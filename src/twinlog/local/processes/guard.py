"""The parent of a guarded process: kills it and its descendants when the owner is gone.

Runs as a script of its own (`python -I -S guard.py …`), so it imports only the standard library. The owner's
side is in `process.py`. The guard learns of the owner's death, however sudden, in these ways:
- end of file on the lifeline, a pipe whose other end only the owner holds (everywhere);
- the owner's pidfd (Linux), which also works when a fork of the owner keeps the pipe open;
- should the guard itself be killed, PR_SET_PDEATHSIG (Linux) ends the process with it.

Arguments: lifeline fd, status fd, end fd, then the command. Each byte on the lifeline is a signal number to
pass on. The guard writes the pid as a line to the status fd, then `!` and errno as another line if the
command cannot run; the fd closes when the command runs. The end fd is only held: it closes when the guard
ends. The exit code is the command's, or 128 + signal.
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
    """Fork a process and guard it to its end; return its exit code.

    Returns None in the forked process, with default signals and only `status` open; that process closes it
    once it runs. A failed fork is reported over `status`, and the exit code is 127.
    """
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
        # The child does this too. Whichever comes first, the group exists before a signal is passed on.
        os.setpgid(child, child)
    os.write(status, b"%d\n" % child)
    os.close(status)
    _release_standard_streams()
    exit_code = _watch(child, lifeline, wake_reader, owner)
    _end_descendants()
    return exit_code


def _leave_guard(libc: "ctypes.CDLL | None", *descriptors: int) -> None:
    """In the child: undo everything that belongs to the guard."""
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
    """Make SIGCHLD and SIGTERM readable as bytes. A terminal's signals must not end the guard first."""
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
    """Close the guard's standard streams, so that a reader of the command's output sees the end when the
    command ends."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _watch(child: int, lifeline: int, wake_reader: int, owner: int) -> int:
    """Pass signals on until the child is gone; kill it when the owner is gone."""
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
    """A descriptor that becomes readable when the owner is gone; None where the system has no such thing."""
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
    """Reap ended children, orphans too; return the child's exit code once it ended."""
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
    """Send SIGKILL, SIGSTOP and SIGCONT to the whole process group, and others only to the child, which stops
    its own children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if number in _GROUP_SIGNALS:
            os.killpg(child, number)
        else:
            os.kill(child, number)


def _end_descendants() -> None:
    """Kill what the command left behind (Linux). Each round turns orphans into children of the guard."""
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
