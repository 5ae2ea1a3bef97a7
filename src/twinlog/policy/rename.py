"""`twinlog.topic.rename`: copies whose names differ from their topics. Pure.

    team-(.*) -> eu-team-$1; legacy_orders -> orders

A semicolon ends a rule; the first rule whose left side matches the whole name applies. Outside parentheses a
rule is literal text; parentheses hold a regular expression, and its match is `$1`, `$2`, … on the right. The
right side uses every pair of parentheses exactly once, so that a name can be reversed.

Invariant: `undo(apply(topic)) == topic` for every topic with `in_the_way` None. Two of those never have one
name on the target; all others are not copied.

Renames copies on top of any replication policy: by `twinlog.topic.rename`, and by Connect's RegexRouter.
Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Final

from twinlog.errors import ConfigError
from twinlog.filters.java_classes import RegexSyntaxError
from twinlog.filters.java_regex import compile_linear
from twinlog.filters.linear import LinearPattern
from twinlog.filters.samples import samples
from twinlog.model import ClusterAlias
from twinlog.policy.replication import ReplicationPolicy, names_back
from twinlog.transforms import ChainStep, RegexRouter

RENAME_KEY: Final = "twinlog.topic.rename"
_MOST_GROUPS: Final = 9
_REFERENCE: Final = re.compile(r"\$([1-9])")
_TEXT: Final = re.compile(r"[a-zA-Z0-9._-]*")
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_MOST_EXAMPLES: Final = 200
_MOST_FITS: Final = 1_000
"""So many ways to read a name by one rule are tried: the first ones are enough for nearly all names."""
_TRIED: Final = ("a", "a-b", "a.b", "a_b", "a-a", "a.a", "1")
"""Each group is tested with these when rules are read, beside samples of its pattern."""
_ARROW: Final = "->"
_GROUPS: Final = re.compile(r"(\([^()]*\))")
_ESCAPED: Final = re.compile(r"\\([._-])")
_NOT_BACK: Final = "which cannot be read back"


@dataclass(frozen=True, slots=True)
class Group:
    """One pair of parentheses: its number, from 1, and its pattern."""

    number: int
    pattern: LinearPattern = field(compare=False)
    written: str


Part = str | Group
Shape = tuple[Part, ...]
"""A name as text and groups, from left to right."""
_TAIL: Final = Group(0, compile_linear(".*"), ".*")
"""What a router leaves: it replaces its first match, which may end before the name does."""


@dataclass(frozen=True, slots=True)
class RenameRule:
    written: str
    before: Shape
    after: Shape


@dataclass(frozen=True, slots=True)
class RenameMap:
    rules: tuple[RenameRule, ...]
    router: ChainStep | None = None
    """Names the copies, as Java does, in place of the rules, which read its names back."""

    @property
    def key(self) -> str:
        return RENAME_KEY if self.router is None else f"transforms.{self.router.name}"

    def apply(self, topic: str) -> str:
        """The name of a topic's copy, without a prefix of the policy."""
        if self.router is not None:
            return self.router.routed(topic)
        for rule in self.rules:
            for taken in _fits(rule.before, topic):
                return _filled(rule.after, taken)
        return topic

    def undo(self, name: str) -> str:
        """The topic of the copy with this name; the name itself if no rule made it."""
        tails: tuple[Shape, ...] = ((),) if self.router is None else ((), (_TAIL,))
        for rule, tail in product(self.rules, tails):
            for taken in islice(_fits((*rule.after, *tail), name), _MOST_FITS):
                topic = _filled((*rule.before, *tail), taken)
                if self.apply(topic) == name:
                    return topic
        return name

    def in_the_way(self, topic: str) -> str | None:
        """The topic to which the name of the copy leads back, where that is another one: its copy mostly has
        the same name. None without one."""
        other = self.undo(self.apply(topic))
        return None if other == topic else other


NO_RENAMES: Final = RenameMap(())


def parse_renames(text: str) -> RenameMap:
    """Raises ConfigError for a rule that cannot be read or reversed, and for two rules that overlap."""
    rules = [_rule(part, *_sides(part)) for each in text.split(";") if (part := each.strip())]
    return _checked(RenameMap(tuple(rules)))


