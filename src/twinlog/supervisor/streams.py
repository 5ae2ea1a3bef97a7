"""Keeps a process alive when its standard streams break: a broken pipe, a terminal that is gone, a descriptor
that was closed from the beginning (`>&-`)."""

import errno
import os
import sys
from contextlib import suppress
from typing import Protocol

NOBODY_READS = frozenset({errno.EPIPE, errno.EIO})
"""The errors of a write after which no other can succeed."""


def complete_standard_streams() -> None:
    """Open closed standard streams on the null device. Call it before anything else is opened: a socket would
    take the closed stream's number, and a later print would write to it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 (as long as the process)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 (as long as the process)


class OutputStream(Protocol):
    """The methods of a text stream that lines are written with."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...

    def fileno(self) -> int: ...


def write_line(stream: OutputStream, line: str) -> None:
    """Write and flush. A line that cannot be written is lost, and the process continues."""
    try:
        stream.write(line + "\n")
        stream.flush()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in NOBODY_READS:
            silence(stream)


def silence(stream: OutputStream) -> None:
    """Drop what is written from now on, and what is left in its buffer, which would fail the process at its
    exit."""
    with suppress(OSError, ValueError):
        point_to_nowhere(stream.fileno())
        stream.flush()


def point_to_nowhere(descriptor: int) -> None:
    """What is written to it from now on is lost, and fails nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
