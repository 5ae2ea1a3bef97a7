"""Shows the progress of a fetch on stderr: a bar on a terminal, a few plain lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

_LINE_EVERY_JARS = 20


class FetchStep(Protocol):
    def ivy_said(self, line: str) -> None:
        """Take one line of Ivy's output."""
        ...


class FetchProgress(Protocol):
    def fetching(self, name: str) -> AbstractContextManager[FetchStep]:
        """Show the fetch of one artifact set while the context lasts."""
        ...


def progress_for_terminal() -> FetchProgress:
    """A bar when stderr is a terminal, else plain lines."""
    return BarProgress() if sys.stderr.isatty() else LineProgress(sys.stderr)


class JarCount:
    """Counts from Ivy's lines. Ivy first finds every jar, then downloads those that its cache lacks."""

    def __init__(self) -> None:
        self.found = 0
        self.downloaded = 0

    def take(self, line: str) -> bool:
        """Take one line; return whether a count changed."""
        if line.startswith("\tfound "):
            self.found += 1
        elif line.startswith("\t[SUCCESSFUL ]"):
            self.downloaded += 1
        else:
            return False
        return True


class LineProgress:
    """For logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @contextmanager
    def fetching(self, name: str) -> Iterator[FetchStep]:
        self._say(f"fetching {name} (about a minute, once)")
        yield _LineStep(name, self._say)
        self._say(f"fetched {name}")

    def _say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class _LineStep:
    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._name = name
        self._say = say
        self._count = JarCount()

    def ivy_said(self, line: str) -> None:
        before = self._count.downloaded
        self._count.take(line)
        if self._count.downloaded != before and self._count.downloaded % _LINE_EVERY_JARS == 0:
            self._say(f"{self._name}: {self._count.downloaded} of {self._count.found} jars")


class BarProgress:
    """For people."""

    @contextmanager
    def fetching(self, name: str) -> Iterator[FetchStep]:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as progress:
            yield _BarStep(name, progress)


class _BarStep:
    def __init__(self, name: str, progress: Progress) -> None:
        self._name = name
        self._progress = progress
        self._task = progress.add_task(f"{name}: looking up", total=None)
        self._count = JarCount()

    def ivy_said(self, line: str) -> None:
        if not self._count.take(line):
            return
        if self._count.downloaded:
            self._progress.update(
                self._task,
                description=f"{self._name}: fetching",
                completed=self._count.downloaded,
                total=self._count.found,
            )
        else:
            self._progress.update(self._task, description=f"{self._name}: {self._count.found} jars found")
