"""Kafka's messages as bytes and objects, by the schemas of `kio`.

A handler serves all versions of an API: it reads a request's fields with their names in kio, and answers with
a mapping of everything that any version has. `write_answer` keeps what the version of the request knows.
"""

import io
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from twinlog.kafka.protocol.requests import build, request_schema, response_schema

Fields = Mapping[str, Any]
"""An answer, as `schemas.build` takes it."""

_NESTING = (dict, list, tuple)
_FRAME_START = 8
"""API key, API version, correlation id."""


class Request(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    """A request class of kio."""


class UnreadableRequestError(Exception):
    """A broker closes the connection on this."""


class UnsupportedVersionError(Exception):
    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(f"{api_key_map.get(api_key, api_key)} v{version}")
        self.api_key = api_key
        self.correlation_id = correlation_id


def schema_versions(api_key: int) -> tuple[int, int]:
    """The lowest and the highest version for which there is a schema."""
    versions = schema_name_map[api_key_map[api_key]]
    return min(versions), max(versions)


def read_request(frame: bytes) -> Request:
    """Raises UnsupportedVersionError, UnreadableRequestError."""
    if len(frame) < _FRAME_START:
        raise UnreadableRequestError("a request without a header")
    api_key, version = (int.from_bytes(frame[at : at + 2], signed=True) for at in (0, 2))
    correlation_id = int.from_bytes(frame[4:8], signed=True)
    if api_key not in api_key_map or version not in schema_name_map[api_key_map[api_key]]:
        raise UnsupportedVersionError(api_key, version, correlation_id)
    schema = request_schema(api_key, version)
    try:
        header, size = entity_reader(schema.__header_schema__)(frame, 0)
        body, _ = entity_reader(schema)(frame, size)
    except Exception as error:  # kio's errors have no root
        raise UnreadableRequestError(f"{api_key_map[api_key]} v{version}: {error!r}") from error
    return Request(api_key, version, correlation_id, header.client_id, body)


def write_answer(api_key: int, version: int, correlation_id: int, answer: Fields) -> bytes:
    """A frame with its length. Raises KeyError for a field that no version has, or without which there is no
    answer."""
    schema = response_schema(api_key, version)
    buffer = io.BytesIO()
    entity_writer(schema.__header_schema__)(
        buffer,
        schema.__header_schema__(correlation_id=correlation_id),  # type: ignore[arg-type]
    )
    names: set[str] = set()
    _add_names(answer, names)
    _check_names(api_key, version, names)
    entity_writer(schema)(buffer, build(schema, answer))
    body = buffer.getvalue()
    return len(body).to_bytes(4) + body


def _add_names(answer: Any, names: set[str]) -> None:
    """Looks at every answer, and so by exact types: handlers answer with nothing else."""
    if type(answer) is dict:
        names.update(answer)
        for value in answer.values():
            if type(value) in _NESTING:
                _add_names(value, names)
    else:
        for value in answer:
            if type(value) in _NESTING:
                _add_names(value, names)


def _check_names(api_key: int, version: int, names: set[str]) -> None:
    """Look into as few schemas as it takes: loading one takes milliseconds."""
    lowest, highest = schema_versions(api_key)
    unknown = names
    for each in (version, highest, *range(lowest, highest)):
        unknown = unknown - _names(api_key, each)
        if not unknown:
            return
    raise KeyError(f"no version of {api_key_map[api_key]}'s answer has {sorted(unknown)}")


@cache
def _names(api_key: int, version: int) -> frozenset[str]:
    names: set[str] = set()
    _collect_names(response_schema(api_key, version), names)
    return frozenset(names)


def _collect_names(entity_type: type[Any], names: set[str]) -> None:
    for each in fields(entity_type):
        names.add(each.name)
        hint = each.type
        if get_origin(hint) is UnionType:
            hint = next(arg for arg in get_args(hint) if arg is not type(None))
        inner = get_args(hint)[0] if get_origin(hint) is tuple else hint
        if is_dataclass(inner):
            _collect_names(inner, names)  # type: ignore[arg-type]
