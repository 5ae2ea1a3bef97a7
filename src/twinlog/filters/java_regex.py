r"""Converts Java regular expressions to Python's, so that the patterns of an MM2 file match the same names.

Java's `\w`, `\d`, `\s`, `\b` and case folding are ASCII by default, hence re.ASCII. Converted: named groups,
inline flags in the middle (with Java's scope: to the end of the group, across `|`), `\Q..\E`, `\p{..}` (POSIX
and general categories), nested, united and intersected character classes, Java-only escapes. Refused with
RegexSyntaxError: what Java itself refuses (`*` alone, a `{` that is no repetition, Python-only groups), and
the few things that Python cannot express (`(?x)`, `(?U)`, look-behind of variable length, a repetition of a
repetition, scripts and blocks in `\p{..}`).
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from twinlog.filters.java_classes import CharacterClasses, RegexSyntaxError
from twinlog.filters.linear import LONGEST_PATTERN, LinearPattern

_REPETITION = re.compile(r"\{\d+(?:,\d*)?\}")
_FLAG_GROUP = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NAMED_GROUP = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_PLAIN_GROUPS = ("(?=", "(?!", "(?<=", "(?<!", "(?>")
_BACK_REFERENCE = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>")
_FLAGS = {"i": "i", "m": "m", "s": "s", "u": "u", "d": ""}
"""Java's inline flags as Python's letters. `d` (only \n ends a line) is Python's behaviour anyway."""
_ESCAPES = {
    "z": r"\Z",
    "Z": r"(?=\n?\Z)",
    "R": r"(?:\r\n|[\n\x0b\x0c\r\x85\u2028\u2029])",
}
_ANCHORS = "AbB"
_REMEMBERED_CHARACTERS = 500
"""Compiled patterns up to this length are cached, so that patterns from callers take at most a few
megabytes."""


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile a Java pattern. Raises RegexSyntaxError, which names the problem and its position."""
    try:
        return re.compile(translate(pattern), re.ASCII)
    except re.error as error:
        # The position would be one in the translation, which users never see.
        raise RegexSyntaxError(error.msg) from error
    except (RecursionError, OverflowError) as error:
        raise RegexSyntaxError(str(error)) from error


def compile_linear(pattern: str) -> LinearPattern:
    """Compile a Java pattern from a user or another service, to match names in bounded time. Raises
    RegexSyntaxError, also for one that could take very long."""
    if len(pattern) > LONGEST_PATTERN:
        raise RegexSyntaxError(f"it has more than {LONGEST_PATTERN} characters")
    return _compile_again(pattern) if len(pattern) <= _REMEMBERED_CHARACTERS else _compile_linear(pattern)


def _compile_linear(pattern: str) -> LinearPattern:
    compile_java(pattern)
    try:
        return LinearPattern(translate(pattern))
    except RecursionError as error:
        raise RegexSyntaxError("its groups are nested too deeply") from error


_compile_again = lru_cache(maxsize=512)(_compile_linear)
"""The flows of a file mostly have the same patterns, and each pattern is also compiled separately."""


def translate(pattern: str) -> str:
    """Return the Python pattern that matches the same as the Java pattern. Raises RegexSyntaxError."""
    return _Translator(pattern).run()


@dataclass(slots=True)
class _Scope:
    """An open group of the Java pattern, and the flag groups inside it that are closed with it."""

    flags: list[str]


class _Translator:
    """Reads a pattern once, left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._output: list[str] = []
        self._scopes = [_Scope([])]
        self._classes = CharacterClasses(pattern)

    def run(self) -> str:
        while self._position < len(self._pattern):
            self._step(self._pattern[self._position])
        if len(self._scopes) > 1:
            raise RegexSyntaxError("a group is not closed: ')' is missing")
        self._close_flags()
        return "".join(self._output)

    def _step(self, character: str) -> None:
        if character == "\\":
            self._escape()
        elif character == "[":
            self._character_class()
        elif character == "(":
            self._open_group()
        elif character == ")":
            self._close_group()
        elif character == "|":
            self._alternative()
        elif character == "{":
            self._repetition()
        else:
            self._emit(character, 1)

    def _emit(self, text: str, consumed: int) -> None:
        self._output.append(text)
        self._position += consumed

    def _character_class(self) -> None:
        fragment, end = self._classes.read_class(self._position)
        self._emit(fragment, end - self._position)

    def _repetition(self) -> None:
        match = _REPETITION.match(self._pattern, self._position)
        if match is None:
            raise RegexSyntaxError(
                f"illegal repetition '{{' at {self._position}: write '\\{{' for the character"
            )
        self._emit(match[0], len(match[0]))

    def _alternative(self) -> None:
        self._output.append(")" * len(self._scopes[-1].flags))
        self._emit("|", 1)
        self._output.extend(self._scopes[-1].flags)

    def _open_group(self) -> None:
        if not self._pattern.startswith("(?", self._position):
            self._scopes.append(_Scope([]))
            self._emit("(", 1)
            return
        for opening in _PLAIN_GROUPS:
            if self._pattern.startswith(opening, self._position):
                self._scopes.append(_Scope([]))
                self._emit(opening, len(opening))
                return
        named = _NAMED_GROUP.match(self._pattern, self._position)
        if named is not None:
            self._scopes.append(_Scope([]))
            self._emit(f"(?P<{named[1]}>", len(named[0]))
            return
        flags = _FLAG_GROUP.match(self._pattern, self._position)
        if flags is None:
            raise RegexSyntaxError(
                f"unknown group '{self._pattern[self._position :][:4]}' at {self._position}"
            )
        opening = _flag_opening(flags[1], flags[2] or "")
        if flags[3] == ":":
            self._scopes.append(_Scope([]))
            self._emit(opening, len(flags[0]))
        else:
            self._scopes[-1].flags.append(opening)
            self._emit(opening, len(flags[0]))

    def _close_group(self) -> None:
        if len(self._scopes) == 1:
            raise RegexSyntaxError(f"')' at {self._position} closes no group")
        self._close_flags()
        self._scopes.pop()
        self._emit(")", 1)

    def _close_flags(self) -> None:
        self._output.append(")" * len(self._scopes[-1].flags))

    def _escape(self) -> None:
        following = self._pattern[self._position + 1 : self._position + 2]
        if following in _ESCAPES and following:
            self._emit(_ESCAPES[following], 2)
        elif following in _ANCHORS and following:
            self._emit("\\" + following, 2)
        elif following == "k":
            self._back_reference()
        elif following.isascii() and following.isdigit() and following != "0":
            self._emit(f"(?:\\{following})", 2)
        elif following == "Q":
            literal, end = self._classes.read_quotation(self._position)
            self._emit(re.escape(literal), end - self._position)
        else:
            fragment, end = self._classes.read_escape(self._position)
            self._emit(fragment, end - self._position)

    def _back_reference(self) -> None:
        match = _BACK_REFERENCE.match(self._pattern, self._position)
        if match is None:
            raise RegexSyntaxError(f"'\\k' at {self._position} names no group: expected '\\k<name>'")
        self._emit(f"(?P={match[1]})", len(match[0]))


def _flag_opening(switched_on: str, switched_off: str) -> str:
    """Return the opening of a Python group with these flags of Java's switched on and off."""
    for flag in switched_on + switched_off:
        if flag not in _FLAGS:
            raise RegexSyntaxError(f"the flag '{flag}' in '(?{flag})' is not supported")
    if "u" in switched_off:
        raise RegexSyntaxError("'(?-u)' is not supported")
    enabled = "".join(sorted({_FLAGS[flag] for flag in switched_on}))
    disabled = "".join(sorted({_FLAGS[flag] for flag in switched_off}))
    return f"(?{enabled}-{disabled}:" if disabled else f"(?{enabled}:"
