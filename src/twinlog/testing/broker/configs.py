"""The configs of topics and brokers: names, defaults, sources, what is refused.

The names and defaults are those of LogConfig.java in Kafka 4.3; releases differ in a few.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from twinlog.testing.broker.calls import Release

TOPIC_CONFIG_DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""Topic configs of Kafka 4.3 with their defaults."""
_LONGEST = "9223372036854775807"
_ONLY_BEFORE_4 = {
    "message.downconversion.enable": "true",
    "message.format.version": "3.0-IV1",
    "message.timestamp.difference.max.ms": _LONGEST,
}
_SINCE_3_9 = {"remote.log.copy.disable": "false", "remote.log.delete.on.disable": "false"}
_SINCE_4_4 = {
    "errors.deadletterqueue.group.enable": "false",
    "max.decompressed.message.bytes": "2147483639",
    "remote.copy.lag.bytes": "-1",
    "remote.copy.lag.ms": "0",
}
_LATER_THAN_3_3 = frozenset(
    ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "local.retention.bytes",
     "local.retention.ms", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
     "remote.storage.enable")
)  # fmt: skip
_CHANGED_IN_4 = {"message.timestamp.after.max.ms": _LONGEST}
_WORDS = {
    "compression.type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
}
_POLICIES = frozenset(("compact", "delete"))
_INTS = frozenset(
    ("index.interval.bytes", "max.message.bytes", "min.insync.replicas", "segment.bytes",
     "segment.index.bytes", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level")
)  # fmt: skip
_LISTS = frozenset(
    ("cleanup.policy", "leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
)
_BROKER_NAMES = {
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
}
"""Where the broker's name is not that of the topic with `log.`."""
_SAME_NAMES = frozenset(("min.insync.replicas", "unclean.leader.election.enable"))
_NO_BROKER_NAMES = (
    _LISTS - {"cleanup.policy"} | {"remote.storage.enable"} | _SINCE_3_9.keys() | _SINCE_4_4.keys()
)


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
        return kind_of(self.name, self.found[-1].value)


class RefusedError(Exception):
    """INVALID_CONFIG."""


def topic_defaults(release: Release) -> dict[str, str]:
    """By name."""
    known = {**TOPIC_CONFIG_DEFAULTS, **_SINCE_3_9}
    if release.name >= "4.4":
        known |= _SINCE_4_4
    if release.is_before_4:
        known |= _CHANGED_IN_4 | _ONLY_BEFORE_4
    if release.name < "3.4":
        known = {
            name: default
            for name, default in known.items()
            if name not in _LATER_THAN_3_3 | _SINCE_3_9.keys()
        }
    if release.has_zookeeper:
        known["message.format.version"] = "2.8-IV1"
    return known


def topic_name(name: str) -> str:
    """What topics call a broker's config, by which it is kept."""
    return next((each for each in TOPIC_CONFIG_DEFAULTS if broker_name(each) == name), name)


def broker_name(name: str) -> str | None:
    """What brokers call the config from which a topic inherits this one."""
    if name in _NO_BROKER_NAMES:
        return None
    if name in _SAME_NAMES or name.startswith("compression."):
        return name
    return _BROKER_NAMES.get(name, f"log.{name}")


def kind_of(name: str, default: str) -> ConfigType:
    if name in _LISTS:
        return ConfigType.LIST
    if default in ("true", "false"):
        return ConfigType.BOOLEAN
    if default.lstrip("-").isdecimal():
        return ConfigType.INT if name in _INTS else ConfigType.LONG
    return ConfigType.DOUBLE if "ratio" in name else ConfigType.STRING


def topic_configs(
    configs: Mapping[str, str], broker_configs: Mapping[str, str], release: Release
) -> Iterable[Config]:
    """All that a topic has. `broker_configs`: the cluster's defaults, by the names of topics."""
    for name, default in sorted(topic_defaults(release).items()):
        found = [Value(name, configs[name], Source.TOPIC)] if name in configs else []
        inherits = broker_name(name)
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
    own = {name: default for name, default in TOPIC_CONFIG_DEFAULTS.items() if broker_name(name)}
    for name, default in own.items():
        told = broker_name(name) or name
        found = [Value(told, default, Source.DEFAULT)]
        if name in broker_configs:
            found.insert(0, Value(told, broker_configs[name], Source.DYNAMIC_DEFAULT_BROKER))
        yield Config(told, tuple(found))
    for name in broker_configs.keys() - own.keys() - static.keys():
        yield Config(name, (Value(name, broker_configs[name], Source.DYNAMIC_DEFAULT_BROKER),))


def check(name: str, value: str, release: Release) -> None:
    """Raises RefusedError for what a topic may not have."""
    default = topic_defaults(release).get(name)
    if default is None:
        raise RefusedError(f"Unknown topic config name: {name}")
    kind = kind_of(name, default)
    invalid = f"Invalid value {value} for configuration {name}"
    try:
        if kind in (ConfigType.INT, ConfigType.LONG):
            number = int(value)
            if not -(1 << 63) <= number < 1 << (31 if kind is ConfigType.INT else 63):
                raise ValueError(value)
            if name == "segment.bytes" and number < (14 if release.is_before_4 else 1 << 20):
                raise RefusedError(invalid)  # KIP-1030
            _check_range(name, number)
        elif kind is ConfigType.DOUBLE:
            _check_range(name, float(value))
    except ValueError:
        raise RefusedError(f"{invalid}: Not a number of type {kind.name}") from None
    if kind is ConfigType.BOOLEAN and value.lower() not in ("true", "false"):
        raise RefusedError(f"{invalid}: Expected value to be either true or false")
    if name in _WORDS and value not in _WORDS[name]:
        raise RefusedError(f"{invalid}: String must be one of: {', '.join(_WORDS[name])}")
    if name == "cleanup.policy":
        words = {each.strip() for each in value.split(",") if each.strip()}
        if not words <= _POLICIES or (release.is_before_4 and not words):
            raise RefusedError(f"{invalid}: String must be one of: compact, delete")


def _check_range(name: str, number: float) -> None:
    lowest = {"retention.ms": -1, "min.insync.replicas": 1, "segment.ms": 1}
    least = lowest.get(name)
    if least is None:
        least = 0 if TOPIC_CONFIG_DEFAULTS.get(name, "-1")[:1] != "-" else -(1 << 63)
    if number < least:
        raise RefusedError(f"Invalid value {number} for configuration {name}: Value must be at least {least}")
    if name == "min.cleanable.dirty.ratio" and number > 1:
        raise RefusedError(f"Invalid value {number} for configuration {name}: Value must be no more than 1")
