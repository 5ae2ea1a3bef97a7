"""The definition of a configuration key: its type, its range, where it may be written, and which services
read it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Any, TypeVar

from twinlog.errors import ConfigError

# Finds classes of other packages by their entry points.
#
# A package declares, for instance, `[project.entry-points."twinlog.policies"]` with the name in the file
# (that of the Java class, so that MM2 accepts the same file) and what to call instead.

POLICIES = "twinlog.policies"
"""Called with `replication.policy.*` and `source.cluster.alias`; returns a `ReplicationPolicy`."""


def is_installed(group: str, class_name: str) -> bool:
    return any(True for _ in entry_points(group=group, name=class_name))


def other_class(group: str, class_name: str) -> Any | None:
    """The object that a package declares under this name; None when there is none. Raises ConfigError when it
    cannot be imported."""
    for found in entry_points(group=group, name=class_name):
        try:
            return found.load()
        except Exception as error:  # Code of another package.
            raise ConfigError(
                f"{class_name}: {found.value} cannot be imported: {type(error).__name__}: {error}"
            ) from error
    return None


_Number = TypeVar("_Number", int, float)
Value = bool | int | float | str | tuple[str, ...]


SWITCH_SUFFIX = ".enabled"
INTERVAL_SUFFIX = ".interval.seconds"
"""A task that MM2 repeats has two keys: its switch and its interval."""


class Service(StrEnum):
    SOURCE = "source"
    CHECKPOINT = "checkpoint"
    HEARTBEAT = "heartbeat"
    CONFIGSYNC = "configsync"


ALL_SERVICES = tuple(Service)


class ValueType(StrEnum):
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    LIST = "list"
    CLASS = "class"
    ADDRESS = "host:port"


class KeyScope(StrEnum):
    """Where in the file a key has an effect."""

    TOP = "top level"
    FLOW = "top level or `A->B.`"
    FLOW_ONLY = "`A->B.`"
    TARGET = "`B.` of the target cluster"
    TARGET_OR_TOP = "top level (wins) or `B.` of the target cluster"
    CLUSTER = "`A.`"


@dataclass(frozen=True, slots=True)
class KeySpec:
    name: str
    type: ValueType
    default: str | None
    """As written in a file; None = no default."""
    services: tuple[Service, ...]
    """The services that read it."""
    meaning: str
    scope: KeyScope
    unit: str = ""
    minimum: float | None = None
    negative_is_off: bool = False
    """`<task>.interval.seconds`: a negative value counts as `<task>.enabled=false`, as in MM2's Scheduler."""
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    """The allowed values, compared without case."""
    remedy: str = ""
    """What to do if none of the choices fits."""
    other_classes: str = ""
    """The group of entry points with which other packages extend the choices of a class."""
    distinct: bool = False
    """A list without empty elements, in which a repeated element counts once (as in MM2 ≥ 4.2)."""
    aliases: tuple[str, ...] = ()
    """Older names of the key; the newer one takes precedence."""
    mm2_default: str | None = None
    """MM2's default if Twinlog's differs on purpose."""
    live: bool = False
    """It takes effect without a restart, as a rule of a running flow; all others need one."""
    no_effect: str = ""
    """Why Twinlog accepts the key and ignores it; empty = it has an effect."""


def expected(spec: KeySpec) -> str:
    """The expected form of the value, for errors and docs."""
    if spec.choices:
        others = " or that of an installed package" if spec.other_classes else ""
        remedy = f"; {spec.remedy}" if spec.remedy else ""
        return "one of " + ", ".join(spec.choices) + others + remedy
    words = {
        ValueType.BOOLEAN: "true or false",
        ValueType.INTEGER: "a whole number",
        ValueType.NUMBER: "a number",
        ValueType.TEXT: "text",
        ValueType.LIST: "a comma-separated list",
        ValueType.CLASS: "a class name",
        ValueType.ADDRESS: "HOST:PORT with a port from 0 to 65535",
    }[spec.type]
    if spec.distinct:
        words += " without empty elements"
    if spec.minimum is not None and spec.maximum is not None:
        words += f" from {_shown(spec.minimum)} to {_shown(spec.maximum)}"
    elif spec.minimum is not None:
        words += f" of at least {_shown(spec.minimum)}"
    return (
        words
        + (f" ({spec.unit})" if spec.unit else "")
        + ("; negative = off" if spec.negative_is_off else "")
    )


def _shown(number: float) -> str:
    """In readable form: 1048576, 0.1."""
    return str(int(number)) if number == int(number) else str(number)


def parse_value(spec: KeySpec, raw: str) -> Value:
    """Parse the value of a setting. Raises ValueError, whose text never contains the value."""
    return _PARSERS[spec.type](spec, raw.strip())


def split_list(raw: str) -> tuple[str, ...]:
    """Kafka's LIST: split at commas without escapes; blank = empty list."""
    text = raw.strip()
    return tuple(re.split(r"\s*,\s*", text)) if text else ()


def java_boolean(raw: str) -> bool:
    """`Boolean.parseBoolean`: everything except true is false, and blanks are not trimmed."""
    return raw.lower() == "true"


def _boolean(spec: KeySpec, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("not a boolean")
    return text.lower() == "true"


def _integer(spec: KeySpec, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError("not a whole number")
    return _ranged(spec, int(text))


def _number(spec: KeySpec, text: str) -> float:
    if not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", text):
        raise ValueError("not a number")
    return _ranged(spec, float(text))


def _ranged(spec: KeySpec, number: _Number) -> _Number:
    if spec.negative_is_off and number < 0:
        return number
    if spec.minimum is not None and number < spec.minimum:
        raise ValueError("too small")
    if spec.maximum is not None and number > spec.maximum:
        raise ValueError("too large")
    return number


def _text(spec: KeySpec, text: str) -> str:
    if not spec.choices:
        return text
    for choice in spec.choices:
        if choice.lower() == text.lower():
            return choice
    raise ValueError("not one of the choices")


def _class(spec: KeySpec, text: str) -> str:
    """A class among the choices, by its full or simple name; returns the full name."""
    for choice in spec.choices:
        if text in (choice, choice.rpartition(".")[2]):
            return choice
    if spec.choices and not (spec.other_classes and is_installed(spec.other_classes, text)):
        raise ValueError("not a known class")
    return text


def _list(spec: KeySpec, text: str) -> tuple[str, ...]:
    elements = split_list(text)
    if spec.distinct and "" in elements:
        raise ValueError("an empty element")
    if spec.choices and not set(elements) <= set(spec.choices):
        raise ValueError("not among the choices")
    return tuple(dict.fromkeys(elements)) if spec.distinct else elements


def _address(spec: KeySpec, text: str) -> str:
    if not text:
        return text
    host, colon, port = text.rpartition(":")
    if not (colon and host and re.fullmatch("[0-9]{1,5}", port) and int(port) <= 65535):
        raise ValueError("not an address")
    return text


_PARSERS: dict[ValueType, Callable[[KeySpec, str], Value]] = {
    ValueType.BOOLEAN: _boolean,
    ValueType.INTEGER: _integer,
    ValueType.NUMBER: _number,
    ValueType.TEXT: _text,
    ValueType.LIST: _list,
    ValueType.CLASS: _class,
    ValueType.ADDRESS: _address,
}
