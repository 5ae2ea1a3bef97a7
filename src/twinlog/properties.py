"""Reads Java properties files as `java.util.Properties.load` does, and keeps the line of every key.

Java's surprising rules: a key ends at the first unescaped `=`, `:` or blank; `#` and `!` start a comment only
at the beginning of a line; a backslash is an escape (`\\.` in the file is a plain dot); trailing blanks
belong to the value; the later of two equal keys wins. One rule is left out: Java 17 makes an empty key of a
backslash that is the whole last line.

Not `javaproperties`: every message about a key names its line, which that library does not keep.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from twinlog.errors import ConfigError

ISO_8859_1 = "iso-8859-1"
"""The encoding of `Properties.load(InputStream)`."""

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One setting and its place. The value is left out of repr, because it may be a secret."""

    key: str
    value: str = field(repr=False)
    line: int = 0
    """1-based line of the key; 0 for a default."""
    written: str | None = field(default=None, repr=False)
    """The text in the file when `value` was resolved from `${provider:…}` references; otherwise None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    entries: Mapping[str, Property]
    overridden: tuple[Property, ...]
    """Earlier occurrences of repeated keys, in file order."""


def parse(content: bytes, *, file: str, encoding: str = ISO_8859_1) -> Properties:
    """Read a properties file. Errors name `file`.

    Raises ConfigError (file and line) for a malformed `\\uXXXX`, for bytes that are not in `encoding` and for
    a byte-order mark, which Java would silently make part of the first key.
    """
    if content.startswith(b"\xef\xbb\xbf"):
        raise _error(file, 1, "the file starts with a UTF-8 byte-order mark: save it without one")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _error(file, line, f"a byte that is not {encoding}") from error
    entries: dict[str, Property] = {}
    overridden: list[Property] = []
    for line, logical in _logical_lines(text):
        raw_key, raw_value = _split(logical)
        try:
            key, value = _unescape(raw_key), _unescape(raw_value)
        except ValueError as error:
            raise _error(file, line, str(error)) from error
        if key in entries:
            overridden.append(entries.pop(key))
        entries[key] = Property(key=key, value=value, line=line)
    return Properties(entries=entries, overridden=tuple(overridden))


def _error(file: str, line: int, problem: str) -> ConfigError:
    return ConfigError(f"{file}:{line}: {problem}", metadata={"file": file, "line": str(line)})


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Natural lines joined at trailing backslashes, comments and blank lines dropped, with their first line
    number."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(_natural_lines(text), start=1):
        stripped = natural.lstrip(_BLANKS)
        joined_so_far = any(parts)
        if not joined_so_far and (not stripped or stripped[0] in "#!"):
            # Java drops a lone continuation backslash before a comment or a blank line.
            parts = []
            continue
        if not joined_so_far:
            first = number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            parts.append(stripped[:-1])
            continue
        yield first, "".join((*parts, stripped))
        parts = []
    if any(parts):
        yield first, "".join(parts)


def _natural_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _split(logical: str) -> tuple[str, str]:
    """Key and value of a logical line, both still escaped."""
    escaped = False
    end = len(logical)
    for index, char in enumerate(logical):
        if not escaped and (char in "=:" or char in _BLANKS):
            end = index
            break
        escaped = char == "\\" and not escaped
    rest = logical[end:].lstrip(_BLANKS)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANKS)
    return logical[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    index = 0
    while index < len(text):
        char = text[index]
        index += 1
        if char != "\\" or index == len(text):
            out.append(char)
            continue
        char = text[index]
        index += 1
        if char == "u":
            digits = text[index : index + 4]
            if len(digits) < 4 or not _HEX_DIGITS.issuperset(digits):
                raise ValueError("malformed \\uXXXX escape: expected four hexadecimal digits after \\u")
            out.append(chr(int(digits, 16)))
            index += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Java strings are UTF-16: two escapes may be the halves of one character.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
