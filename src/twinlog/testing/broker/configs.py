"""The configs of topics and brokers: sources, and what is refused. Names and defaults: topic_configs.txt."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from twinlog.testing.broker.calls import Release
from twinlog.text_tables import read_table

_POLICIES = frozenset(("compact", "delete"))


class Source(IntEnum):
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigType(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Known(NamedTuple):
    """A row of topic_configs.txt."""

    name: str
    kind: ConfigType
    default: str
    broker_name: str | None
    options: Mapping[str, str]

    def is_in(self, release: Release) -> bool:
        return self.options.get("since", "") <= release.name < self.options.get("until", "9")

    def default_in(self, release: Release) -> str:
        changed_in, _, before = self.options.get("before", "").partition(":")
        return before if release.name < changed_in else self.default


def _known(row: str) -> Known:
    name, kind, default, broker_name, *more = row.split()
    options: dict[str, str] = dict(each.split("=", 1) for each in more)
    return Known(name, ConfigType[kind], default.strip('"'), broker_name.strip("-") or None, options)


_ROWS = [_known(row) for _, rows in read_table("twinlog.testing.broker", "topic_configs.txt") for row in rows]
_OF_TOPICS = {each.name: each for each in _ROWS}
_OF_BROKERS = {each.broker_name: each for each in _ROWS if each.broker_name is not None}


class Value(NamedTuple):
    name: str
    value: str
    source: Source


class Config(NamedTuple):
    name: str
    found: tuple[Value, ...]
    """What applies and what it hides, the strongest first: the synonyms (KIP-226)."""
    is_read_only: bool = False

    @property
    def kind(self) -> ConfigType:
        return kind_of(topic_name(self.name))


class RefusedError(Exception):
    """INVALID_CONFIG."""


def topic_defaults(release: Release) -> dict[str, str]:
    """By name."""
    return {each.name: each.default_in(release) for each in _ROWS if each.is_in(release)}


def topic_name(name: str) -> str:
    """What topics call a broker's config, by which it is kept."""
    return _OF_BROKERS[name].name if name in _OF_BROKERS else name


def kind_of(name: str) -> ConfigType:
    return _OF_TOPICS[name].kind if name in _OF_TOPICS else ConfigType.STRING


def topic_configs(
    configs: Mapping[str, str], broker_configs: Mapping[str, str], release: Release
) -> Iterable[Config]:
    """All that a topic has. `broker_configs`: the cluster's defaults, by the names of topics."""
    for name, default in sorted(topic_defaults(release).items()):
        found = [Value(name, configs[name], Source.TOPIC)] if name in configs else []
        inherits = _OF_TOPICS[name].broker_name
        if inherits is not None:
            if name in broker_configs:
                found.append(Value(inherits, broker_configs[name], Source.DYNAMIC_DEFAULT_BROKER))
            found.append(Value(inherits, default, Source.DEFAULT))
        elif not found:
            found.append(Value(name, default, Source.DEFAULT))
        yield Config(name, tuple(found))


def node_configs(
    node_id: int, node_count: int, broker_configs: Mapping[str, str], release: Release
) -> Iterable[Config]:
    """What a broker tells of itself: what clients ask for, not all of its hundreds of configs."""
    static = {
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(min(3, node_count)),
        "group.initial.rebalance.delay.ms": "0",
        "broker.id" if release.has_zookeeper else "node.id": str(node_id),
        "num.partitions": "1",
    }
    for name, value in static.items():
        yield Config(name, (Value(name, value, Source.STATIC_BROKER),), is_read_only=True)
    own = [each for each in _ROWS if each.broker_name is not None and each.is_in(release)]
    for each in own:
        told = each.broker_name or ""
        found = [Value(told, each.default_in(release), Source.DEFAULT)]
        if each.name in broker_configs:
            found.insert(0, Value(told, broker_configs[each.name], Source.DYNAMIC_DEFAULT_BROKER))
        yield Config(told, tuple(found))
    for name in broker_configs.keys() - {each.name for each in own} - static.keys():
        yield Config(name, (Value(name, broker_configs[name], Source.DYNAMIC_DEFAULT_BROKER),))


def check(name: str, value: str, release: Release) -> None:
    """Raises RefusedError for what a topic may not have."""
    known = _OF_TOPICS.get(name)
    if known is None or not known.is_in(release):
        raise RefusedError(f"Unknown topic config name: {name}")
    invalid = f"Invalid value {value} for configuration {name}"
    number: float = 0
    try:
        if known.kind in (ConfigType.INT, ConfigType.LONG):
            number = int(value)
            if not -(1 << 63) <= number < 1 << (31 if known.kind is ConfigType.INT else 63):
                raise ValueError(value)
        elif known.kind is ConfigType.DOUBLE:
            number = float(value)
    except ValueError:
        raise RefusedError(f"{invalid}: Not a number of type {known.kind.name}") from None
    if name == "segment.bytes" and number < (14 if release.is_before_4 else 1 << 20):
        raise RefusedError(invalid)  # KIP-1030
    _check_range(known, number)
    if known.kind is ConfigType.BOOLEAN and value.lower() not in ("true", "false"):
        raise RefusedError(f"{invalid}: Expected value to be either true or false")
    words = known.options.get("words")
    if words is not None and value not in words.split(","):
        raise RefusedError(f"{invalid}: String must be one of: {words.replace(',', ', ')}")
    if name == "cleanup.policy":
        policies = {each.strip() for each in value.split(",") if each.strip()}
        if not policies <= _POLICIES or (release.is_before_4 and not policies):
            raise RefusedError(f"{invalid}: String must be one of: compact, delete")


def _check_range(known: Known, number: float) -> None:
    invalid = f"Invalid value {number} for configuration {known.name}: Value must be"
    least = int(known.options.get("least", -(1 << 63) if known.default.startswith("-") else 0))
    if number < least:
        raise RefusedError(f"{invalid} at least {least}")
    if known.kind is ConfigType.DOUBLE and number > 1:
        raise RefusedError(f"{invalid} no more than 1")
