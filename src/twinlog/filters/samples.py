r"""Generates a few names that a pattern matches, to find out whether two lists of patterns overlap. Pure.

Parses the usual elements of topic patterns (characters, `.`, classes, groups, alternatives, repetitions).
Other elements reduce the number of samples, but never lead to wrong ones: every sample is checked with the
pattern.
"""

from itertools import product
from typing import Final

from twinlog.filters.java_classes import RegexSyntaxError
from twinlog.filters.java_regex import compile_java

_MOST: Final = 12
"""The most samples of one pattern."""
_LONGEST: Final = 249
_CLASSES: Final = {"d": "0", "w": "a", "D": "a", "W": "-", "S": "a"}


def samples(pattern: str) -> tuple[str, ...]:
    """Up to 12 names that match a Java pattern completely, the shortest first; empty when none is found."""
    try:
        compiled = compile_java(pattern)
    except RegexSyntaxError:
        return ()
    found = dict.fromkeys(_Sampler(pattern).alternatives())
    matching = [name for name in found if name and len(name) <= _LONGEST and compiled.fullmatch(name)]
    return tuple(sorted(matching, key=lambda name: (len(name), name))[:_MOST])


class _Sampler:
    """Reads a pattern once, left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0

    def alternatives(self) -> list[str]:
        """To the end, or to the parenthesis that closes this group."""
        found = self._sequence()
        while self._peek() == "|":
            self._position += 1
            found += self._sequence()
        return found[: _MOST * 2]

    def _sequence(self) -> list[str]:
        so_far = [""]
        while self._peek() not in ("", "|", ")"):
            element = self._repeated(self._element())
            so_far = [before + after for before, after in product(so_far, element)][: _MOST * 2]
        return so_far

    def _element(self) -> list[str]:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return ["a"]
            case "^" | "$":
                return [""]
            case "\\":
                escaped = self._take()
                return [_CLASSES.get(escaped, escaped)]
            case _:
                return [character]

    def _group(self) -> list[str]:
        if self._pattern.startswith("?:", self._position):
            self._position += 2
        found = self.alternatives()
        self._take()
        return found

    def _class(self) -> list[str]:
        end = self._pattern.find("]", self._position + 1)
        content = self._pattern[self._position : end] if end > 0 else ""
        self._position = end + 1 if end > 0 else len(self._pattern)
        if content.startswith("^"):
            return [each for each in "a0-_." if each not in content][:1]
        return [each for each in content if each not in "\\-"][:2] or ["-"]

    def _repeated(self, element: list[str]) -> list[str]:
        counts: tuple[int, ...]
        match self._peek():
            case "*" | "?":
                counts = (0, 1)
            case "+":
                counts = (1,)
            case "{":
                end = self._pattern.find("}", self._position)
                least = self._pattern[self._position + 1 : end].split(",")[0]
                self._position = max(end, self._position)
                counts = (int(least) if least.isdecimal() and len(least) < 4 else 1,)
            case _:
                return element
        self._position += 1
        if self._peek() in ("?", "+"):
            self._position += 1
        return [one * count for count in counts for one in element]

    def _peek(self) -> str:
        return self._pattern[self._position : self._position + 1]

    def _take(self) -> str:
        character = self._peek()
        self._position += 1
        return character
