"""Parses `sasl.jaas.config`, the login configuration of Kafka's Java clients.

`MODULE FLAG key=value … ;` as Java's `JaasConfig` reads it with a `StreamTokenizer`: values are words or
quoted with " or ', a backslash in quotes escapes as in C,

and /* */ are comments. Errors never repeat any part of the value, because it contains a password.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

_CONTROL_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PUNCTUATION = frozenset("=;")
_OCTAL = frozenset("01234567")


class JaasSyntaxError(ValueError):
    """The text is not a login configuration; the message tells what is missing, without any part of the
    text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginEntry:
    """One login module with its options, which repr hides because they contain the password."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def module_name(self) -> str:
        """The class name without its package: `ScramLoginModule`."""
        return self.module.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    quoted: bool = False

    def is_mark(self, mark: str) -> bool:
        return self.text == mark and not self.quoted


def parse_jaas(text: str) -> LoginEntry:
    """Read the first entry of a login configuration. Raises JaasSyntaxError."""
    tokens = _tokens(text)
    if not tokens:
        raise JaasSyntaxError("it is empty")
    if len(tokens) < 2 or tokens[1].text.lower() not in _CONTROL_FLAGS:
        raise JaasSyntaxError("the login module is not followed by a control flag such as 'required'")
    options: dict[str, str] = {}
    position = 2
    while position < len(tokens) and not tokens[position].is_mark(";"):
        if position + 2 >= len(tokens) or not tokens[position + 1].is_mark("="):
            raise JaasSyntaxError(f'option {len(options) + 1} is not of the form key="value"')
        value = tokens[position + 2]
        if value.is_mark(";") or value.is_mark("="):
            raise JaasSyntaxError(f"option {len(options) + 1} has no value")
        options[tokens[position].text] = value.text
        position += 3
    if position >= len(tokens):
        raise JaasSyntaxError("it does not end with a semicolon")
    return LoginEntry(module=tokens[0].text, options=options)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char.isspace():
            position += 1
        elif text.startswith("//", position):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end + 1
        elif text.startswith("/*", position):
            end = text.find("*/", position + 2)
            position = len(text) if end < 0 else end + 2
        elif char in _PUNCTUATION:
            tokens.append(_Token(char))
            position += 1
        elif char in "\"'":
            token, position = _quoted(text, position)
            tokens.append(token)
        else:
            start = position
            while position < len(text) and not (text[position].isspace() or text[position] in "=;\"'"):
                position += 1
            tokens.append(_Token(text[start:position]))
    return tokens


def _quoted(text: str, start: int) -> tuple[_Token, int]:
    quote = text[start]
    chars: list[str] = []
    position = start + 1
    while position < len(text):
        char = text[position]
        if char == quote:
            return _Token("".join(chars), quoted=True), position + 1
        if char == "\n":
            break
        if char != "\\" or position + 1 >= len(text):
            chars.append(char)
            position += 1
            continue
        position += 1
        digits = ""
        while len(digits) < 3 and position < len(text) and text[position] in _OCTAL:
            if len(digits) == 2 and digits[0] > "3":
                break
            digits += text[position]
            position += 1
        if digits:
            chars.append(chr(int(digits, 8)))
        else:
            chars.append(_ESCAPES.get(text[position], text[position]))
            position += 1
    raise JaasSyntaxError("a quoted value is not closed")
