"""Writes to stdout and stderr in threads of their own: a reader that stands still (`| less`, a log driver
that blocks) holds up neither the services nor a stop.

Lines are written in order. While nobody reads, at most `MOST_BYTES` of them wait; further lines are dropped
and counted, and a line at their place says how many they were. Descriptors are written to directly: a thread
that stands in a write of `sys.stderr` would keep its lock, which the interpreter needs at its exit.
"""

import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TextIO

from twinlog.supervisor.streams import NOBODY_READS, point_to_nowhere

MOST_BYTES = 8 << 20
_FLUSH_SECONDS = 2.0
"""How long the end of a run waits for a reader."""

Line = tuple[int, bytes]
"""A descriptor, and what to write to it."""


@dataclass(slots=True, kw_only=True)
class WaitingLines:
    """Lines that are not written yet. Pure. Invariant: they take at most `most_bytes` of memory."""

    most_bytes: int
    _lines: deque[Line] = field(default_factory=deque)
    _bytes: int = 0
    _dropped: int = 0

    def put(self, line: Line) -> None:
        size = sys.getsizeof(line[1])
        # Once a line was dropped, all others are until the reader is back: they are missing at one place.
        if self._dropped or self._bytes + size > self.most_bytes:
            self._dropped += 1
            return
        self._lines.append(line)
        self._bytes += size

    def take(self) -> Line | int | None:
        """The next line; after the last one, how many were dropped there; None if nothing waits."""
        if self._lines:
            line = self._lines.popleft()
            self._bytes -= sys.getsizeof(line[1])
            return line
        dropped, self._dropped = self._dropped, 0
        return dropped or None


class LineWriter:
    """Writes lines in a thread. `put` never waits for a reader."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._lines = WaitingLines(most_bytes=most_bytes)
        self._changed = threading.Condition()
        self._is_closed = False
        self._notice: Callable[[int], Line] | None = None
        # Not waited for at the exit of the process: it may stand in a write.
        self._thread = threading.Thread(target=self._write_all, name="output", daemon=True)
        self._thread.start()

    def put(self, line: Line) -> None:
        with self._changed:
            self._lines.put(line)
            self._changed.notify()

    def tell_dropped(self, notice: Callable[[int], Line]) -> None:
        """Write this line where so many are missing. Called in the thread."""
        self._notice = notice

    def close(self, *, timeout_seconds: float) -> bool:
        """Wait until everything is written, at most this long. Whether it is."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _write_all(self) -> None:
        while (found := self._next()) is not None:
            if not isinstance(found, int):
                write_whole(*found)
            elif self._notice is not None:
                write_whole(*self._notice(found))

    def _next(self) -> Line | int | None:
        """Waits for it. None: closed, and everything is written."""
        with self._changed:
            while (found := self._lines.take()) is None and not self._is_closed:
                self._changed.wait()
        return found


def write_whole(descriptor: int, content: bytes) -> None:
    """Waits for the reader. What cannot be written is lost; without a reader, also all that follows."""
    left = memoryview(content)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            # Another process has made the terminal or pipe non-blocking.
            select.select([], [descriptor], [])
        except OSError as error:
            if error.errno in NOBODY_READS:
                point_to_nowhere(descriptor)
            return


class QueuedStream:
    """Takes the place of stdout or stderr; writes by a LineWriter, and never waits."""

    def __init__(self, stream: TextIO, writer: LineWriter) -> None:
        stream.flush()
        self._stream = stream
        self._writer = writer
        self._encoding = stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        self._writer.put(self._line(text))
        return len(text)

    def flush(self) -> None:
        """Nothing to do: the thread writes at once."""

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def tell_dropped(self, words: Callable[[int], str]) -> None:
        """Print this line where so many lines are missing."""
        self._writer.tell_dropped(lambda count: self._line(words(count) + "\n"))

    def _line(self, text: str) -> Line:
        return self._stream.fileno(), text.encode(self._encoding, "backslashreplace")


@contextmanager
def queued_output(stdout: TextIO, stderr: TextIO) -> Iterator[tuple[QueuedStream, QueuedStream]]:
    """Both streams. What waits in the end is written if somebody reads it within two seconds."""
    errors = LineWriter()
    # On the same pipe or terminal (`2>&1`) their lines keep their order; else neither waits for the other.
    is_same = os.path.sameopenfile(stdout.fileno(), stderr.fileno())
    writers = [errors] if is_same else [errors, LineWriter()]
    try:
        yield QueuedStream(stdout, writers[-1]), QueuedStream(stderr, errors)
    finally:
        give_up_at = time.monotonic() + _FLUSH_SECONDS
        for writer in writers:
            # A further signal cuts the wait short; the exit code of the run is known by now.
            with suppress(SystemExit):
                writer.close(timeout_seconds=max(0.0, give_up_at - time.monotonic()))
