"""How commands print: tables, or JSON."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import typer

from twinlog.cli.common.failures import ANSWERS_IN_JSON
from twinlog.cli.common.fields import Field, cells_of, columns_of
from twinlog.cli.common.options import option
from twinlog.cli.common.pasteable import say
from twinlog.cli.common.table import Column, table_lines
from twinlog.printable import PrintableStream, printable_json

# States in colour, for terminals: green is as it should be, yellow waits, red needs somebody. Pure.

_GREEN, _YELLOW, _RED, _PLAIN = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    _GREEN: (
        *("RUNNING", "SERVING", "ALIVE", "READY", "EXACT", "MAPPED", "PRESERVED", "UP_TO_DATE", "EQUAL"),
        "PROVEN",
    ),
    _YELLOW: (
        *("PAUSED", "PAUSE", "WAITING", "BACKOFF", "FLOOR", "ACTIVE_ON_TARGET", "FENCE", "MOVE", "LIMIT"),
        *("BEFORE_START", "NOT_READY", "UNKNOWN", "INCOMPLETE"),
    ),
    _RED: (
        *("FAULTED", "STALLED", "DOWN", "NOT_SERVING", "SILENT", "GAPS", "DIFFERS", "DIFFERENT", "FOREIGN"),
        *("NO_SYNC", "NOT_REPLICATED", "TOO_OLD", "PAST_END", "SOURCE_UNREADABLE", "TARGET_UNREADABLE"),
        "SHARED_COPY",
    ),
}
_COLOURS: Final = {word: colour for colour, words in _WORDS.items() for word in words}
_WORD: Final = re.compile(rf"(?<![\w.-])(?:{'|'.join(sorted(_COLOURS, key=len, reverse=True))})(?![\w.-])")


def toned(line: str) -> str:
    """The line with its states in colour; names of topics and groups stay plain.

    >>> toned("orders-0  FAULTED")
    'orders-0  \\x1b[31mFAULTED\\x1b[0m'
    """
    return _WORD.sub(lambda found: f"{_COLOURS[found.group()]}{found.group()}{_PLAIN}", line)


Row = TypeVar("Row")


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


def _note(output: Output) -> Output:
    """Store the format, so that failures are reported in it."""
    ANSWERS_IN_JSON.set(output is Output.JSON)
    return output


OutputOption = Annotated[Output, option("--output -o", "How to print.", callback=_note)]


def print_json(value: Any) -> None:
    """One indented document."""
    typer.echo(printable_json(json.dumps(value, indent=2, ensure_ascii=False)))


def print_json_line(value: Any) -> None:
    """One document per line, for streams."""
    typer.echo(printable_json(json.dumps(value, ensure_ascii=False)))


def filter_output() -> None:
    """Let no control sequences through except colours, because names come from other programs. For the whole
    process."""
    sys.stdout = PrintableStream(sys.stdout)
    sys.stderr = PrintableStream(sys.stderr)


def clear_screen() -> None:
    """Does nothing when stdout is not a terminal."""
    if sys.stdout.isatty():
        stream = sys.stdout
        typer.echo("\033[2J\033[H", nl=False, file=getattr(stream, "unfiltered", stream))


def screen_rows() -> int | None:
    """How many rows of a table fit the terminal below a heading, with one line to spare; None in a pipe."""
    return max(1, shutil.get_terminal_size().lines - 4) if sys.stdout.isatty() else None


def in_colour(line: str) -> str:
    """States in colour on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return toned(line) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else line


def print_table(
    title: str, columns: Sequence[Column], rows: Iterable[Sequence[str]], *, empty: str = ""
) -> None:
    """A table that fits the terminal; in a pipe one line for each row, nothing cut off. `empty` is printed
    when there are no rows."""
    cells = [*rows]
    if empty and not cells:
        say(empty)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = table_lines(columns, cells, width=width)
    if title:
        typer.secho(title, bold=True)
    for number, line in enumerate(lines):
        typer.secho(line if number == 0 else in_colour(line), bold=number == 0)
    if width is not None:
        typer.echo()


def print_rows(
    fields: Sequence[Field[Row]], rows: Iterable[Row], *, title: str = "", empty: str = ""
) -> None:
    """As a table."""
    print_table(title, columns_of(fields), [cells_of(fields, row) for row in rows], empty=empty)
