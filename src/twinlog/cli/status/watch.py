"""`twinlog status --watch`: the status on the whole screen, again and again, until Ctrl-C."""

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator

import typer

from twinlog.cli.common.fields import Output, cells_of, columns_of, in_colour, print_json_line, table_lines
from twinlog.cli.common.names import CLOCK, shown_clock
from twinlog.cli.status import view
from twinlog.cli.status.rows import Status
from twinlog.cli.verdict.issues import Verdict
from twinlog.cli.verdict.verdict import verdict_of
from twinlog.service.waiting import wait_or_stop

SECONDS = 2.0


def screen_lines(status: Status, *, at_ms: int, width: int, height: int) -> list[str]:
    """As many lines as the screen has: what is wrong stands above what is there, and what does not fit is
    counted. `at_ms`: the time of the status, which is older than two seconds while a service does not answer.
    Pure."""
    verdict = verdict_of(status)
    head = (
        f"as of {shown_clock(at_ms)}",
        *view.deployment(status),
        verdict.line,
        "",
    )
    lines = [line[:width] for line in head]
    lines += [line for block in _blocks(status, verdict, width) for line in (*block, "")][:-1]
    if len(lines) <= height:
        return lines
    return [*lines[: height - 1], f"… {len(lines) - height + 1} more lines: enlarge the terminal"]


def _blocks(status: Status, verdict: Verdict, width: int) -> Iterator[list[str]]:
    services, flows, clusters, in_force, issues, owners = view.tables(status, verdict)
    for fields, rows in (flows, issues, in_force, services, clusters, owners):
        if rows:
            yield table_lines(columns_of(fields), [cells_of(fields, row) for row in rows], width=width)


async def watch_status(ask: Callable[[], Awaitable[Status]], output: Output) -> None:
    """Until cancelled. With `-o json` a document a line."""
    stop = asyncio.Event()
    if output is Output.JSON:
        while not stop.is_set():
            print_json_line(view.as_json(await ask()))
            await wait_or_stop(stop, SECONDS)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    stream = sys.stdout
    # The lines are made printable one by one; rich itself moves the cursor.
    clock = CLOCK.get()
    console = Console(file=getattr(stream, "unfiltered", stream), highlight=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not stop.is_set():
            size = shutil.get_terminal_size()
            status = await ask()
            lines = screen_lines(status, at_ms=clock.now_ms(), width=size.columns, height=size.lines - 1)
            shown = Text.from_ansi("\n".join(map(in_colour, lines)))
            shown.no_wrap = True
            live.update(shown, refresh=True)
            await wait_or_stop(stop, SECONDS)


def refuse_pipe(output: Output) -> None:
    """A full screen needs a terminal."""
    if output is not Output.JSON and not sys.stdout.isatty():
        raise typer.BadParameter("a live view needs a terminal; in a pipe: --watch -o json")
