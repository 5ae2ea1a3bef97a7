"""Changes the command line that a list of processes shows for a forked process, in that process's own memory.

A library for this shows a title, not a list of arguments as `python -m` has.
"""

import ctypes
import os
from collections.abc import Sequence

ROOM_BYTES = 4096
"""The space that `padding` reserves for a later command line."""
_ARG_START, _ARG_END = 47, 48
"""Fields of /proc/self/stat, from 0 (proc_pid_stat(5))."""


def padding() -> str:
    """A last argument for a process that will show other command lines, which cannot be longer than its
    own."""
    return " " * ROOM_BYTES


def show_command_line(arguments: Sequence[str]) -> None:
    """Show these arguments as this process's, cut to the available space. Does nothing when the kernel does
    not tell where they are."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            # The process name, in parentheses, may contain spaces.
            fields = file.read().rpartition(b")")[2].split()
        start, end = (int(fields[number - 2]) for number in (_ARG_START, _ARG_END))
    except (OSError, ValueError, IndexError):
        return
    if not 0 < start < end:
        return
    shown = b"\0".join(os.fsencode(argument) for argument in arguments)[: end - start - 1]
    ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)
