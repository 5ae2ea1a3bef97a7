"""Services that answer from memory: every field of every message has a value, or none has.

The values are made from the names of the fields, so a new field of a message is in the answers by itself.
"""

import io
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
from google.protobuf import text_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2
from grpc_status import rpc_status

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.common.v1 import owners_service_pb2 as owners
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli import app
from twinlog.cli.common.location import IN_PLACE_OF_SERVICES
from twinlog.cli.common.names import CLOCK
from twinlog.errors import TwinlogError
from twinlog.service.errors_wire import status_of
from twinlog.testing.virtual_time import FakeClock

_COLOUR = re.compile("\x1b\\[[0-9;]*m")
LONG_AFTER = 4_000_000_000
"""Seconds since 1970. Ages of later times are 0 on any day."""
FLOW = types_pb2.Flow(source="A", target="B")
_MODULES = {
    "common": owners,
    "source": source,
    "checkpoint": checkpoint,
    "configsync": configsync,
    "heartbeat": heartbeat,
}
_PLACES = {"Flow", "TopicPartition", "Scope"}
_LEFT_OUT = {"next_page_token", "resume_token", "page_token", "owned_elsewhere"}


def full(kind: Callable[[], Message], number: int = 1) -> Any:
    """A message with a value in each field; `number` makes several of them differ."""
    message: Any = kind()
    for each in message.DESCRIPTOR.fields:
        if each.name not in _LEFT_OUT and not (each.containing_oneof and _is_choice(each)):
            _fill(message, each, number)
    return message


def bare(kind: Callable[[], Message]) -> Any:
    """A message with nothing but its flow and partition."""
    message: Any = kind()
    for each in message.DESCRIPTOR.fields:
        if each.message_type and each.message_type.name in _PLACES and not each.is_repeated:
            _fill(message, each, 9)
    return message


def _is_choice(each: Any) -> bool:
    return not each.containing_oneof.name.startswith("_")


def _fill(message: Any, each: Any, number: int) -> None:
    if each.message_type is not None and each.message_type.GetOptions().map_entry:
        _fill_map(message, each, number)
    elif each.is_repeated:
        getattr(message, each.name).extend([_value(message, each, number), _value(message, each, number + 1)])
    elif each.message_type is not None:
        getattr(message, each.name).CopyFrom(_value(message, each, number))
    else:
        setattr(message, each.name, _value(message, each, number))


def _fill_map(message: Any, each: Any, number: int) -> None:
    kind, value = (each.message_type.fields_by_name[name] for name in ("key", "value"))
    # One, because the order of several is another one in each process.
    named = {"partitions_by_state": "PAUSED", "partitions_by_verdict": "NO_SYNC"}.get(each.name, "ONE")
    # A number is that of the first silent broker.
    key = named if kind.type == kind.TYPE_STRING else 700 + number
    text = value.type == value.TYPE_STRING
    getattr(message, each.name)[key] = f"{each.name} {number}" if text else number


def _value(message: Any, each: Any, number: int) -> Any:
    if each.message_type is not None:
        return _message(each, number)
    if each.enum_type is not None:
        values = each.enum_type.values
        return values[1 + (number - 1) % (len(values) - 1)].number
    if each.type == each.TYPE_STRING:
        return _WORDS.get(each.name, f"{each.name}-{number}")
    if each.type == each.TYPE_BYTES:
        return b""
    if each.type == each.TYPE_BOOL:
        return True
    return each.number * 100 + number


_WORDS = {"topic": "orders", "source_topic": "orders", "target_topic": "A.orders", "kind": "failover"}


def _message(each: Any, number: int) -> Any:
    name = each.message_type.full_name
    if name == "google.protobuf.Timestamp":
        # Waits end, ages do not begin.
        return Timestamp(
            seconds=number if each.name in ("retry_at", "next_listing") else LONG_AFTER + each.number
        )
    if name == "google.protobuf.Duration":
        return Duration(seconds=each.number, nanos=500_000_000)
    if name.endswith("common.v1.Flow"):
        return FLOW
    if name.endswith("common.v1.TopicPartition"):
        return types_pb2.TopicPartition(topic="orders", partition=number)
    return full(GetMessageClass(each.message_type), number)


