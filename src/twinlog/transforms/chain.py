"""The transforms of a flow, in the order in which its file names them.

Invariant: a chain that is bound to a topic gives each record the same outcome as its steps one after the
other; binding only decides early what depends on the topic alone. So a chain that merely renames a topic
costs nothing per record, and the records of a topic that no step concerns are not looked at.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from twinlog.batches.bodies import (
    OpenRecord,
    encode_field,
    has_header,
    is_tombstone,
    with_header,
    without_headers,
)
from twinlog.errors import ConfigError
from twinlog.transforms.java_dates import JavaDateFormat

# Connect's transforms: `org.apache.kafka.connect.transforms`.
#
# A transform of records takes the body of a record and returns the changed one; None drops the record.

# The right side of Java's `Matcher.replaceFirst`: `$1`, `${name}`, and `\` before a character that stands
# for itself.

_NAME = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}")


@dataclass(frozen=True, slots=True)
class Replacement:
    """Text and groups, from left to right; a group is its number or its name."""

    parts: tuple[tuple[str, int | str | None], ...]
    """(text, the group after it; None = no group)."""

    def of(self, found: re.Match[str]) -> str:
        """A group that took no part is empty, as in Java."""
        return "".join(text + ("" if group is None else found[group] or "") for text, group in self.parts)


def parse_replacement(text: str, pattern: re.Pattern[str]) -> Replacement:
    """Raises ConfigError where Java would fail at the first record: an unknown group, a `$` or a backslash
    with nothing behind it."""
    parts: list[tuple[str, int | str | None]] = []
    literal = ""
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\":
            if position == len(text):
                raise ConfigError("ends with a backslash")
            literal += text[position]
            position += 1
        elif character == "$":
            group, position = _group(text, position, pattern)
            parts.append((literal, group))
            literal = ""
        else:
            literal += character
    return Replacement((*parts, (literal, None)))


def _group(text: str, position: int, pattern: re.Pattern[str]) -> tuple[int | str, int]:
    """The group that a `$` before `position` names, and the position behind it."""
    named = _NAME.match(text, position)
    if named:
        if named[1] not in pattern.groupindex:
            raise ConfigError(f"names a group {named[1]!r}, which the pattern lacks")
        return named[1], named.end()
    if position == len(text) or text[position] not in "0123456789":
        raise ConfigError("has a $ without the number or {name} of a group; write \\$ for a dollar sign")
    number = int(text[position])
    position += 1
    if number > pattern.groups:
        raise ConfigError(f"names the group ${number}, and the pattern has {pattern.groups}")
    # Java takes one more digit as long as the pattern has a group of that number.
    while position < len(text) and text[position] in "0123456789":
        longer = number * 10 + int(text[position])
        if longer > pattern.groups:
            break
        number = longer
        position += 1
    return number, position


@dataclass(frozen=True, slots=True)
class Filter:
    """Drops every record that it sees."""

    def change(self, body: bytes) -> bytes | None:
        del body
        return None


@dataclass(frozen=True, slots=True)
class DropHeaders:
    """Removes all headers with one of these keys."""

    keys: frozenset[bytes]
    _written: tuple[bytes, ...] = field(init=False)
    """The keys with their lengths, as a body has them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_written", tuple(map(encode_field, sorted(self.keys))))

    def change(self, body: bytes) -> bytes | None:
        return without_headers(body, self._written)


@dataclass(frozen=True, slots=True)
class InsertHeader:
    """Adds a header behind those that are there, also where one has the same key.

    MirrorMaker 2 fails here with its default converter, which takes nothing but bytes; the value is written
    as `SimpleHeaderConverter` writes text: UTF-8, and other headers stay as they are.
    """

    key: bytes
    value: bytes
    _written: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_written", encode_field(self.key) + encode_field(self.value))

    def change(self, body: bytes) -> bytes | None:
        return with_header(body, self._written)


@dataclass(frozen=True, slots=True)
class RegexRouter:
    """Renames topics that match the whole pattern; partitions stay."""

    pattern: re.Pattern[str]
    replacement: Replacement
    regex_written: str
    replacement_written: str

    def routed(self, topic: str) -> str:
        """The name after the router. As in Java, the pattern must match the whole name, and then its first
        match inside the name is replaced: with `.*?`, that is nothing, before the name."""
        if self.pattern.fullmatch(topic) is None:
            return topic
        found = self.pattern.search(topic)
        if found is None:
            return topic
        return topic[: found.start()] + self.replacement.of(found) + topic[found.end() :]


@dataclass(frozen=True, slots=True)
class TimestampRouter:
    """Gives each record a topic by its timestamp; partitions stay."""

    topic_format: str
    timestamps: JavaDateFormat

    def routed_at(self, topic: str, timestamp_ms: int) -> str:
        written = self.timestamps.of(timestamp_ms)
        return self.topic_format.replace("${topic}", topic).replace("${timestamp}", written)


Transform = Filter | DropHeaders | InsertHeader | RegexRouter | TimestampRouter


# Connect's predicates: `org.apache.kafka.connect.transforms.predicates`.


