"""Writes Java's formats: properties files, and the JAAS entries inside them. Pure."""

import re
from collections.abc import Mapping
from typing import Final

_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def render_properties(properties: Mapping[str, str]) -> str:
    """As a Java properties file that reads back to the same."""
    return "".join(f"{_escaped_key(key)}={_escaped_value(value)}\n" for key, value in properties.items())


def plain_login(options: Mapping[str, str]) -> str:
    """A `sasl.jaas.config` for PLAIN: the client's own `username` and `password`, and `user_NAME` for each
    user that a broker knows."""
    return _login("plain.Plain", options)


def scram_login(options: Mapping[str, str]) -> str:
    """A `sasl.jaas.config` for SCRAM: `username` and `password`, and neither on a broker."""
    return _login("scram.Scram", options)


def _login(module: str, options: Mapping[str, str]) -> str:
    words = "".join(f" {key}={_quoted(value)}" for key, value in options.items())
    return f"org.apache.kafka.common.security.{module}LoginModule required{words};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escaped_value(text: str) -> str:
    escaped = _escaped(text)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escaped_key(text: str) -> str:
    return re.sub(r"[ =:#!]", r"\\\g<0>", _escaped(text))


def _escaped(text: str) -> str:
    """Escapes everything that the file format does not allow: Java reads ISO-8859-1, and UTF-16 units as
    \\uXXXX."""
    return "".join(_ESCAPES.get(unit) or _ascii(unit) for unit in text)


def _ascii(character: str) -> str:
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
