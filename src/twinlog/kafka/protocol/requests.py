"""Hand-written requests: sent as separate pieces, and read in place.

aiokafka's own classes copy a request's bytes at every level of nesting and decode responses field by field.
`DataConnection` sends these; other requests are aiokafka's.
"""

import io
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import UnionType
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args, get_origin

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from twinlog.kafka.protocol.answer_lengths import require_lengths
from twinlog.kafka.protocol.frames import INT32, LARGEST_FRAME_BYTES, NO_TAGS, Frame, skip_tags

T = TypeVar("T")

Pieces = Sequence[bytes | memoryview]
ThrottleOf = Callable[[Frame, int, T], int]
"""Returns throttle_time_ms from a response's frame, the position of its body and the decoded answer."""

_HEADER = struct.Struct(">hhih")
"""API key, version, correlation id, length of the client id: request header v1. Version 2 adds tagged
fields."""
_API_VERSIONS = 18
"""Its answer has the oldest header in every version, because the client does not know the broker's versions
yet."""


def first_field_throttle(frame: Frame, position: int, _answer: object) -> int:
    """throttle_time_ms if the response begins with it, as most do."""
    return int(INT32.unpack_from(frame, position)[0])


@dataclass(slots=True, eq=False, repr=False)
class AgreedRequest(Generic[T]):
    """A request in the version that both sides support, and the reader of its response."""

    api_key: int
    version: int
    pieces: Pieces
    """The body."""
    decode: Callable[[Frame, int, int], T]
    throttle_of: ThrottleOf[T]
    _: KW_ONLY
    largest_answer_bytes: int
    is_flexible: bool
    throttle_ms: int = 0
    """Known once the response was read: for how long the broker reads nothing more from the connection
    (KIP-219)."""
    sent_at: float = 0.0
    """Loop time."""

    def header(self, correlation_id: int, client_id: bytes) -> bytes:
        header = _HEADER.pack(self.api_key, self.version, correlation_id, len(client_id)) + client_id
        return header + NO_TAGS if self.is_flexible else header

    def read(self, frame: Frame, position: int) -> T:
        """The response after its correlation id, at `position`; it may refer to the frame's bytes."""
        if self.is_flexible and self.api_key != _API_VERSIONS:
            position = skip_tags(frame, position)
        answer = self.decode(frame, position, self.version)
        self.throttle_ms = max(0, self.throttle_of(frame, position, answer))
        return answer


