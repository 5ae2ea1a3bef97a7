"""Matches names in time proportional to their length.

Patterns come from users, also over RPC, and names from everybody who may create a topic or a group: `(a|a)*b`
would occupy a backtracking engine for hours with a name of forty characters. Python's engine is used if an
upper bound of its steps (`pattern_tree.effort`) is small for the length of the name, as for nearly all
patterns and names. The other branches of a pattern become one automaton, which reads the name once. Patterns
that fit neither are refused: look-arounds, atomic groups or back-references together with repetitions that
multiply, and lists of so many costly patterns that all of them together would take long.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.filters.automaton import Automaton, NoAutomatonError
from twinlog.filters.java_classes import RegexSyntaxError
from twinlog.filters.pattern_tree import Choice, Node, effort, parse

LONGEST_PATTERN = 1 << 18
"""The limit in characters for a whole list of patterns."""
LONGEST_TOPIC_NAME = 249
_LONGEST_NAME = 1 << 16
MOST_STEPS = 20_000_000
"""For all branches together: some tenths of a second in the worst case."""


@dataclass(frozen=True, slots=True)
class _Branch:
    text: str
    tree: Node
    steps: int
    """At most, with a topic's name."""


class LinearPattern:
    """A compiled pattern; `matches` checks the whole name.

    A name that is longer than a topic's name can be, and too long for a pattern without automaton, does not
    match.
    """

    __slots__ = ("_costly", "_for_long", "_quick", "_quick_up_to", "_tried")

    def __init__(self, translated: str) -> None:
        """`translated`: a pattern for `re.compile`. Raises RegexSyntaxError for one that is refused."""
        if len(translated) > LONGEST_PATTERN:
            raise RegexSyntaxError(f"it has more than {LONGEST_PATTERN} characters")
        tree, texts, counted = parse(translated)
        # Groups are numbered across all branches, so with back-references the branches stay together.
        whole = [(translated, tree)] if counted else [(text, parse(text)[0]) for text in texts]
        branches = [_Branch(text, each, effort(each, LONGEST_TOPIC_NAME)) for text, each in whole]
        branches.sort(key=lambda each: each.steps)
        self._tried: list[_Branch] = []
        left = MOST_STEPS
        for branch in branches:
            left -= branch.steps
            if left < 0:
                break
            self._tried.append(branch)
        costly = branches[len(self._tried) :]
        self._costly = _automaton(costly) if costly else None
        self._quick = (
            re.compile("|".join(each.text for each in self._tried), re.ASCII) if self._tried else None
        )
        self._quick_up_to = _longest([each.tree for each in self._tried])
        self._for_long: tuple[re.Pattern[str], Automaton] | None = None

    def matches(self, name: str) -> bool:
        if self._quick is not None and (
            self._quick.fullmatch(name) is not None if len(name) <= self._quick_up_to else self._slowly(name)
        ):
            return True
        return self._costly is not None and self._costly.matches(name)

    def _slowly(self, name: str) -> bool:
        """Python's engine still tries the branches that stay cheap, however long the name is."""
        if self._for_long is None:
            self._for_long = _divided(self._tried)
        cheap, automaton = self._for_long
        return (len(name) <= _LONGEST_NAME and cheap.fullmatch(name) is not None) or automaton.matches(name)


def _divided(branches: Sequence[_Branch]) -> tuple[re.Pattern[str], Automaton]:
    """Those that Python's engine tries within MOST_STEPS, and an automaton of the others."""
    left, cheap, others = MOST_STEPS, ["(?!)"], []
    for branch in branches:
        steps = effort(branch.tree, _LONGEST_NAME)
        if steps <= left:
            left -= steps
            cheap.append(branch.text)
        else:
            others.append(branch)
    try:
        automaton = Automaton(_choice(others))
    except NoAutomatonError:
        automaton = Automaton(Choice(()))
    return re.compile("|".join(cheap), re.ASCII), automaton


def _choice(branches: Sequence[_Branch]) -> Node:
    return Choice(tuple(branch.tree for branch in branches))


def _automaton(branches: Sequence[_Branch]) -> Automaton:
    try:
        return Automaton(_choice(branches))
    except NoAutomatonError as error:
        several = f" and {len(branches) - 1} others" if len(branches) > 1 else ""
        raise RegexSyntaxError(
            f"matching {branches[-1].text[:100]!r}{several} could take very long: {error}, together with"
            " repetitions that multiply; write fewer, or without"
        ) from error


def _longest(trees: list[Node]) -> int:
    """The longest name that Python's engine matches against all of them within MOST_STEPS."""
    low, high = 0, _LONGEST_NAME
    if sum(effort(tree, high) for tree in trees) <= MOST_STEPS:
        return high  # Most lists only contain names.
    while low < high:
        middle = (low + high + 1) // 2
        if sum(effort(tree, middle) for tree in trees) <= MOST_STEPS:
            low = middle
        else:
            high = middle - 1
    return low
