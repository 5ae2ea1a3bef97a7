"""How commands print: a table for people, JSON for programs. Rich is imported when a table is printed."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

_WIDEST = 1000


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    title: str
    right: bool = False
    """Numbers stand at the right."""


def print_json(value: Any) -> None:
    """One indented document."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """One document a line, for streams."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_table(title: str, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """A table as wide as it needs to be when stdout is no terminal: nothing is cut off in a pipe."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=False)
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if not console.is_terminal:
        console = Console(width=max(console.width, Console(width=_WIDEST).measure(table).maximum))
    console.print(table)
