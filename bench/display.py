"""What is seen while the benchmark runs: a line per step, a bar for what takes long. On stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Display:
    """Bars on a terminal, plain lines anywhere else."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr)

    def step(self, text: str) -> None:
        self.console.print(f"[bold cyan]▸[/] {text}")

    def fact(self, text: str) -> None:
        self.console.print(f"  [dim]{text}[/]", highlight=False)

    def failure(self, text: str) -> None:
        self.console.print(f"  [bold red]{text}[/]", highlight=False)

    @contextmanager
    def bar(self, text: str, total: float) -> Iterator[Callable[[float], None]]:
        """A bar that ends with the context; call the result with how much is done."""
        if not self.console.is_terminal:
            self.fact(text)
            yield lambda _: None
            return
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        # Twice a second: drawing takes CPU time from what is measured.
        with Progress(*columns, console=self.console, refresh_per_second=2, transient=True) as progress:
            task = progress.add_task(text, total=total)
            yield lambda done: progress.update(task, completed=done)
