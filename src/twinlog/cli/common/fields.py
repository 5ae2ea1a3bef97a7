"""The one table of each kind of row: its fields make the columns of tables, the documents of `-o json` and
the rows of the live page. A row is a message of a service, a dataclass or a dictionary. Pure.

A new fact is a field of the message and a line in the table of its kind.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.table import Column

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
