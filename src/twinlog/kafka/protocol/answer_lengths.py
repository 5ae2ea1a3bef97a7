"""Whether the arrays of an answer can lie in it.

kio reserves memory for as many elements as an answer claims before it reads one, and ends the process where
there is not that much. So a damaged length must not reach it.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from struct import Struct
from types import UnionType
from typing import Any, Final, get_args, get_origin

from twinlog.kafka.protocol.frames import take_varint

_Walk = Callable[[bytes, int], int]
"""From the place of a value to that behind it."""
_Step = int | _Walk
"""Bytes, where their number is fixed."""

_INT16, _INT32 = Struct(">h"), Struct(">i")
_BYTES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("int8", "uint8", "bool"), 1),
    **dict.fromkeys(("int16", "uint16", "error_code"), 2),
    **dict.fromkeys(("int32", "uint32", "timedelta_i32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "timedelta_i64", "datetime_i64"), 8),
    "uuid": 16,
}
"""Of kio's types of fields."""


def require_lengths(schema: type[Any], answer: bytes, position: int) -> None:
    """Raises ValueError, IndexError or struct.error for an answer that claims more than it has."""
    walk: _Walk = _entity(schema)  # type: ignore[arg-type]
    walk(answer, position)


@cache
def _entity(schema: type[Any]) -> _Walk:
    is_flexible: bool = schema.__flexible__
    steps: list[_Step] = []
    tagged: dict[int, _Step] = {}
    for field in fields(schema):
        tag = field.metadata.get("tag")
        step = _step(field.type, field.metadata.get("kafka_type", ""), is_flexible, is_tagged=tag is not None)
        if tag is not None:
            tagged[int(tag)] = step
        elif isinstance(step, int) and steps and isinstance(steps[-1], int):
            steps[-1] += step
        else:
            steps.append(step)

    def walk(answer: bytes, at: int) -> int:
        for step in steps:
            at = at + step if isinstance(step, int) else step(answer, at)
        if not is_flexible:
            return at
        count, at = take_varint(answer, at)
        for _ in range(count):
            tag, at = take_varint(answer, at)
            length, at = take_varint(answer, at)
            step = tagged.get(tag, length)
            if not isinstance(step, int):
                step(answer, at)
            at += length
        return at

    return walk


def _step(hint: Any, kind: str, is_flexible: bool, *, is_tagged: bool = False) -> _Step:
    is_optional = get_origin(hint) is UnionType
    if is_optional:
        hint = next(each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) is tuple:
        return _array(_step(get_args(hint)[0], kind, is_flexible, is_tagged=True), is_flexible)
    if is_dataclass(hint):
        walk = _entity(hint)  # type: ignore[arg-type]
        return _nullable(walk) if is_optional and not is_tagged else walk
    if kind in _BYTES:
        return _BYTES[kind]
    if is_flexible:
        return _compact
    return _text if kind == "string" else _blob


def _array(element: _Step, is_flexible: bool) -> _Walk:
    def walk(answer: bytes, at: int) -> int:
        if is_flexible:
            count, at = take_varint(answer, at)
            count -= 1
        else:
            (count,), at = _INT32.unpack_from(answer, at), at + 4
        if count > len(answer) - at:
            raise ValueError(f"{count} elements in the {len(answer) - at} bytes that are left of an answer")
        if isinstance(element, int):
            return at + element * max(0, count)
        for _ in range(count):
            at = element(answer, at)
        return at

    return walk


def _nullable(walk: _Walk) -> _Walk:
    """A marker comes first (KIP-893)."""
    return lambda answer, at: at + 1 if answer[at] > 127 else walk(answer, at + 1)


def _text(answer: bytes, at: int) -> int:
    return at + 2 + max(0, int(_INT16.unpack_from(answer, at)[0]))


def _blob(answer: bytes, at: int) -> int:
    return at + 4 + max(0, int(_INT32.unpack_from(answer, at)[0]))


def _compact(answer: bytes, at: int) -> int:
    length, at = take_varint(answer, at)
    return at + max(0, length - 1)
