"""Converts what a driver and its tasks say from and to messages. A field has the same name in the value and
in its message; None is an absent field.

This is for both ends. They are always of one release, so neither meets a field that it does not know.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from functools import cache, partial
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.message import Message

from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog_source.partitions.orders import (
    Answer,
    End,
    NewProducer,
    Reopened,
    SetPaused,
    Start,
    TaskCommand,
    TaskSetup,
    WantRoutes,
    WhoWrote,
)
from twinlog_source.partitions.planner import SlotLimits

T = TypeVar("T")
Question = Reopened | NewProducer | WhoWrote | WantRoutes

_COMMANDS: dict[str, type] = {
    "prepare": TaskSetup,
    "start": Start,
    "end": End,
    "set_paused": SetPaused,
    "set_limits": SlotLimits,
    "answer": Answer,
}
_QUESTIONS: dict[str, type] = {
    "reopened": Reopened,
    "new_producer": NewProducer,
    "who_wrote": WhoWrote,
    "want_routes": WantRoutes,
}
_FIELD_OF = {kind: name for name, kind in (_COMMANDS | _QUESTIONS).items()}
_PLAIN = (str, int, float, bytes)


def command_message(command: TaskCommand) -> pb.WorkerCommand:
    message = pb.WorkerCommand()
    fill(getattr(message, _FIELD_OF[type(command)]), command)
    return message


def command_of(message: pb.WorkerCommand) -> TaskCommand | None:
    """None for a sign of life."""
    kind = _COMMANDS.get(message.WhichOneof("command") or "")
    return None if kind is None else value_of(kind, getattr(message, _FIELD_OF[kind]))


def question_message(number: int, question: Question) -> pb.WorkerReport:
    message = pb.WorkerReport(question=pb.Question(number=number))
    fill(getattr(message.question, _FIELD_OF[type(question)]), question)
    return message


def question_of(message: pb.Question) -> Question:
    name = message.WhichOneof("about") or ""
    asked: Question = value_of(_QUESTIONS[name], getattr(message, name))
    return asked


def fill(message: Any, value: Any) -> None:
    """Set the fields of a message from the value."""
    message.SetInParent()
    kind: Any = type(value)
    for name in _shared_names(kind, message.DESCRIPTOR):
        each = getattr(value, name)
        if isinstance(each, _PLAIN):
            setattr(message, name, each)
        elif isinstance(each, Mapping):
            _fill_map(getattr(message, name), each)
        elif type(each) is tuple:
            _fill_list(getattr(message, name), each)
        elif each is not None:
            fill(getattr(message, name), each)


def value_of(kind: Callable[..., T], message: Message) -> T:
    """The value with the fields of the message."""
    return kind(**{name: read(message) for name, read in _readers(kind, message.DESCRIPTOR)})


def _fill_list(field: Any, values: tuple[Any, ...]) -> None:
    for each in values:
        if isinstance(each, _PLAIN):
            field.append(each)
        else:
            fill(field.add(), each)


def _fill_map(field: Any, values: Mapping[Any, Any]) -> None:
    for key, each in values.items():
        if isinstance(each, _PLAIN):
            field[key] = each
        elif isinstance(each, Mapping):
            field[key].values.update(each)
        else:
            fill(field[key], each)


@cache
def _shared_names(kind: Any, message: Any) -> tuple[str, ...]:
    """`message` is its descriptor."""
    names = getattr(kind, "_fields", None) or [each.name for each in fields(kind)]
    return tuple(name for name in names if name in message.fields_by_name)


@cache
def _readers(kind: Any, message: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    hints = get_type_hints(kind)
    return tuple((name, _reader(name, hints[name])) for name in _shared_names(kind, message))


def _reader(name: str, hint: Any) -> Callable[[Any], Any]:
    if get_origin(hint) is UnionType:
        convert = _converter(get_args(hint)[0])
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    convert = _converter(hint)
    return lambda message: convert(getattr(message, name))


def _converter(hint: Any) -> Callable[[Any], Any]:
    """How the content of a field of this type is read."""
    kind: Any = get_origin(hint) or hint
    inner = get_args(hint)
    if kind is tuple:
        each = _converter(inner[0])
        return lambda field: tuple(map(each, field))
    if issubclass(kind, Mapping) and inner:
        if issubclass(get_origin(inner[1]) or inner[1], Mapping):
            return lambda field: {key: dict(field[key].values) for key in field}
        each = _converter(inner[1])
        return lambda field: {key: each(field[key]) for key in field}
    read: Callable[[Any], Any] = kind if issubclass(kind, (Enum, *_PLAIN)) else partial(value_of, kind)
    return read