@dataclass(slots=True)
class Recorded:
    """What the services answer, by method; other methods answer a full message. What they were asked is
    kept."""

    answers: dict[str, Sequence[Message] | TwinlogError] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    in_turn: dict[str, list[Message | TwinlogError]] = field(default_factory=dict)
    """The answers of methods that are called again and again."""

    def channel(self, service: str, endpoint: str) -> grpc.aio.Channel:
        return cast("grpc.aio.Channel", _Channel(self))

    def told(self, path: str, request: Message) -> list[Message]:
        """The answers to a call. Raises AioRpcError."""
        service, _, method = path.removeprefix("/").partition("/")
        if service.endswith("Health"):
            return [health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)]
        text = text_format.MessageToString(request, as_one_line=True)
        by = getattr(request, "by", "") or getattr(getattr(request, "options", None), "by", "")
        self.asked.append(f"{method} {text.replace(by, 'WHO') if by else text}".rstrip())
        module = _MODULES[service.split(".")[2]]
        answer = self.answers.get(f"{service.split('.')[2]}.{method}", self.answers.get(method))
        if turns := self.in_turn.get(method):
            turn = turns.pop(0)
            answer = turn if isinstance(turn, TwinlogError) else [turn]
        if isinstance(answer, TwinlogError):
            raise _failure(answer)
        return [full(getattr(module, f"{method}Response"))] if answer is None else [*map(deepcopy, answer)]


def _failure(error: TwinlogError) -> grpc.aio.AioRpcError:
    status = rpc_status.to_status(status_of(error, service="recorded"))
    return grpc.aio.AioRpcError(
        status.code, grpc.aio.Metadata(), grpc.aio.Metadata(*status.trailing_metadata), details=status.details
    )


class _Channel:
    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    async def __aenter__(self) -> "_Channel":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def close(self, grace: float | None = None) -> None:
        return None

    def unary_unary(self, path: str, *_: object, **__: object) -> Callable[..., "_Answer"]:
        return lambda request, **_: _Answer(self._recorded, path, request)

    def unary_stream(self, path: str, *_: object, **__: object) -> Callable[..., "_Stream"]:
        return lambda request, **_: _Stream(self._recorded, path, request)

    stream_unary = stream_stream = unary_unary


@dataclass(slots=True)
class _Answer:
    recorded: Recorded
    path: str
    request: Message

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()
        return self.recorded.told(self.path, self.request)[0]

    async def initial_metadata(self) -> grpc.aio.Metadata:
        return grpc.aio.Metadata()


@dataclass(slots=True)
class _Stream:
    recorded: Recorded
    path: str
    request: Message

    async def __aiter__(self) -> AsyncIterator[Any]:
        for answer in self.recorded.told(self.path, self.request):
            yield answer

    def cancel(self) -> bool:
        return True


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(words: Sequence[str], recorded: Recorded, columns: int | None = None) -> str:
    """What the command prints about these services, with its exit code."""
    IN_PLACE_OF_SERVICES.set(recorded.channel)
    CLOCK.set(FakeClock())
    code, told, errors = printed(words, columns)
    return f"exit {code}\n{told}" + (f"--- stderr\n{errors}" if errors else "")


def printed(words: Sequence[str], columns: int | None = None) -> tuple[object, str, str]:
    """Exit code, stdout and stderr of a command, in a pipe, or on a terminal of so many columns."""
    out: io.StringIO = io.StringIO() if columns is None else Terminal()
    err = io.StringIO()
    code: object = 0
    before, sys.argv = sys.argv, ["twinlog", *words]
    os.environ["COLUMNS"], os.environ["LINES"] = str(columns or 80), "60"
    try:
        with redirect_stdout(out), redirect_stderr(err):
            app([*words], prog_name="twinlog")
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.argv = before
        del os.environ["COLUMNS"], os.environ["LINES"]
    told = _COLOUR.sub("", out.getvalue()).replace("\x1b[2J\x1b[H", "")
    return code, told, _COLOUR.sub("", err.getvalue())
