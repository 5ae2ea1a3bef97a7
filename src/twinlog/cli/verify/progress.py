"""The progress of a verification, and the time it will take: a bar on a terminal, otherwise a line at an
interval."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from twinlog.cli.common.names import shown_seconds
from twinlog.printable import printable
from twinlog.supervisor.runs import write_line

WINDOW_SECONDS = 60.0
"""The rate of the last minute, so that a limit or a slow cluster shows soon."""
LINE_EVERY_SECONDS = 10.0
_MOST_TROUBLES = 3

OnProgress = Callable[[Any], None]


def time_left(seconds: float | None) -> str:
    return "time left not known" if seconds is None else f"{shown_seconds(seconds)} left"


def progress_line(progress: Any, left: float | None) -> str:
    share = progress.done_offsets / progress.total_offsets if progress.total_offsets else 1.0
    return (
        f"verify: {share:.0%}, {progress.read_bytes / 1e6:,.0f} MB read, {progress.differences} differences,"
        f" {time_left(left)}"
    )


def copy_line(progress: Any, left: float | None) -> str:
    """With the problems of the first partitions."""
    share = progress.done_offsets / progress.total_offsets if progress.total_offsets else 1.0
    line = f"copy: {share:.0%}, {progress.done_offsets:,} of {progress.total_offsets:,} offsets, "
    troubles = [f"{name}: {words}" for name, words in sorted(progress.troubles.items())]
    return "; ".join([line + time_left(left), *troubles[:_MOST_TROUBLES]])


def shown_copy() -> AbstractContextManager[OnProgress]:
    """On stderr: a line at an interval."""
    return _shown("copy", copy_line, as_bar=False)


def shown_progress() -> AbstractContextManager[OnProgress]:
    """On stderr."""
    return _shown("verify", progress_line, as_bar=sys.stderr.isatty())


@contextmanager
def _shown(work: str, words: Callable[[Any, float | None], str], *, as_bar: bool) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn(work), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[told]}"))
    console = Console(file=getattr(sys.stderr, "unfiltered", sys.stderr))
    # Also where no bar is drawn it knows how long the rest takes.
    bar = Progress(*columns, console=console, transient=True, speed_estimate_period=WINDOW_SECONDS)
    task = bar.add_task(work, total=None, told="")
    told_at = time.monotonic()

    def show(progress: Any) -> None:
        nonlocal told_at
        if progress.done_offsets < bar.tasks[0].completed:
            bar.reset(task)  # It began again: what it did before tells no rate.
        bar.update(task, total=progress.total_offsets, completed=progress.done_offsets)
        line = words(progress, bar.tasks[0].time_remaining)
        bar.update(task, told=line.partition("%, ")[2])
        now = time.monotonic()
        if not as_bar and now - told_at >= LINE_EVERY_SECONDS:
            told_at = now
            # Nobody may read it any more: that does not end the work.
            write_line(sys.stderr, printable(line))

    with bar if as_bar else nullcontext():
        yield show
