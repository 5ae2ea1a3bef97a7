"""A pattern as a finite automaton: one step for each character of a name, whatever the pattern.

Thompson's construction. Sets of states become one state when they are first reached, and are dropped when
there are too many. It only decides whether the whole name matches, so greedy and reluctant repetitions are
the same.
"""

import re

from twinlog.filters.pattern_tree import Anchor, Char, Choice, Node, Repeat, Sequence, Special

MOST_STATES = 5_000
MOST_STEPS = 1_500_000
"""States times characters, for one name: some tenths of a second."""
_REMEMBERED = 20_000

States = frozenset[int]


class NoAutomatonError(ValueError):
    """The pattern has no automaton, or one that is too large; the text tells why."""


class Automaton:
    """A compiled tree."""

    def __init__(self, tree: Node) -> None:
        """Raises NoAutomatonError."""
        self._edges: list[tuple[int, ...]] = []
        """The transitions of a state: with a class, by one character of it; otherwise without a character."""
        self._classes: list[re.Pattern[str] | None] = []
        self._anchors: list[str] = []
        final = self._state()
        self._final = final
        first = self._build(tree, final)
        self._start = self._closure([first], at_begin=True)
        self._next: dict[tuple[States, str], States] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches. False for one that is too long for the pattern's size."""
        if len(name) * len(self._edges) > MOST_STEPS:
            return False
        states = self._start
        for character in name:
            following = self._next.get((states, character))
            if following is None:
                following = self._step(states, character)
            if not following:
                return False
            states = following
        return self._final in self._closure(states, at_begin=not name, at_end=True)

    def _step(self, states: States, character: str) -> States:
        reached = [
            self._edges[state][0]
            for state in states
            if (members := self._classes[state]) is not None and members.fullmatch(character)
        ]
        if len(self._next) >= _REMEMBERED:
            self._next.clear()
        following = self._next[states, character] = self._closure(reached, at_begin=False)
        return following

    def _closure(self, states: "list[int] | States", *, at_begin: bool, at_end: bool = False) -> States:
        """All states that are reachable without a character; states that wait for the end of the name stay in
        the set."""
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            anchor = self._anchors[state]
            if self._classes[state] is not None:
                continue
            if (anchor == "A" and not at_begin) or (anchor == "Z" and not at_end):
                continue
            waiting.extend(self._edges[state])
        return frozenset(found)

    def _state(self, *edges: int, members: re.Pattern[str] | None = None, anchor: str = "") -> int:
        if len(self._edges) >= MOST_STATES:
            raise NoAutomatonError(f"it has more than {MOST_STATES} parts")
        self._edges.append(edges)
        self._classes.append(members)
        self._anchors.append(anchor)
        return len(self._edges) - 1

    def _build(self, node: Node, following: int) -> int:
        """The first state of an automaton that matches `node` and continues at `following`."""
        match node:
            case Char(fragment, flags):
                members = re.compile(f"(?{flags}:{fragment})", re.ASCII)
                return self._state(following, members=members)
            case Anchor(kind):
                if kind not in ("A", "Z"):
                    raise NoAutomatonError("it has a boundary such as \\b, or looks around")
                return self._state(following, anchor=kind)
            case Sequence(parts):
                for part in reversed(parts):
                    following = self._build(part, following)
                return following
            case Choice(branches):
                return self._state(*(self._build(branch, following) for branch in branches))
            case Repeat():
                return self._repeat(node, following)
            case Special():
                raise NoAutomatonError("it looks around, has an atomic group or refers back")

    def _repeat(self, node: Repeat, following: int) -> int:
        if node.possessive:
            raise NoAutomatonError("a repetition in it is possessive")
        if node.most is None:
            loop = self._state()
            self._edges[loop] = (self._build(node.body, loop), following)
            following = loop
        else:
            end = following
            for _ in range(node.most - node.least):
                following = self._state(self._build(node.body, following), end)
        for _ in range(node.least):
            following = self._build(node.body, following)
        return following