@dataclass(slots=True, eq=False, repr=False)
class HandWrittenRequest(Generic[T]):
    """`encode` and `decode` get the negotiated version, and only the bodies."""

    api_key: int
    versions: range
    encode: Callable[[int], Pieces]
    decode: Callable[[Frame, int, int], T]
    _: KW_ONLY
    flexible_from: int | None = None
    """From this version on the headers have tagged fields (KIP-482)."""
    throttle_of: ThrottleOf[T] = first_field_throttle
    largest_answer_bytes: int = LARGEST_FRAME_BYTES
    """A larger one ends the connection before it is received."""

    def prepare(self, broker_versions: Mapping[int, tuple[int, int]]) -> AgreedRequest[T]:
        """Raises IncompatibleBrokerVersion when the broker supports none of our versions."""
        oldest, newest = broker_versions.get(self.api_key, (0, -1))
        version = min(newest, self.versions[-1])
        if version < max(oldest, self.versions[0]):
            raise IncompatibleBrokerVersion(
                f"the broker speaks versions {oldest} to {newest} of request {self.api_key}, "
                f"{self.versions[0]} to {self.versions[-1]} are needed"
            )
        return AgreedRequest(
            self.api_key,
            version,
            self.encode(version),
            self.decode,
            self.throttle_of,
            largest_answer_bytes=self.largest_answer_bytes,
            is_flexible=self.is_flexible(version),
        )

    def is_flexible(self, version: int) -> bool:
        """Whether the headers of this version have tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from


# Kafka's messages as objects, by the schemas of `kio`, which are generated from Kafka's own.
#
# kio reads no tagged field that it does not know; brokers may add some to any flexible version (KIP-482), so
# take versions before those where their strings of at most 32,767 bytes are enough. Where an answer has such
# a field, the next request is one of an earlier version.
#
# For requests that are rare or small. A request is a mapping of what any version has, by kio's names of
# fields; nested structs are mappings, arrays any sequence, times and durations milliseconds. An answer is an
# object of kio: names as there, durations `timedelta`. What services ask all the time is hand-written
# (`requests`).

Fields = Mapping[str, Any]

API_KEYS: Final = {name: key for key, name in api_key_map.items()}
"""By kio's name of an API."""
request_schema: Final = cache(load_request_schema)
response_schema: Final = cache(load_response_schema)
"""By API key and version. To find one takes kio as long as to write a small request."""
_UNREADABLE: Final[set[tuple[int, int]]] = set()
"""APIs and versions in whose answers brokers have something that the schemas do not know."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def _as_it_is(answer: Any) -> Any:
    return answer


class SchemaRequest(HandWrittenRequest[Any]):
    """A request by its schema, sent like a hand-written one. Schemas are loaded when a version is agreed on:
    each takes about 10 ms."""

    def __init__(
        self, api: str, versions: range, asked: Fields, told: Callable[[Any], Any] = _as_it_is
    ) -> None:
        """`api`: kio's name, as "create_topics". `told` reads the answer."""
        self.told = told
        super().__init__(
            API_KEYS[api], versions, self._written, self._read, throttle_of=lambda *_: self._throttle_ms
        )
        self.asked = asked
        self._throttle_ms = 0

    def prepare(self, broker_versions: Mapping[int, tuple[int, int]]) -> AgreedRequest[Any]:
        oldest, newest = broker_versions.get(self.api_key, (0, -1))
        lowest, version = max(oldest, self.versions[0]), min(newest, self.versions[-1])
        while version > lowest and (self.api_key, version) in _UNREADABLE:
            version -= 1
        return super().prepare({self.api_key: (oldest, version)} if version >= lowest else broker_versions)

    def is_flexible(self, version: int) -> bool:
        return request_schema(self.api_key, version).__flexible__

    def _written(self, version: int) -> Pieces:
        """Raises KafkaError for a value that is too large for its field."""
        schema = request_schema(self.api_key, version)
        buffer = io.BytesIO()
        try:
            entity_writer(schema)(buffer, build(schema, self.asked))
        except (SerialError, struct.error) as error:
            raise KafkaError(f"{api_key_map[self.api_key]}: {error}") from error
        return [buffer.getvalue()]

    def _read(self, frame: Frame, position: int, version: int) -> Any:
        """Raises ValueError for what cannot be read."""
        schema, data = response_schema(self.api_key, version), bytes(frame)
        try:
            require_lengths(schema, data, position)
            answer, _ = entity_reader(schema)(data, position)
        except KeyError as error:
            _UNREADABLE.add((self.api_key, version))
            raise ValueError(f"the answer to {api_key_map[self.api_key]} v{version}: {error}") from error
        except SerialError as error:
            raise ValueError(f"the answer to {api_key_map[self.api_key]} v{version}: {error}") from error
        throttle: timedelta = getattr(answer, "throttle_time", timedelta(0))
        self._throttle_ms = throttle // _MILLISECOND
        return self.told(answer)


class _Field(NamedTuple):
    name: str
    convert: Callable[[Any], Any] | None
    default: Any


def build(entity_type: type[Any], given: Fields) -> Any:
    """An entity of kio from the fields that it has. Raises KeyError for one that is needed."""
    values = {}
    for name, convert, default in _plan(entity_type):  # type: ignore[arg-type]
        value = given.get(name, default)
        if value is MISSING:
            raise KeyError(f"{entity_type.__name__} needs {name}")
        if value is not default and convert is not None and value is not None:
            value = convert(value)
        values[name] = value
    return entity_type(**values)


@cache
def _plan(entity_type: type[Any]) -> tuple[_Field, ...]:
    return tuple(_planned(each.name, each.type, each.metadata, each.default) for each in fields(entity_type))


def _planned(name: str, hint: Any, metadata: Mapping[str, Any], default: Any) -> _Field:
    kind = metadata.get("kafka_type", "")
    is_optional = get_origin(hint) is UnionType
    if is_optional:
        hint = next(each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) is tuple:
        inner: type[Any] = get_args(hint)[0]
        if is_dataclass(inner):
            return _Field(name, lambda value: tuple(build(inner, each) for each in value), default)
        return _Field(name, tuple, default)
    if is_dataclass(hint):
        nested: type[Any] = hint  # type: ignore[assignment]
        return _Field(name, lambda value: build(nested, value), default)
    if kind == "error_code":
        return _Field(name, ErrorCode, ErrorCode.none if default is MISSING else default)
    if kind.startswith("timedelta"):
        return _Field(name, _duration, timedelta(0) if default is MISSING else default)
    if kind.startswith("datetime"):
        return _Field(name, _optional_time if is_optional else _time, default)
    return _Field(name, None, default)


def _duration(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _optional_time(milliseconds: int) -> datetime | None:
    return None if milliseconds < 0 else _time(milliseconds)
