"""Keeps a process alive when its standard streams break: a broken pipe, a terminal that is gone, a descriptor
that was closed from the beginning (`>&-`)."""

import errno
import os
import sys
from contextlib import suppress
from typing import TextIO

_NOBODY_READS = {errno.EPIPE, errno.EIO}


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


def write_line(stream: TextIO, line: str) -> None:
    """Write and flush. A line that cannot be written is lost, and the process continues."""
    try:
        stream.write(line + "\n")
        stream.flush()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _NOBODY_READS:
            silence(stream)


def silence(stream: TextIO) -> None:
    """Drop what is written from now on, and what is left in its buffer, which would fail the process at its
    exit."""
    with suppress(OSError, ValueError):
        descriptor = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
        stream.flush()
