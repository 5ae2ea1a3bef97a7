"""Dataclasses as the fields of stored JSON documents: what their annotations say. Pure.

Fields that a class does not have are dropped, and those that a document lacks have their defaults, so a field
may be added without a new version of a format.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_Read = Callable[[Any], Any]


def read_fields(kind: type[T], document: Mapping[str, Any]) -> T:
    """The value that a document stores. Raises KeyError, TypeError, ValueError or AttributeError for a
    document that stores none."""
    return kind(
        **{
            name: read(document[name])
            for name, is_needed, read in _readers(kind)  # type: ignore[arg-type]  # classes are hashable
            if is_needed or name in document
        }
    )


@cache
def _readers(kind: Any) -> tuple[tuple[str, bool, _Read], ...]:
    hints = get_type_hints(kind)
    return tuple(
        (each.name, each.default is MISSING and each.default_factory is MISSING, _reader(hints[each.name]))
        for each in fields(kind)
    )


def _reader(hint: Any) -> _Read:
    inner = tuple(_reader(each) for each in get_args(hint) if each not in (Ellipsis, NoneType))
    if get_origin(hint) is UnionType:
        return lambda value: None if value is None else inner[0](value)
    if get_origin(hint) is tuple and Ellipsis in get_args(hint):
        return lambda value: tuple(map(inner[0], _of(list, value)))
    if get_origin(hint) is tuple:
        return lambda value: tuple(read(each) for read, each in zip(inner, _of(list, value), strict=True))
    if get_origin(hint) is Mapping:
        return lambda value: {_of(str, key): inner[1](each) for key, each in value.items()}
    if is_dataclass(hint):
        return lambda value: read_fields(hint, value)  # type: ignore[arg-type]  # it is a class
    return hint if hint is float or issubclass(hint, Enum) else partial(_of, hint)


def _of(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
