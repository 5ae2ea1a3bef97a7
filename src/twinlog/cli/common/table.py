"""Tables as lines of text, fitted to the available width. Commands in their cells are complete.

In a pipe every row is one line, whatever its length, because programs process it. On a terminal no line is
wider than the terminal: long cells are wrapped. If columns would become too narrow, empty and dispensable
ones are left out, or else each row becomes a paragraph. `rich.table` does neither: it cuts cells to the
width, in a pipe to 80 columns.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.cli.common.pasteable import with_pasteable
from twinlog.printable import printable

_GAP: Final = "  "
_NARROWEST: Final = 20
"""Wrapped text is not made narrower than this."""
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
    fitting = _fitted(columns, cells, natural, width)
    if fitting is None and (left_out := _least_missed(columns, cells)) is not None:
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
    columns: Sequence[Column], cells: Sequence[Sequence[str]], natural: Sequence[int], width: int
) -> list[int] | None:
    """Widths that fit, by narrowing the widest columns first; None when they would become too narrow."""
    floors = [
        max(len(column.title), min(natural[index], _narrowest(row[index] for row in cells)))
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


def _narrowest(cells: Iterable[str]) -> int:
    return _NARROWEST if any(" " in cell for cell in cells) else _NARROWEST_NAME


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
