"""The living `twinlog run`s of this machine, for their user and the command line: one file per run, with a
lock that the run holds.

The lock is free as soon as the run is gone, however it ended, and its file is void then. Everything here
blocks for the time of a few small files.

Keeps a process alive when its standard streams break: a broken pipe, a terminal that is gone, a descriptor
that was closed from the beginning (`>&-`).
"""

import contextlib
import errno
import fcntl
import json
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from twinlog.machine import is_locked, state_dir

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LivingRun:
    """The public facts of a run. Holds no secret."""

    pid: int
    config: str
    """The properties file, with links resolved."""
    listens: Mapping[str, str]
    """Service -> its bound address."""
    endpoints: Mapping[str, str]
    """Service -> its address for the command line."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Service -> the address of its metrics."""

    def is_of(self, config: Path) -> bool:
        return self.config == str(config.resolve())


@contextlib.contextmanager
def beginning() -> Iterator[None]:
    """Hold a lock, so that only one run of this user at a time reads the others and announces itself: two
    that begin together would take the same addresses. Waits for a run that is starting; does nothing without
    a writable directory."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            _make_directory()
            lock = stack.enter_context((_directory() / "beginning.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def announced(run: LivingRun) -> Iterator[None]:
    """Announce the run while the context lasts. Raises OSError without a writable directory."""
    _make_directory()
    _forget_the_dead()
    file = _directory() / f"{uuid.uuid4().hex}.json"
    draft = file.with_suffix(".draft")
    with draft.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        json.dump(asdict(run), lock)
        lock.flush()
        draft.rename(file)
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def living_runs() -> list[LivingRun]:
    """All living runs of this user; none when the directory cannot be read."""
    found = []
    for file in _files():
        with contextlib.suppress(OSError, ValueError, TypeError):
            if is_locked(file):
                found.append(LivingRun(**json.loads(file.read_text())))
    return found


def _forget_the_dead() -> None:
    for file in _files():
        with contextlib.suppress(OSError):
            if not is_locked(file):
                file.unlink()


def _files() -> list[Path]:
    try:
        return sorted(_directory().glob("*.json"))
    except OSError:
        return []


def _make_directory() -> None:
    _directory().mkdir(parents=True, exist_ok=True, mode=0o700)


def _directory() -> Path:
    return state_dir() / "runs"
