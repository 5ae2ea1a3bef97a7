"""Declared binary schemas, with their only reader and writer.

Encodings (MM2's, which are the Kafka protocol's): INT16, INT32, INT64 big-endian two's complement; STRING =
INT16 byte length (0..32767) and that many bytes of UTF-8, never null. No padding. Bytes after the last field
are ignored.
"""

import struct
from collections.abc import Mapping
from enum import Enum
from typing import Any

from twinlog.errors import WireFormatError

FieldValue = int | str
MAX_STRING_BYTES = 32767
"""A STRING's length is a signed INT16."""


class FieldType(Enum):
    INT16 = ">h"
    INT32 = ">i"
    INT64 = ">q"
    STRING = "utf-8"


_INTEGERS = {kind: struct.Struct(kind.value) for kind in FieldType if kind is not FieldType.STRING}
_LENGTH = _INTEGERS[FieldType.INT16]


class Schema:
    """An ordered list of named fields: `Schema("Checkpoint key", ("group", FieldType.STRING), ...)`.

    Only error messages use the name.
    """

    __slots__ = ("fields", "name")

    def __init__(self, name: str, *fields: tuple[str, FieldType]) -> None:
        self.name = name
        self.fields = fields

    def write(self, values: Mapping[str, FieldValue]) -> bytes:
        """Return the bytes of all fields in order.

        Raises WireFormatError when a value does not fit its type, KeyError when one is missing.
        """
        return b"".join(self._encode(name, kind, values[name]) for name, kind in self.fields)

    def read(self, buffer: bytes, position: int = 0) -> tuple[dict[str, Any], int]:
        """Read all fields from `position`; return them (int or str) and the position after the last one.

        Raises WireFormatError when the bytes end early, a length is negative or a string is not UTF-8.
        """
        values: dict[str, Any] = {}
        for name, kind in self.fields:
            if kind is FieldType.STRING:
                values[name], position = self._read_string(buffer, position, name)
            else:
                values[name], position = self._read_integer(buffer, position, name, _INTEGERS[kind])
        return values, position

    def _encode(self, name: str, kind: FieldType, value: FieldValue) -> bytes:
        try:
            if isinstance(value, str):
                if kind is not FieldType.STRING:
                    raise self._error(name, f"expected an integer, got the string {value!r}")
                encoded = value.encode()
                if len(encoded) > MAX_STRING_BYTES:
                    raise self._error(name, f"{len(encoded)} bytes, at most {MAX_STRING_BYTES} fit")
                return _LENGTH.pack(len(encoded)) + encoded
            if kind is FieldType.STRING:
                raise self._error(name, f"expected a string, got {value!r}")
            return _INTEGERS[kind].pack(value)
        except (struct.error, UnicodeEncodeError) as error:
            raise self._error(name, f"{value!r} does not fit {kind.name}: {error}") from error

    def _read_integer(
        self, buffer: bytes, position: int, name: str, layout: struct.Struct
    ) -> tuple[int, int]:
        end = position + layout.size
        if end > len(buffer):
            raise self._error(name, f"needs {layout.size} bytes at {position}, {len(buffer) - position} left")
        value: int = layout.unpack_from(buffer, position)[0]
        return value, end

    def _read_string(self, buffer: bytes, position: int, name: str) -> tuple[str, int]:
        length, start = self._read_integer(buffer, position, name, _LENGTH)
        end = start + length
        if length < 0:
            raise self._error(name, f"negative string length {length}")
        if end > len(buffer):
            raise self._error(name, f"needs {length} bytes at {start}, {len(buffer) - start} left")
        try:
            return buffer[start:end].decode(), end
        except UnicodeDecodeError as error:
            raise self._error(name, f"not UTF-8: {error}") from error

    def _error(self, field: str, problem: str) -> WireFormatError:
        return WireFormatError(
            f"{self.name}: field {field}: {problem}", metadata={"schema": self.name, "field": field}
        )


HEADER = Schema("header", ("version", FieldType.INT16))
"""The first fields of versioned values."""


def read_versioned(schemas: Mapping[int, Schema], name: str, buffer: bytes) -> tuple[int, dict[str, Any]]:
    """Read the version header, then the schema of that version.

    An unknown version is refused (Kafka 4.4, KAFKA-20659; earlier releases read it as version 0). Raises
    WireFormatError.
    """
    header, position = HEADER.read(buffer)
    version: int = header["version"]
    schema = schemas.get(version)
    if schema is None:
        known = ", ".join(str(number) for number in sorted(schemas))
        raise WireFormatError(
            f"{name}: version {version} is unknown, this release reads {known}",
            reason="WIRE_VERSION",
            metadata={"schema": name, "version": str(version)},
        )
    values, _ = schema.read(buffer, position)
    return version, values


def write_versioned(schemas: Mapping[int, Schema], version: int, values: Mapping[str, FieldValue]) -> bytes:
    """Write the version header and the schema of that version."""
    return HEADER.write({"version": version}) + schemas[version].write(values)


def present(part: bytes | None, name: str) -> bytes:
    """Return `part`, or raise WireFormatError for None: none of our records has a null key or value (a
    tombstone).

    Readers of compacted topics check for tombstones before they decode.
    """
    if part is None:
        raise WireFormatError(
            f"{name} is null: a tombstone or no record of this kind", metadata={"schema": name}
        )
    return part
