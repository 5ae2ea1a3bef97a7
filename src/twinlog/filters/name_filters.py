"""Which topics and groups a flow includes: MM2's default filters.

A name is included when the include list matches it and the exclude list does not.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from twinlog.errors import ConfigError
from twinlog.filters.java_classes import RegexSyntaxError
from twinlog.filters.java_regex import compile_linear
from twinlog.filters.linear import LinearPattern

# A list of name patterns in MM2's form: joined with `|`, matched against the whole name.

_SHOWN_CHARACTERS = 500


class PatternList:
    """Names or Java regular expressions; a name matches when one of them matches all of it.

    An empty list matches nothing, and a lone `*` is not allowed: "every topic" is `.*`. Raises ConfigError
    with the key and the pattern when one does not compile, or could take very long to match. Matching takes
    time proportional to the name.
    """

    __slots__ = ("_alternatives", "_joined", "key", "patterns")

    def __init__(self, key: str, patterns: Iterable[str]) -> None:
        self.key = key
        self.patterns = tuple(patterns)
        self._joined = _compile_all(key, self.patterns)
        self._alternatives = [(pattern, _compile_alone(pattern)) for pattern in self.patterns]

    def matches(self, name: str) -> bool:
        return self._joined is not None and self._joined.matches(name)

    def deciding_pattern(self, name: str) -> str | None:
        """Return the first pattern that matches `name`; None when there is none.

        Patterns are joined before they are compiled, so an inline flag also applies to the following ones,
        and `(a,b)` is one group over two list elements. If only the whole list explains a match, the joined
        list is returned.
        """
        if not self.matches(name):
            return None
        for pattern, alone in self._alternatives:
            if alone is not None and alone.matches(name):
                return pattern
        return "|".join(self.patterns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PatternList) and (self.key, self.patterns) == (other.key, other.patterns)

    def __hash__(self) -> int:
        return hash((self.key, self.patterns))

    def __repr__(self) -> str:
        return f"PatternList({self.key!r}, {self.patterns!r})"


def _compile_all(key: str, patterns: tuple[str, ...]) -> LinearPattern | None:
    if not patterns:
        return None
    try:
        return compile_linear("|".join(patterns))
    except RegexSyntaxError as error:
        culprit = next(
            (pattern for pattern in patterns if _compile_alone(pattern) is None), "|".join(patterns)
        )[:_SHOWN_CHARACTERS]
        raise ConfigError(
            f"{key}: {culprit!r} is not a valid regular expression: {_reason(culprit, error)}"
            f"{_remedy(culprit)}",
            metadata={"key": key, "pattern": culprit},
        ) from error


def _compile_alone(pattern: str) -> LinearPattern | None:
    try:
        return compile_linear(pattern)
    except RegexSyntaxError:
        return None


def _reason(pattern: str, of_the_list: RegexSyntaxError) -> str:
    try:
        compile_linear(pattern)
    except RegexSyntaxError as error:
        return str(error)
    return str(of_the_list)


def _remedy(pattern: str) -> str:
    if pattern.startswith("*"):
        return " (for any name write '.*')"
    if any(pattern.count(opening) != pattern.count(closing) for opening, closing in ("{}", "()", "[]")):
        return " (a comma separates list elements, so a pattern cannot hold one)"
    return ""


class FilterOutcome(StrEnum):
    INCLUDED = "INCLUDED"
    EXCLUDED = "EXCLUDED"
    NOT_INCLUDED = "NOT_INCLUDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterVerdict:
    """A filter's decision about a name, with the deciding rule."""

    outcome: FilterOutcome
    key: str
    """The configuration key that decided."""
    pattern: str | None
    """The deciding element of that list; None when none matched."""

    @property
    def included(self) -> bool:
        return self.outcome is FilterOutcome.INCLUDED


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFilter:
    """An include and an exclude list; exclude takes precedence."""

    include: PatternList
    exclude: PatternList

    def takes(self, name: str) -> bool:
        return self.include.matches(name) and not self.exclude.matches(name)

    def judge(self, name: str) -> FilterVerdict:
        """As `takes`, with the reason."""
        excluding = self.exclude.deciding_pattern(name)
        if excluding is not None:
            return FilterVerdict(outcome=FilterOutcome.EXCLUDED, key=self.exclude.key, pattern=excluding)
        including = self.include.deciding_pattern(name)
        outcome = FilterOutcome.NOT_INCLUDED if including is None else FilterOutcome.INCLUDED
        return FilterVerdict(outcome=outcome, key=self.include.key, pattern=including)


def split_list(key: str, text: str) -> tuple[str, ...]:
    """Split a LIST value at its commas; a blank one is the empty list, and a repeated element counts once.

    Raises ConfigError for an empty element, as Kafka 4.2 does.
    """
    text = text.strip()
    elements = tuple(re.split(r"\s*,\s*", text)) if text else ()
    if "" in elements:
        raise ConfigError(f"{key}: an element of the list {text!r} is empty", key=key)
    return tuple(dict.fromkeys(elements))
