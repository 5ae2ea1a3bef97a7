"""Converts Java's character classes and escapes into parts of Python patterns that match exactly one
character."""

import re
import sys
import unicodedata
from functools import cache, lru_cache
from itertools import groupby

_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
}
_SHORTHANDS = {
    "w": "a-zA-Z0-9_",
    "d": "0-9",
    "s": r" \t\n\x0b\f\r",
    "h": r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\n\x0b\f\r\x85\u2028\u2029",
}
_VERTICAL_TAB = "\v"
_SINGLE = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CATEGORY = re.compile(r"(?:Is)?([LMNPSZC][a-z]?)")
_PROPERTY = re.compile(r"\\([pP])(?:\{(\^?)([^}]*)\}|([A-Za-z]))")
_HEX = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|x\{([0-9a-fA-F]+)\})")
_OCTAL = re.compile(r"\\0([0-3]?[0-7]{1,2})")
_ANY = r"[\s\S]"


class RegexSyntaxError(ValueError):
    """A pattern that Java refuses, or that has no equivalent in Python."""


class CharacterClasses:
    """Reads classes and escapes of a Java pattern; every method takes the position where one starts."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def read_class(self, start: int) -> tuple[str, int]:
        """Read `[...]` at `start`. Return the fragment and the position after it."""
        position = start + 1
        negated = self._pattern.startswith("^", position)
        position += negated
        operands: list[str] = []
        while True:
            members, nested, position = self._read_union(position, start, first=not operands)
            operands.append(_union(members, nested))
            if self._pattern.startswith("]", position):
                break
            position += 2
        return _combine([operand for operand in operands if operand], negated=negated), position + 1

    def read_escape(self, start: int) -> tuple[str, int]:
        """Read an escape that stands for one character. Return the fragment and the position after it."""
        members, end = self._read_member(start, start)
        negation = members.startswith("^")
        return (f"[{members}]" if negation else _union(members, [])), end

    def read_quotation(self, start: int) -> tuple[str, int]:
        r"""Read `\Q...\E` at `start` (the end of the pattern closes it too). Return the text inside."""
        end = self._pattern.find(r"\E", start + 2)
        if end < 0:
            return self._pattern[start + 2 :], len(self._pattern)
        return self._pattern[start + 2 : end], end + 2

    def _read_union(self, position: int, start: int, *, first: bool) -> tuple[str, list[str], int]:
        """Read members up to `&&` or `]`. Return plain members, nested classes, and the position of the
        end."""
        members: list[str] = []
        nested: list[str] = []
        opening = position
        while position < len(self._pattern):
            character = self._pattern[position]
            if character == "]" and not (first and position == opening):
                return "".join(members), nested, position
            if self._pattern.startswith("&&", position):
                return "".join(members), nested, position
            if character == "[":
                fragment, position = self.read_class(position)
                nested.append(fragment)
                continue
            if self._pattern.startswith(r"\Q", position):
                literal, position = self.read_quotation(position)
                if not literal:
                    continue
                members.extend(map(_literal, literal[:-1]))
                fragment, position = self._read_range(_literal(literal[-1]), position, start)
            else:
                low, position = self._read_low(position, start)
                fragment, position = self._read_range(low, position, start)
            if fragment.startswith("^"):
                nested.append(f"[{fragment}]")
            else:
                members.append(fragment)
        raise RegexSyntaxError(f"the character class opened at {start} is not closed: ']' is missing")

    def _read_low(self, position: int, start: int) -> tuple[str, int]:
        r"""Read a member that a range may begin with. As in Java, `\v` is a character there, not a class."""
        if self._pattern.startswith(r"\v-", position):
            return _VERTICAL_TAB, position + 2
        return self._read_member(position, start)

    def _read_range(self, low: str, position: int, start: int) -> tuple[str, int]:
        r"""Read the rest of a range that may begin with `low`. After a class such as `\w` or `\p{L}` a `-` is
        the character itself, as in Java: the next member."""
        follows = self._pattern[position + 1 : position + 2]
        is_range = len(_characters(low)) == 1 and self._pattern.startswith("-", position)
        if not is_range or follows in ("", "]", "["):
            return low, position
        if self._pattern.startswith(r"\v", position + 1):
            high, end = _VERTICAL_TAB, position + 3
        else:
            high, end = self._read_member(position + 1, start)
        if len(_characters(high)) != 1 or _characters(low) > _characters(high):
            raise RegexSyntaxError(f"illegal range in the character class opened at {start}")
        return f"{low}-{high}", end

    def _read_member(self, position: int, start: int) -> tuple[str, int]:
        """Read one character or escape as members of a Python class; a leading `^` means all except these."""
        character = self._pattern[position]
        if character != "\\":
            return _literal(character), position + 1
        following = self._pattern[position + 1 : position + 2]
        if following in "pP" and following:
            return self._read_property(position)
        if following.lower() in _SHORTHANDS and following:
            members = _SHORTHANDS[following.lower()]
            return (members if following.islower() else "^" + members), position + 2
        return self._read_single(position, following)

    def _read_single(self, position: int, following: str) -> tuple[str, int]:
        if following in _SINGLE and following:
            return _literal(_SINGLE[following]), position + 2
        match = _HEX.match(self._pattern, position)
        if match is not None:
            code = int(match[1] or match[2] or match[3], 16)
            if code > sys.maxunicode:
                raise RegexSyntaxError(f"{match[0]} at {position} is not a character")
            return _literal(chr(code)), match.end()
        match = _OCTAL.match(self._pattern, position)
        if match is not None:
            return _literal(chr(int(match[1], 8))), match.end()
        if following == "c" and len(self._pattern) > position + 2:
            return _literal(chr(ord(self._pattern[position + 2]) ^ 64)), position + 3
        if not following:
            raise RegexSyntaxError("the pattern ends with a single backslash")
        if following.isascii() and following.isalnum():
            raise RegexSyntaxError(f"'\\{following}' at {position} is not supported")
        return _literal(following), position + 2

    def _read_property(self, position: int) -> tuple[str, int]:
        match = _PROPERTY.match(self._pattern, position)
        if match is None:
            raise RegexSyntaxError(f"'\\p' at {position} names no property: expected '\\p{{Name}}'")
        name = match[3] or match[4] or ""
        if name in _POSIX:
            members = _POSIX[name]
        elif (category := _CATEGORY.fullmatch(name)) is not None:
            members = _category_members(category[1])
        else:
            raise RegexSyntaxError(f"the property '{name}' in {match[0]} is not supported")
        negated = (match[1] == "P") != bool(match[2])
        return ("^" + members if negated else members), match.end()


def _literal(character: str) -> str:
    return "\\" + character if character in "\\[]^-&~|" else character


def _characters(member: str) -> str:
    """The inverse of _literal; a shorthand or property returns more than one character."""
    return member.removeprefix("\\") if len(member) == 2 else member


def _union(members: str, nested: list[str]) -> str:
    fragments = ([f"[{members}]"] if members else []) + nested
    if len(fragments) < 2:
        return "".join(fragments)
    return f"(?:{'|'.join(fragments)})"


def _combine(operands: list[str], *, negated: bool) -> str:
    if not operands:
        raise RegexSyntaxError("an empty character class")
    single = operands[0]
    if len(operands) == 1 and not negated:
        return single
    if len(operands) == 1 and single.startswith("[") and not single.startswith("[^"):
        return "[^" + single[1:]
    intersection = "".join(f"(?={operand})" for operand in operands[:-1]) + operands[-1]
    return f"(?:(?!{intersection}){_ANY})" if negated else f"(?:{intersection})"


@lru_cache(maxsize=64)
def _category_members(category: str) -> str:
    """All characters of a Unicode general category (`L`, `Lu`) as ranges of a class."""
    runs: list[tuple[int, int]] = []
    for first, after, found in _category_runs():
        if found.startswith(category):
            # The ranges of `Lu` and `Ll` may be adjacent; for `L` they become one.
            begin = runs.pop()[0] if runs and runs[-1][1] == first else first
            runs.append((begin, after))
    if not runs:
        raise RegexSyntaxError(f"there is no category '{category}'")
    return "".join(f"{_literal(chr(first))}-{_literal(chr(after - 1))}" for first, after in runs)


@cache
def _category_runs() -> tuple[tuple[int, int, str], ...]:
    """All characters in order, as runs of the same category: each from its first character to the next
    run's."""
    runs = []
    first = 0
    for category, members in groupby(map(unicodedata.category, map(chr, range(sys.maxunicode + 1)))):
        after = first + sum(1 for _ in members)
        runs.append((first, after, category))
        first = after
    return tuple(runs)
