"""Matches names in time proportional to their length.

Patterns come from users, also over RPC, and names from everybody who may create a topic or a group: `(a|a)*b`
would occupy a backtracking engine for hours with a name of forty characters. Python's engine is used if an
upper bound of its steps (`pattern_tree.effort`) is small for the length of the name, as for nearly all
patterns and names. Otherwise the pattern becomes an automaton, which reads the name once. Patterns that fit
neither are refused: look-arounds, atomic groups or back-references together with repetitions that multiply.
"""

import re
from dataclasses import dataclass

from twinlog.filters.automaton import Automaton, NoAutomatonError
from twinlog.filters.java_classes import RegexSyntaxError
from twinlog.filters.pattern_tree import Node, effort, parse

LONGEST_PATTERN = 1 << 18
"""The limit in characters for a whole list of patterns."""
LONGEST_TOPIC_NAME = 249
MOST_STEPS = 2_000_000
"""Some hundredths of a second in the worst case."""


@dataclass(slots=True)
class _Branch:
    text: str
    tree: Node
    automaton: Automaton | None = None


class LinearPattern:
    """A compiled pattern; `matches` checks the whole name.

    A name that is longer than a topic's name can be, and too long for a pattern without automaton, does not
    match.
    """

    __slots__ = ("_costly", "_quick", "_quick_up_to", "_tried")

    def __init__(self, translated: str) -> None:
        """`translated`: a pattern for `re.compile`. Raises RegexSyntaxError for one that is refused."""
        if len(translated) > LONGEST_PATTERN:
            raise RegexSyntaxError(f"it has more than {LONGEST_PATTERN} characters")
        tree, texts, counted = parse(translated)
        # Groups are numbered across all branches, so with back-references the branches stay together.
        branches = (
            [_Branch(translated, tree)] if counted else [_Branch(text, parse(text)[0]) for text in texts]
        )
        self._tried: list[_Branch] = []
        self._costly: list[Automaton] = []
        for each in branches:
            if effort(each.tree, LONGEST_TOPIC_NAME) <= MOST_STEPS:
                self._tried.append(each)
            else:
                self._costly.append(_automaton(each))
        self._quick = (
            re.compile("|".join(each.text for each in self._tried), re.ASCII) if self._tried else None
        )
        self._quick_up_to = _longest([each.tree for each in self._tried])

    def matches(self, name: str) -> bool:
        if self._quick is not None and (
            self._quick.fullmatch(name) is not None if len(name) <= self._quick_up_to else self._slowly(name)
        ):
            return True
        return any(automaton.matches(name) for automaton in self._costly)

    def _slowly(self, name: str) -> bool:
        for branch in self._tried:
            try:
                if branch.automaton is None:
                    branch.automaton = Automaton(branch.tree)
            except NoAutomatonError:
                if len(name) <= LONGEST_TOPIC_NAME and re.compile(branch.text, re.ASCII).fullmatch(name):
                    return True
                continue
            if branch.automaton.matches(name):
                return True
        return False


def _automaton(branch: _Branch) -> Automaton:
    try:
        return Automaton(branch.tree)
    except NoAutomatonError as error:
        raise RegexSyntaxError(
            f"matching {branch.text[:100]!r} could take very long: {error}, together with repetitions that"
            " multiply; write it without"
        ) from error


def _longest(trees: list[Node]) -> int:
    """The longest name that Python's engine matches against all of them within MOST_STEPS."""
    low, high = 0, 1 << 16
    if sum(effort(tree, high) for tree in trees) <= MOST_STEPS:
        return high  # Most lists only contain names.
    while low < high:
        middle = (low + high + 1) // 2
        if sum(effort(tree, middle) for tree in trees) <= MOST_STEPS:
            low = middle
        else:
            high = middle - 1
    return low
