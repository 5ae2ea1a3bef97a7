"""Kills the process groups that the process before it started, once that process is gone, however it ended.

Runs as a script of its own (`python -I -S reaper.py OWNER`, a process id). Each line on stdin is a process
id: a group that has begun, or with a minus, one that has ended. A fork of the owner may keep stdin open, so
the owner itself is watched, too, on Linux.
"""

import contextlib
import os
import select
import signal
import sys


def main() -> None:
    groups: set[int] = set()
    watched, owner = [0], int(sys.argv[1])
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            watched.append(os.pidfd_open(owner))
    # The owner may be gone before it is watched. What it has told is still to be read.
    seconds = None if os.getppid() == owner else 0.0
    told = b""
    while 0 in (readable := select.select(watched, [], [], seconds)[0]):
        more = os.read(0, 4096)
        if not more:
            break
        *lines, told = (told + more).split(b"\n")
        for number in map(int, lines):
            groups.symmetric_difference_update({abs(number)})
        if len(readable) > 1:
            break
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
