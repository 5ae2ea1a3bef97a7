"""A translated pattern as a tree: what it can match, and how many steps a backtracking engine may take.

Parses the output of `java_regex.translate`, which is a part of Python's syntax: no comments, no conditionals,
and inline flags only in groups.
"""

import re
from dataclasses import dataclass

MOST_STEPS = 1 << 62
"""Means "too many to count"."""

_COUNTED_REPEATS = 64
_GROUP = re.compile(r"\(\?(?:P<\w+>|P=\w+\)|([a-z]*)(?:-([a-z]*))?:|[=!>]|<[=!])")
_REPEAT = re.compile(r"(?:([*+?])|\{(\d+)(,(\d*))?\})([?+]?)")
_CLASS = re.compile(r"\[\^?\]?(?:[^\\\]]|\\.)*\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Char:
    """One character of a set."""

    fragment: str
    flags: str


@dataclass(frozen=True, slots=True)
class Anchor:
    """`A` or `Z` (begin and end of the name), or another position that takes no character."""

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    branches: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    body: "Node"
    least: int
    most: int | None
    possessive: bool


@dataclass(frozen=True, slots=True)
class Special:
    """What a finite automaton cannot express: a look-around, an atomic group, a back-reference (without
    body)."""

    body: "Node | None"


Node = Char | Anchor | Sequence | Choice | Repeat | Special


def parse(pattern: str) -> tuple[Node, list[str], bool]:
    """The tree of a pattern that Python compiles, the texts of its branches (`a|b` has two), and whether it
    has back-references."""
    reader = _Reader(pattern)
    tree = reader.choice("")
    return tree, reader.branches, reader.refers_back


def effort(node: Node, length: int) -> int:
    """How many steps at most a backtracking engine may take with a name of this length, MOST_STEPS at most.

    >>> [effort(parse(pattern)[0], 100) for pattern in ("ab", "a|b", "a*", "a*b", "a*b*c", "(?!a*b)a*c")]
    [2, 2, 100, 201, 20401, 402]
    >>> effort(parse("(?:a|a)*b")[0], 100) == MOST_STEPS
    True
    """
    return _ways(node, length)[1]


def _ways(node: Node, length: int) -> tuple[int, int]:
    """In how many ways a node may match at one position, and the steps to try all of them."""
    match node:
        case Char() | Anchor() | Special(body=None):
            return 1, 1
        case Special(body=body):
            # Only the first way counts.
            return 1, 1 if body is None else _ways(body, length)[1]
        case Sequence(parts=parts):
            ways, steps = 1, 0
            for part in parts:
                ways_of_part, steps_of_part = _ways(part, length)
                steps = min(steps + ways * steps_of_part, MOST_STEPS)
                ways = min(ways * ways_of_part, MOST_STEPS)
            return ways, steps
        case Choice(branches=branches):
            of_branches = [_ways(branch, length) for branch in branches]
            ways, steps = sum(each[0] for each in of_branches), sum(each[1] for each in of_branches)
            return min(ways, MOST_STEPS), min(steps, MOST_STEPS)
        case Repeat():
            return _ways_of_repeat(node, length)


def _ways_of_repeat(node: Repeat, length: int) -> tuple[int, int]:
    ways, steps = _ways(node.body, length)
    most = length if node.most is None else node.most
    if ways == 1 and _takes_something(node.body):
        times = max(min(most, length), 1)
        return (1 if node.possessive else max(times - node.least, 0) + 1), min(times * steps, MOST_STEPS)
    if node.most is None or most > _COUNTED_REPEATS:
        return MOST_STEPS, MOST_STEPS
    all_ways = min(sum(min(ways**count, MOST_STEPS) for count in range(node.least, most + 1)), MOST_STEPS)
    return all_ways, min(max(all_ways, most) * steps, MOST_STEPS)


def _takes_something(node: Node) -> bool:
    match node:
        case Char():
            return True
        case Sequence(parts=parts):
            return any(map(_takes_something, parts))
        case Choice(branches=branches):
            return all(map(_takes_something, branches))
        case Repeat(body=body, least=least):
            return least > 0 and _takes_something(body)
        case _:
            return False


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self.branches: list[str] = []
        self.refers_back = False

    def choice(self, flags: str) -> Node:
        """To the end of the group, or of the pattern."""
        branches = []
        while True:
            begin = self._at
            branches.append(self._sequence(flags))
            if self._depth == 0:
                self.branches.append(self._pattern[begin : self._at])
            if not self._pattern.startswith("|", self._at):
                break
            self._at += 1
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self, flags: str) -> Node:
        parts: list[Node] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            parts.append(self._repeated(self._atom(flags)))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        while (match := _REPEAT.match(self._pattern, self._at)) is not None:
            sign, low, ranged, high, suffix = match.groups()
            least = {"*": 0, "+": 1, "?": 0}[sign] if sign else int(low)
            if sign:
                most = 1 if sign == "?" else None
            else:
                most = least if not ranged else int(high) if high else None
            node = Repeat(node, least, most, suffix == "+")
            self._at = match.end()
        return node

    def _atom(self, flags: str) -> Node:
        character = self._pattern[self._at]
        if character == "(":
            return self._group(flags)
        if character == "[":
            return self._char(_CLASS.match(self._pattern, self._at), flags)
        if character in "^$":
            self._at += 1
            multiline = "m" in flags
            return Anchor("m" if multiline else "A" if character == "^" else "Z")
        if character == "\\":
            following = self._pattern[self._at + 1 : self._at + 2]
            self._at += 2
            if following in "AZbB":
                return Anchor(following)
            if following.isdigit():
                self.refers_back = True
                return Special(None)
            return Char("\\" + following, flags)
        self._at += 1
        return Char(character, flags)

    def _char(self, match: re.Match[str] | None, flags: str) -> Node:
        assert match is not None, "Python has compiled it"
        self._at = match.end()
        return Char(match[0], flags)

    def _group(self, flags: str) -> Node:
        opening = _GROUP.match(self._pattern, self._at)
        if opening is None:
            self._at += 1
        elif opening[0].startswith("(?P="):
            self._at = opening.end()
            self.refers_back = True
            return Special(None)
        else:
            self._at = opening.end()
            on, off = opening[1] or "", opening[2] or ""
            flags = "".join(sorted({*flags, *on} - {*off}))
        self._depth += 1
        body = self.choice(flags)
        self._depth -= 1
        self._at += 1  # The closing parenthesis.
        special = opening is not None and opening[0] in ("(?=", "(?!", "(?>", "(?<=", "(?<!")
        return Special(body) if special else body
