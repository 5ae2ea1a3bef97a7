"""Reads `transforms` and `predicates` of a connector's configuration, with Connect's rules (KIP-66, KIP-585).

Classes that are not listed here are refused by name: a record is never copied unchanged where the file wants
it changed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from twinlog.errors import ConfigError
from twinlog.filters.java_classes import RegexSyntaxError
from twinlog.filters.java_regex import compile_java
from twinlog.transforms.chain import (
    Chain,
    ChainStep,
    DropHeaders,
    Filter,
    HasHeaderKey,
    InsertHeader,
    Predicate,
    RecordIsTombstone,
    RegexRouter,
    TimestampRouter,
    TopicNameMatches,
    Transform,
    parse_replacement,
)
from twinlog.transforms.expressions import COLUMNS
from twinlog.transforms.java_dates import java_date_format

TRANSFORMS = "transforms"
PREDICATES = "predicates"
T = TypeVar("T")
_PACKAGE = "org.apache.kafka.connect.transforms."
_PREDICATE_PACKAGE = f"{_PACKAGE}predicates."
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))
"""What Java's `trim` takes away."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The keys of one transform or predicate: everything behind `transforms.<name>.`.

    As in Kafka Connect blanks around a value are no part of it, but for `predicate` and `negate`: the same
    file changes the same records.
    """

    prefix: str
    values: Mapping[str, str]

    def text(self, key: str, default: str | None = None) -> str:
        """Raises ConfigError if the key is needed and has no value."""
        value = self.written(key, default)
        if not value:
            raise ConfigError(f"{self.prefix}{key}: must have a value")
        return value

    def written(self, key: str, default: str | None = None) -> str | None:
        """The value, which may be empty; None if there is none."""
        value = self.values.get(key, default)
        return value and value.strip(_BLANKS)

    def parsed(self, key: str, parse: Callable[[str], T], default: str | None = None) -> T:
        try:
            return parse(self.text(key, default))
        except RegexSyntaxError as error:
            raise ConfigError(f"{self.prefix}{key}: is not a valid regular expression: {error}") from error
        except ConfigError as error:
            text = str(error)
            raise (
                error if text.startswith(self.prefix) else ConfigError(f"{self.prefix}{key}: {text}")
            ) from error

    def names(self, key: str) -> tuple[str, ...]:
        """A list with at least one element."""
        return _elements(self.text(key))


def chain_from_config(values: Mapping[str, str]) -> Chain:
    """The chain of a flow; the keys are those of a connector, without the flow (`transforms.mask.type`).

    Raises ConfigError with all problems, one per line, each beginning with its key.
    """
    chain, problems = _read(values)
    if problems:
        raise ConfigError("\n".join(problems))
    return chain


def problems_of_config(values: Mapping[str, str]) -> list[str]:
    """The problems for which `chain_from_config` raises."""
    return _read(values)[1]


def _read(values: Mapping[str, str]) -> tuple[Chain, list[str]]:
    problems: list[str] = []
    predicates: dict[str, Predicate] = {}
    for name, part in _parts(values, PREDICATES, problems):
        _collect(problems, predicates, name, part, _predicate)
    steps: dict[str, ChainStep] = {}
    for name, part in _parts(values, TRANSFORMS, problems):
        _collect(problems, steps, name, part, partial(_step, name, values, predicates))
    return Chain(tuple(steps.values())), problems


def _collect(
    problems: list[str], into: dict[str, T], name: str, part: _Part, read: Callable[[_Part], T]
) -> None:
    try:
        into[name] = read(part)
    except ConfigError as error:
        problems.append(str(error))


def _parts(values: Mapping[str, str], key: str, problems: list[str]) -> Iterable[tuple[str, _Part]]:
    names = _elements(values.get(key, ""))
    problems.extend(f"{key}: names {name!r} twice" for name in sorted(set(names)) if names.count(name) > 1)
    for name in dict.fromkeys(names):
        prefix = f"{key}.{name}."
        yield (
            name,
            _Part(prefix, {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}),
        )


def _elements(text: str) -> tuple[str, ...]:
    return tuple(element for part in text.split(",") if (element := part.strip()))


def _step(
    name: str, values: Mapping[str, str], predicates: Mapping[str, Predicate], part: _Part
) -> ChainStep:
    transform = _known(part, _PACKAGE, _TRANSFORMS, "transform")(part)
    chosen = part.values.get("predicate", "")
    negate = part.values.get("negate", "false").lower()
    if negate not in {"true", "false"}:
        # Connect accepts blanks around it, and then does not see `true`: the filter would keep what it drops.
        wrong = f"must be true or false, not {negate!r}: Kafka Connect takes that for false"
        raise ConfigError(f"{part.prefix}negate: {wrong}")
    if not chosen:
        if "negate" in part.values:
            raise ConfigError(f"{part.prefix}negate: there is no {part.prefix}predicate that it could negate")
        return ChainStep(name, transform)
    if chosen not in predicates:
        if chosen in _elements(values.get(PREDICATES, "")):
            raise ConfigError(f"{part.prefix}predicate: {chosen!r} has a problem of its own")
        raise ConfigError(f"{part.prefix}predicate: {PREDICATES} does not name {chosen!r}")
    return ChainStep(name, transform, predicates[chosen], negate == "true")


def _predicate(part: _Part) -> Predicate:
    return _known(part, _PREDICATE_PACKAGE, _PREDICATES, "predicate")(part)


def _known(part: _Part, package: str, known: Mapping[str, T], kind: str) -> T:
    """The reader of a class, which may be named without its package, as Connect allows."""
    written = part.text("type")
    short = written.removeprefix(package)
    if short not in known:
        raise ConfigError(
            f"{part.prefix}type: Twinlog does not have the {kind} {written}; it has {', '.join(known)} of"
            f" Kafka Connect, and does not copy unchanged what the file wants changed{_instead(short)}"
        )
    return known[short]


def _instead(short: str) -> str:
    """What does the same as a transform of Kafka Connect that is not known."""
    name, _, part = short.partition("$")
    column = "headers" if name == "HeaderFrom" else "key" if name == "ValueToKey" else part.lower()
    return f"; twinlog.transform.{column} can do that (docs/transforms.md)" if column in COLUMNS else ""


def _regex_router(part: _Part) -> RegexRouter:
    pattern = part.parsed("regex", compile_java)
    written = part.written("replacement")
    if written is None:
        raise ConfigError(f"{part.prefix}replacement: must have a value")
    try:
        replacement = parse_replacement(written, pattern)
    except ConfigError as error:
        raise ConfigError(f"{part.prefix}replacement: {error}") from error
    return RegexRouter(pattern, replacement, part.text("regex"), written)


def _timestamp_router(part: _Part) -> TimestampRouter:
    return TimestampRouter(
        part.text("topic.format", "${topic}-${timestamp}"),
        part.parsed("timestamp.format", java_date_format, "yyyyMMdd"),
    )


_TRANSFORMS: Mapping[str, Callable[[_Part], Transform]] = {
    "Filter": lambda _: Filter(),
    "DropHeaders": lambda part: DropHeaders(frozenset(name.encode() for name in part.names("headers"))),
    "InsertHeader": lambda part: InsertHeader(
        part.text("header").encode(), part.text("value.literal").encode()
    ),
    "RegexRouter": _regex_router,
    "TimestampRouter": _timestamp_router,
}
_PREDICATES: Mapping[str, Callable[[_Part], Predicate]] = {
    "HasHeaderKey": lambda part: HasHeaderKey(part.text("name").encode()),
    "RecordIsTombstone": lambda _: RecordIsTombstone(),
    "TopicNameMatches": lambda part: TopicNameMatches(part.parsed("pattern", compile_java)),
}
