"""The progress of a verification, and the time it will take: a bar on a terminal, otherwise a line at an
interval."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from twinlog.printable import printable
from twinlog.supervisor.runs import write_line

WINDOW_SECONDS = 60.0
"""The rate of the last minute, so that a limit or a slow cluster shows soon."""
LINE_EVERY_SECONDS = 10.0
_MOST_TROUBLES = 3
_LEAST_SECONDS = 1.0

OnProgress = Callable[[Any], None]


@dataclass(slots=True)
class TimeLeft:
    """Pure: takes the progress with monotonic seconds."""

    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def observe(self, now: float, done: int) -> None:
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()  # It began again as a whole.
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW_SECONDS:
            self._seen.popleft()

    def seconds(self, total: int) -> float | None:
        """None: unknown yet, or there is no progress."""
        if not self._seen:
            return None
        (begun_at, before), (now, done) = self._seen[0], self._seen[-1]
        if done >= total:
            return 0.0
        if now - begun_at < _LEAST_SECONDS or done <= before:
            return None
        return (total - done) * (now - begun_at) / (done - before)


def shown_time(seconds: float | None) -> str:
    """As people say it."""
    if seconds is None:
        return "time left not known"
    if seconds < 90:
        return f"{seconds:.0f} s left"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min left"
    return f"{seconds / 3600:.1f} h left"


def progress_line(progress: Any, left: float | None) -> str:
    share = progress.done_offsets / progress.total_offsets if progress.total_offsets else 1.0
    return (
        f"verify: {share:.0%}, {progress.read_bytes / 1e6:,.0f} MB read, {progress.differences} differences,"
        f" {shown_time(left)}"
    )


def copy_line(progress: Any, left: float | None) -> str:
    """With the problems of the first partitions."""
    share = progress.done_offsets / progress.total_offsets if progress.total_offsets else 1.0
    line = f"copy: {share:.0%}, {progress.done_offsets:,} of {progress.total_offsets:,} offsets, "
    troubles = [f"{name}: {words}" for name, words in sorted(progress.troubles.items())]
    return "; ".join([line + shown_time(left), *troubles[:_MOST_TROUBLES]])


@contextmanager
def shown_copy() -> Iterator[OnProgress]:
    """On stderr: a line at an interval."""
    with _lines(copy_line) as show:
        yield show


@contextmanager
def shown_progress() -> Iterator[OnProgress]:
    """On stderr."""
    with _bar() if sys.stderr.isatty() else _lines(progress_line) as show:
        yield show


@contextmanager
def _lines(words: Callable[[Any, float | None], str]) -> Iterator[OnProgress]:
    left, told_at = TimeLeft(), time.monotonic()

    def show(progress: Any) -> None:
        nonlocal told_at
        now = time.monotonic()
        left.observe(now, progress.done_offsets)
        if now - told_at >= LINE_EVERY_SECONDS:
            told_at = now
            # Nobody may read it any more: that does not end the work.
            write_line(sys.stderr, printable(words(progress, left.seconds(progress.total_offsets))))

    yield show


@contextmanager
def _bar() -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("verify"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[told]}"))
    stderr = getattr(sys.stderr, "unfiltered", sys.stderr)
    left = TimeLeft()
    with Progress(*columns, console=Console(file=stderr), transient=True) as bar:
        task = bar.add_task("verify", total=None, told="")

        def show(progress: Any) -> None:
            left.observe(time.monotonic(), progress.done_offsets)
            told = (
                f"{progress.read_bytes / 1e6:,.0f} MB read, {progress.differences} differences,"
                f" {shown_time(left.seconds(progress.total_offsets))}"
            )
            bar.update(task, total=progress.total_offsets, completed=progress.done_offsets, told=told)

        yield show