def reversible(step: ChainStep, router: RegexRouter) -> RenameMap:
    """The map of a router, as far as its expression is text and groups. Raises ConfigError if names cannot be
    mapped back."""
    regex, replacement = router.regex_written, router.replacement_written
    pieces = _GROUPS.split(regex.removeprefix("^").removesuffix("$"))
    left = "".join(piece if index % 2 else _ESCAPED.sub(r"\1", piece) for index, piece in enumerate(pieces))
    rules = (_rule(f"{regex} -> {replacement}", left, replacement),)
    _checked(RenameMap(rules, ChainStep(step.name, router)))
    return RenameMap(rules, step)


def _checked(renames: RenameMap) -> RenameMap:
    for rule in renames.rules:
        for topic in _examples(rule.before):
            name = renames.apply(topic)
            other = renames.in_the_way(topic)
            if other is not None:
                why = f"and so would {other!r}" if renames.apply(other) == name else _NOT_BACK
                raise _wrong(rule.written, f"{topic!r} would be called {name!r}, {why}")
            if not _TOPIC.fullmatch(name):
                raise _wrong(
                    rule.written, f"{topic!r} would be called {name!r}, which is not a valid topic name"
                )
    return renames


def _sides(written: str) -> tuple[str, str]:
    left, arrow, right = (part.strip() for part in written.partition(_ARROW))
    if not arrow or not left or not right:
        raise _wrong(written, "it must have the form 'TOPIC -> NEW NAME'")
    return left, right


def _rule(written: str, left: str, right: str) -> RenameRule:
    before = _shape(written, left)
    groups = {part.number: part for part in before if isinstance(part, Group)}
    after: list[Part] = []
    for index, part in enumerate(_REFERENCE.split(right)):
        if index % 2:
            if int(part) not in groups:
                raise _wrong(written, f"${part} names no parentheses of the left side")
            after.append(groups[int(part)])
        elif part:
            after.append(_text(written, part))
    used = [part.number for part in after if isinstance(part, Group)]
    if sorted(used) != sorted(groups):
        raise _wrong(
            written, "each pair of parentheses must be used exactly once, so that names can be mapped back"
        )
    return RenameRule(written=written, before=before, after=tuple(after))


def _shape(written: str, text: str) -> Shape:
    parts: list[Part] = []
    rest, number = text, 0
    while rest:
        opening = rest.find("(")
        if opening < 0:
            parts.append(_text(written, rest))
            break
        if opening:
            parts.append(_text(written, rest[:opening]))
        closing = rest.find(")", opening)
        inside = rest[opening + 1 : closing]
        if closing < 0 or "(" in inside or number == _MOST_GROUPS:
            raise _wrong(written, f"parentheses come in at most {_MOST_GROUPS} pairs, none inside another")
        number += 1
        try:
            parts.append(Group(number, compile_linear(inside), inside))
        except RegexSyntaxError as error:
            raise _wrong(written, f"({inside}) is not a valid regular expression: {error}") from error
        rest = rest[closing + 1 :]
    return tuple(parts)


def _text(written: str, text: str) -> str:
    if not _TEXT.fullmatch(text):
        raise _wrong(written, f"{text!r} is not part of a topic name: put regular expressions in parentheses")
    return text


def _fits(shape: Shape, name: str) -> Iterator[dict[int, str]]:
    """The match of each group in all ways in which the shape matches, the greedy one from left to right
    first. Tries no place in vain twice."""
    hopeless: set[tuple[int, int]] = set()

    def fit(index: int, start: int) -> Iterator[dict[int, str]]:
        if index == len(shape):
            if start == len(name):
                yield {}
            return
        if (index, start) in hopeless:
            return
        part, is_hopeless = shape[index], True
        for end in _ends(part, name, start):
            for rest in fit(index + 1, end):
                is_hopeless = False
                yield rest if isinstance(part, str) else {part.number: name[start:end], **rest}
        if is_hopeless:
            hopeless.add((index, start))

    return fit(0, 0)


def _ends(part: Part, name: str, start: int) -> Iterator[int]:
    """Where a part may end that begins here, the last place first."""
    if isinstance(part, str):
        if name.startswith(part, start):
            yield start + len(part)
        return
    for end in range(len(name), start - 1, -1):
        if part.pattern.matches(name[start:end]):
            yield end


