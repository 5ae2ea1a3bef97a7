"""The one table of each kind of row: its fields make the columns of tables, the documents of `-o json` and
the rows of the live page. A row is a message of a service, a dataclass or a dictionary. Pure.

A new fact is a field of the message and a line in the table of its kind.
"""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Final, Generic, TypeVar

import typer
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.failures import ANSWERS_IN_JSON
from twinlog.cli.common.options import option
from twinlog.cli.common.pasteable import say, with_pasteable
from twinlog.printable import PrintableStream, printable, printable_json

# Tables as lines of text, fitted to the available width. Commands in their cells are complete.
#
# In a pipe every row is one line, whatever its length, because programs process it. On a terminal no line is
# wider than the terminal: long cells are wrapped. If columns would become too narrow, empty and dispensable
# ones are left out, or else each row becomes a paragraph. `rich.table` does neither: it cuts cells to the
# width, in a pipe to 80 columns.

_GAP: Final = "  "
_NARROWEST: Final = 20
"""Wrapped text is not made narrower than this."""
_READABLE: Final = 32
"""Nor narrower than this while a column may be left out."""
_NARROWEST_NAME: Final = 44
"""Cells without blanks are names: they are broken only when they are longer than this."""
_WIDEST_PADDING: Final = 60
"""In a pipe longer cells extend beyond their column, so that one of them does not widen all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    title: str
    right: bool = False
    """Numbers are right-aligned."""
    spare: int = 0
    """If the terminal is too narrow, columns are left out, those with the highest number first; 0 = never."""


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None) -> list[str]:
    """Heading and rows; `width` in characters, None in a pipe. No line ends with a blank."""
    cells = [[printable(" ".join(re.split("[\n\t]", with_pasteable(cell)))) for cell in row] for row in rows]
    natural = [
        max([len(column.title), *(len(row[index]) for row in cells)]) for index, column in enumerate(columns)
    ]
    if width is None:
        return _plain(columns, cells, [min(size, _WIDEST_PADDING) for size in natural])
    left_out = _least_missed(columns, cells)
    fitting = _fitted(columns, cells, natural, width, _NARROWEST if left_out is None else _READABLE)
    if fitting is None and left_out is not None:
        fewer = [column for index, column in enumerate(columns) if index != left_out]
        rest = [[cell for index, cell in enumerate(row) if index != left_out] for row in rows]
        return table_lines(fewer, rest, width=width)
    return _paragraphs(columns, cells, width) if fitting is None else _wrapped(columns, cells, fitting)


def _least_missed(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> int | None:
    """A column without a word in it, else the most dispensable one; None where all are needed."""
    for index in range(1, len(columns)):
        if not any(row[index] for row in cells):
            return index
    spared = max(column.spare for column in columns)
    return next((index for index, column in enumerate(columns) if column.spare == spared > 0), None)


def _plain(columns: Sequence[Column], cells: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    head = [column.title for column in columns]
    return [_line(columns, row, widths) for row in (head, *cells)]


def _wrapped(columns: Sequence[Column], cells: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    lines = [
        _line(columns, [column.title for column in columns], widths),
        "─" * (sum(widths) + len(_GAP) * (len(widths) - 1)),
    ]
    for row in cells:
        parts = [_wrap(cell, size) for cell, size in zip(row, widths, strict=True)]
        for number in range(max(map(len, parts))):
            pieces = [part[number] if number < len(part) else "" for part in parts]
            lines.append(_line(columns, pieces, widths))
    return lines


def _paragraphs(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[str]:
    """The first cell, and the others below it."""
    indent = max(len(column.title) for column in columns) + 2 * len(_GAP)
    lines: list[str] = []
    for row in cells:
        lines += [*([""] if lines else []), *_wrap(row[0], width)]
        for column, cell in zip(columns[1:], row[1:], strict=True):
            if cell:
                first, *more = _wrap(cell, max(_NARROWEST, width - indent))
                lines.append((_GAP + column.title).ljust(indent) + first)
                lines += [" " * indent + line for line in more]
    return lines


def _fitted(
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    natural: Sequence[int],
    width: int,
    narrowest: int,
) -> list[int] | None:
    """Widths that fit, by narrowing the widest columns first; None when they would become too narrow."""
    floors = [
        max(len(column.title), min(natural[index], _narrowest_name(row[index] for row in cells) or narrowest))
        for index, column in enumerate(columns)
    ]
    widths = list(natural)
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while excess > 0:
        spare = [size - floor for size, floor in zip(widths, floors, strict=True)]
        if not any(spare):
            return None
        widest = max(range(len(widths)), key=lambda index: (spare[index] > 0, widths[index]))
        widths[widest] -= 1
        excess -= 1
    return widths


def _narrowest_name(cells: Iterable[str]) -> int:
    """0 where there is text."""
    return 0 if any(" " in cell for cell in cells) else _NARROWEST_NAME


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(size) if column.right else cell.ljust(size)
        for column, cell, size in zip(columns, cells, widths, strict=True)
    )
    return _GAP.join(padded).rstrip()


def _wrap(cell: str, width: int) -> list[str]:
    """Break between words, and inside words only if one is longer than a line."""
    lines = textwrap.wrap(cell, width, break_on_hyphens=False, break_long_words=False) or [""]
    return [line[start : start + width] for line in lines for start in range(0, max(1, len(line)), width)]


Row = TypeVar("Row")
UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Field(Generic[Row]):
    """One fact of a row."""

    name: str
    """In JSON; empty: it is only in tables."""
    of: str | Callable[[Row], Any] = ""
    """Where it stands in the row, as `source.topic`; see `value_of`. Empty: under its name."""
    column: str = ""
    """The title of its column; empty: it is only in JSON."""
    text: Callable[[Row], str] | None = None
    """Its cell. Left out: the value; `-` when it is not known."""
    right: bool = False
    spare: int = 0
    """As of a `Column`."""

    def value(self, row: Row) -> Any:
        return value_of(row, self.of or self.name) if isinstance(self.of, str) else self.of(row)

    def cell(self, row: Row) -> str:
        return shown(self.value(row)) if self.text is None else self.text(row)


Fields = tuple[Field[Row], ...]


_WORD = re.compile(r"(\w*\??)(?:=([\w.]+\??))?(?:\|([^>\d]*)(>?)(\d?))?")


def table(*parts: str | Field[Row]) -> Fields[Row]:
    """The fields of a row: each as a `Field`, or as a word in a text. A word is `name`, or `name=of`, and
    `|column` behind it, with `_` for a blank, `>` for a number and `spare` as a digit.

    >>> [(each.name, each.of, each.column) for each in table("flow|flow4 to=target.topic|on_target reason?")]
    [('flow', '', 'flow'), ('to', 'target.topic', 'on target'), ('reason', 'reason?', '')]
    """
    found: list[Field[Row]] = []
    for part in parts:
        for word in part.split() if isinstance(part, str) else ():
            name, of, column, number, spare = _WORD.fullmatch(word).groups("")  # type: ignore[union-attr]
            of = of or (name if name.endswith("?") else "")
            column = column.replace("_", " ")
            found.append(Field(name.removesuffix("?"), of, column, right=bool(number), spare=int(spare or 0)))
        if isinstance(part, Field):
            found.append(part)
    return tuple(found)


def as_json(fields: Iterable[Field[Row]], row: Row) -> dict[str, Any]:
    """The document of one row."""
    return {each.name: each.value(row) for each in fields if each.name}


def columns_of(fields: Iterable[Field[Any]]) -> list[Column]:
    return [Column(title=each.column, right=each.right, spare=each.spare) for each in fields if each.column]


def cells_of(fields: Iterable[Field[Row]], row: Row) -> list[str]:
    """In the order of `columns_of`."""
    return [each.cell(row) for each in fields if each.column]


def shown(value: Any) -> str:
    """A value, or a dash if it is not known."""
    return UNKNOWN if value is None else str(value)


def value_of(row: Any, path: str) -> Any:
    """What stands at a path of a row, as JSON has it: enums by their name without the prefix, times as RFC
    3339, durations in seconds, flows as `A->B`, partitions as `orders-0`. None for what the row does not
    have; with a `?` behind the path also for an empty text.

    >>> value_of(types_pb2.ClusterStatus(alias="A"), "reason?")
    """
    names, empty_is_none = _steps(path)
    for name in names:
        kind: Any = type(row)
        row = _reader(kind, name)(row)
        if row is None:
            return None
    return None if empty_is_none and not row else plain(row)


@cache
def _steps(path: str) -> tuple[Sequence[str], bool]:
    return path.removesuffix("?").split("."), path.endswith("?")


@cache
def _reader(kind: type, name: str) -> Callable[[Any], Any]:
    """How a field is read. Kept, because a live page reads thousands of rows a second."""
    if not issubclass(kind, Message):
        return itemgetter(name) if issubclass(kind, dict) else attrgetter(name)
    field = kind.DESCRIPTOR.fields_by_name[name]
    if field.enum_type is not None:
        values = field.enum_type.values_by_number
        prefix = values[0].name.removesuffix("UNSPECIFIED")
        names = {number: each.name.removeprefix(prefix) for number, each in values.items()}
        # A service of a later release may have values that are not known here.
        return lambda message: names.get(number := getattr(message, name), str(number))
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return lambda message: dict(sorted(getattr(message, name).items()))
    if field.has_presence:
        return lambda message: getattr(message, name) if message.HasField(name) else None
    return attrgetter(name)


def plain(value: Any) -> Any:
    """A value of a message as JSON has it."""
    match value:
        case str() | int() | float() | dict():
            return value
        case Timestamp():
            return value.ToJsonString()
        case Duration():
            return value.ToTimedelta().total_seconds()
        case types_pb2.Flow():
            return f"{value.source}->{value.target}"
        case types_pb2.TopicPartition():
            return f"{value.topic}-{value.partition}"
        case Message():
            return {field.name: plain(each) for field, each in value.ListFields()}
        case Enum():
            return value.value
    return [plain(each) for each in value]


# How commands print: tables, or JSON.

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
_STATE: Final = re.compile(rf"(?<![\w.-])(?:{'|'.join(sorted(_COLOURS, key=len, reverse=True))})(?![\w.-])")


def toned(line: str) -> str:
    """The line with its states in colour; names of topics and groups stay plain.

    >>> toned("orders-0  FAULTED")
    'orders-0  \\x1b[31mFAULTED\\x1b[0m'
    """
    return _STATE.sub(lambda found: f"{_COLOURS[found.group()]}{found.group()}{_PLAIN}", line)


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


def print_rows(
    fields: Sequence[Field[Row]], rows: Iterable[Row], *, title: str = "", empty: str = ""
) -> None:
    """A table that fits the terminal; in a pipe one line for each row, nothing cut off. `empty` is printed
    when there are no rows."""
    cells = [cells_of(fields, row) for row in rows]
    if empty and not cells:
        say(empty)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = table_lines(columns_of(fields), cells, width=width)
    if title:
        typer.secho(title, bold=True)
    for number, line in enumerate(lines):
        typer.secho(line if number == 0 else in_colour(line), bold=number == 0)
    if width is not None:
        typer.echo()
