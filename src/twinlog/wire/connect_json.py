"""JSON in the exact bytes of Connect's JsonConverter (Jackson, `schemas.enable=false`).

Source offsets are looked up by their serialized key, so every byte counts: no spaces, keys in the given
order, `"` and `\\` escaped, control characters as `\\b \\t \\n \\f \\r` or `\\u00XX` with upper-case digits,
`/` and DEL as they are, other characters as raw UTF-8, except those outside the basic plane, which Jackson
writes as two escaped surrogates (seen with Jackson 2.21).
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from twinlog.errors import WireFormatError

JsonValue = str | int | bool | None | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
"""The value types of our records. No floats: their text differs between languages."""

_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPED = re.compile(r'["\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')


def dumps(value: JsonValue) -> bytes:
    """Return Jackson's bytes of a value. Raises TypeError for a float or any other type."""
    return _text(value).encode()


def loads(data: bytes, name: str) -> Any:
    """Parse JSON; errors call it `name`. Raises WireFormatError for anything else."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"{name}: not JSON: {error}", metadata={"schema": name}) from error


def _text(value: JsonValue) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_string(key)}:{_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    raise TypeError(f"{type(value).__name__} has no place in these records")


def _string(text: str) -> str:
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    short = _SHORT_ESCAPES.get(character)
    if short is not None:
        return short
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"