@dataclass(frozen=True, slots=True)
class HasHeaderKey:
    """True for a record with at least one header of this key."""

    key: bytes
    _written: bytes = field(init=False)
    """The key with its length, as a body has it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_written", encode_field(self.key))

    def holds(self, body: bytes) -> bool:
        return has_header(body, self._written)


@dataclass(frozen=True, slots=True)
class RecordIsTombstone:
    """True for a record whose value is null."""

    def holds(self, body: bytes) -> bool:
        return is_tombstone(body)


@dataclass(frozen=True, slots=True)
class TopicNameMatches:
    """True for the records of a topic whose whole name matches: the name of the copy, or the one that an
    earlier router gave it."""

    pattern: re.Pattern[str]

    def holds_for(self, topic: str) -> bool:
        return self.pattern.fullmatch(topic) is not None


Predicate = HasHeaderKey | RecordIsTombstone | TopicNameMatches


_Change = Callable[[bytes], bytes | None]
MOST_ROUTES = 1_000
"""To so many topics the records of one topic may go: a wrong expression must not create a million."""


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A transform, and for which records it is applied."""

    name: str
    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False

    def concerns(self, topic: str) -> bool:
        """Whether it may be applied to a record of this topic."""
        predicate = self.predicate
        return not isinstance(predicate, TopicNameMatches) or predicate.holds_for(topic) is not self.negate

    @property
    def is_router(self) -> bool:
        return isinstance(self.transform, RegexRouter | TimestampRouter)

    @property
    def routes_records(self) -> bool:
        """Whether it is a router that may send the records of one topic to several."""
        if isinstance(self.transform, RegexRouter):
            return not isinstance(self.predicate, TopicNameMatches | None)
        return isinstance(self.transform, TimestampRouter)

    def routed(self, topic: str) -> str:
        """The name of the topic after this step, where that is one."""
        router = self.transform
        is_one = isinstance(router, RegexRouter) and not self.routes_records and self.concerns(topic)
        return router.routed(topic) if is_one and isinstance(router, RegexRouter) else topic

    def route_of(self, topic: str, timestamp_ms: int, body: bytes) -> str:
        """The name of the topic of one record after this step. Raises WireFormatError."""
        router, predicate = self.transform, self.predicate
        if isinstance(predicate, HasHeaderKey | RecordIsTombstone):
            applies = predicate.holds(body) is not self.negate
        else:
            applies = self.concerns(topic)
        if not applies:
            return topic
        if isinstance(router, TimestampRouter):
            return router.routed_at(topic, timestamp_ms)
        return router.routed(topic) if isinstance(router, RegexRouter) else topic


@dataclass(frozen=True, slots=True)
class Chain:
    steps: tuple[ChainStep, ...] = ()

    def bind(self, topic: str) -> "BoundChain":
        """The chain for records whose copy is called `topic` as long as no router says otherwise."""
        changes: list[_Change] = []
        drops_records = False
        for place, step in enumerate(self.steps):
            transform, predicate = step.transform, step.predicate
            if step.routes_records and step.concerns(topic):
                fork = Fork(step, topic, Chain(self.steps[place + 1 :]))
                return BoundChain(fork.of(topic).topic, tuple(changes), drops_records=True, fork=fork)
            if isinstance(transform, RegexRouter):
                topic = step.routed(topic)
            elif step.concerns(topic) and not isinstance(transform, TimestampRouter):
                drops_records = drops_records or isinstance(transform, Filter)
                if predicate is None or isinstance(predicate, TopicNameMatches):
                    changes.append(transform.change)
                elif isinstance(transform, Filter):
                    changes.append(_unless(predicate.holds, negate=step.negate))
                else:
                    changes.append(_where(predicate.holds, transform.change, negate=step.negate))
        return BoundChain(topic, tuple(changes), drops_records)


@dataclass(frozen=True, slots=True)
class Fork:
    """A router of single records, and what follows it."""

    step: ChainStep
    topic: str
    """Under which name the records come to it."""
    rest: Chain
    _bound: dict[str, "BoundChain"] = field(default_factory=dict, compare=False)

    def of(self, topic: str) -> "BoundChain":
        """The rest for records that it sends to a topic."""
        found = self._bound.get(topic)
        if found is None:
            if len(self._bound) >= MOST_ROUTES:
                self._bound.clear()
            found = self._bound[topic] = self.rest.bind(topic)
        return found


@dataclass(frozen=True, slots=True)
class BoundChain:
    """A chain for the records of one topic."""

    topic: str
    """Where the records go, or those that no router of single records sends elsewhere."""
    changes: tuple[_Change, ...] = ()
    """What is done to the body of each record; None drops it. Before the fork, if there is one."""
    drops_records: bool = False
    """True if a record may be dropped, or sent to another topic."""
    fork: Fork | None = None

    def apply(self, records: Sequence[OpenRecord]) -> list[OpenRecord]:
        """The records that pass and go to `topic`, in order and with their offsets. Raises WireFormatError
        (CORRUPT_BATCH) for one that cannot be read."""
        if self.fork is None:
            return self.changed(records)
        return [record for topic, record in self.route(records) if topic == self.topic]

    def route(self, records: Sequence[OpenRecord]) -> Iterator[tuple[str, OpenRecord]]:
        """The records that pass, each with the topic to which it goes. Raises as `apply`."""
        for record in records:
            chain: BoundChain = self
            passed = chain.changed((record,))
            while passed and (fork := chain.fork) is not None:
                chain = fork.of(fork.step.route_of(fork.topic, *passed[0][1:]))
                passed = chain.changed(passed)
            for each in passed:
                yield chain.topic, each

    def changed(self, records: Sequence[OpenRecord]) -> list[OpenRecord]:
        """Those that pass what comes before the fork."""
        for change in self.changes:
            passed: list[OpenRecord] = []
            for record in records:
                body = change(record[2])
                if body is record[2]:
                    passed.append(record)
                elif body is not None:
                    passed.append((record[0], record[1], body))
            records = passed
        return list(records)


def _unless(holds: Callable[[bytes], bool], *, negate: bool) -> _Change:
    if negate:
        return lambda body: body if holds(body) else None
    return lambda body: None if holds(body) else body


def _where(holds: Callable[[bytes], bool], change: _Change, *, negate: bool) -> _Change:
    if negate:
        return lambda body: body if holds(body) else change(body)
    return lambda body: change(body) if holds(body) else body