def _filled(shape: Shape, taken: dict[int, str]) -> str:
    return "".join(part if isinstance(part, str) else taken[part.number] for part in shape)


def _examples(shape: Shape) -> list[str]:
    """Example names that a rule matches, including names with the usual separators."""
    names = [""]
    for part in shape:
        choices = [part] if isinstance(part, str) else _of_group(part)
        names = [before + after for before in names for after in choices][:_MOST_EXAMPLES]
    return [name for name in names if _TOPIC.fullmatch(name)]


def _of_group(group: Group) -> list[str]:
    return [name for name in (*_TRIED, *samples(group.written)) if group.pattern.matches(name)]


def _wrong(rule: str, why: str) -> ConfigError:
    return ConfigError(
        f"{RENAME_KEY}: rule {rule!r}: {why}",
        reason="RENAME_REFUSED",
        metadata={"key": RENAME_KEY, "rule": rule},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamingPolicy:
    """Names a topic by the map, then as `base` does, then by the routes. Heartbeats and internal topics keep
    their well-known names."""

    base: ReplicationPolicy
    renames: RenameMap = NO_RENAMES
    routes: tuple[RenameMap, ...] = ()

    @property
    def tracks_topic_sources(self) -> bool:
        return self.base.tracks_topic_sources

    def format_remote_topic(self, source: ClusterAlias, topic: str) -> str:
        name = self.unrouted(source, topic)
        if self._is_renamed(topic):
            for route in self.routes:
                name = route.apply(name)
        return name

    def unrouted(self, source: ClusterAlias, topic: str) -> str:
        """The name of the copy before any route, under which transforms see its records."""
        name = self.renames.apply(topic) if self._is_renamed(topic) else topic
        return self.base.format_remote_topic(source, name)

    def topic_source(self, topic: str) -> ClusterAlias | None:
        return self.base.topic_source(self._before_routes(topic))

    def upstream_topic(self, topic: str) -> str | None:
        name = self.base.upstream_topic(self._before_routes(topic))
        return self.renames.undo(name) if name is not None and self._is_renamed(name) else name

    def original_topic(self, topic: str) -> str:
        if not self.tracks_topic_sources:
            return self.upstream_topic(topic) or topic
        return names_back(self, topic)[-1]

    def why_not(self, source: ClusterAlias, topic: str) -> str | None:
        """Why the name of its copy forbids to copy a topic: it would not lead back to it. None if it does."""
        if not self._is_renamed(topic):
            return None
        name, key = self.format_remote_topic(source, topic), RENAME_KEY
        other: str | None = self.renames.undo(self.renames.apply(topic))
        if other == topic and self.routes:
            other, key = self.upstream_topic(name), self._misleading(source, topic)
        if other == topic:
            return None
        if other is None or self.format_remote_topic(source, other) != name:
            return f"{key}: its copy would be called {name}, {_NOT_BACK}: exclude it"
        rule = "a rule of its own, before the others" if key == RENAME_KEY else "another name"
        return f"{key}: its copy would have the name of the copy of {other}: give it {rule}, or exclude it"

    def _misleading(self, source: ClusterAlias, topic: str) -> str:
        """The key of the first router whose name does not lead back, or of the last one."""
        name = self.unrouted(source, topic)
        for route in self.routes:
            if route.in_the_way(name) is not None:
                return route.key
            name = route.apply(name)
        return self.routes[-1].key

    def _before_routes(self, topic: str) -> str:
        if not self._is_renamed(topic):
            return topic
        for route in reversed(self.routes):
            topic = route.undo(topic)
        return topic

    def _is_renamed(self, topic: str) -> bool:
        return bool(topic) and not self.is_heartbeats_topic(topic) and not self.is_internal_topic(topic)

    def heartbeats_topic(self) -> str:
        return self.base.heartbeats_topic()

    def offset_syncs_topic(self, alias: ClusterAlias) -> str:
        return self.base.offset_syncs_topic(alias)

    def checkpoints_topic(self, source: ClusterAlias) -> str:
        return self.base.checkpoints_topic(source)

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.base.is_heartbeats_topic(topic)

    def is_checkpoints_topic(self, topic: str) -> bool:
        return self.base.is_checkpoints_topic(topic)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        return self.base.is_mm2_internal_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        return self.base.is_internal_topic(topic)
