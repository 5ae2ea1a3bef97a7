"""Reads typed values from properties, by the table of keys. Wrong values are collected instead of raised one
by one."""

from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from enum import StrEnum
from typing import Any, cast, get_type_hints

from twinlog.config.keys.client import is_secret
from twinlog.config.keys.spec import (
    INTERVAL_SUFFIX,
    SWITCH_SUFFIX,
    KeySpec,
    Value,
    expected,
    parse_value,
    split_list,
)
from twinlog.config.keys.table import BY_NAME
from twinlog.config.values.precedence import Settings
from twinlog.errors import ConfigError
from twinlog.filters import PatternList
from twinlog.properties import Property

# Problems and notices about a configuration: problems prevent the start, notices do not.


class NoticeLevel(StrEnum):
    INFO = "info"
    """Accepted without effect, or a difference worth knowing."""
    WARNING = "warning"
    """Probably not intended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    level: NoticeLevel
    key: str
    line: int
    """0 when it concerns no line of the file."""
    text: str
    is_mistake: bool = False
    """Nobody can have meant it, although MirrorMaker 2 would start with it: the flow would copy other topics
    than the file says, or none, or a client would log in with the text of a reference."""

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.key}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    key: str
    line: int
    text: str


class ConfigFindings:
    """Collects problems and notices while a configuration is read, each only once."""

    def __init__(self, *, file: str) -> None:
        self.file = file
        self._problems: dict[ConfigProblem, None] = {}
        self._notices: dict[Notice, None] = {}

    def problem(self, key: str, text: str, *, line: int = 0) -> None:
        self._problems[ConfigProblem(key=key, line=line, text=text)] = None

    def wrong_value(self, prop: Property, expected: str, *, secret: bool) -> None:
        """`prop` has not the form that its key requires. Values of secrets, and values from providers, are
        not shown."""
        if prop.written is not None:
            found = f"{prop.written} (resolved)"
        elif secret:
            found = "a value that is not shown"
        else:
            found = repr(prop.value)
        hint = ""
        if " #" in prop.value and not secret:
            hint = "; a comment has to be on a line of its own"
        self.problem(prop.key, f"expected {expected}, found {found}{hint}", line=prop.line)

    def info(self, key: str, text: str, *, line: int = 0) -> None:
        self._notices[Notice(level=NoticeLevel.INFO, key=key, line=line, text=text)] = None

    def warning(self, key: str, text: str, *, line: int = 0, is_mistake: bool = False) -> None:
        notice = Notice(level=NoticeLevel.WARNING, key=key, line=line, text=text, is_mistake=is_mistake)
        self._notices[notice] = None

    @property
    def notices(self) -> tuple[Notice, ...]:
        return tuple(sorted(self._notices, key=lambda notice: notice.line))

    def raise_problems(self) -> None:
        """Raises ConfigError with all problems, one per line, in file order; returns when there are none."""
        problems = sorted(self._problems, key=lambda problem: problem.line)
        if not problems:
            return
        lines = [f"{self._place(problem)}: {problem.key}: {problem.text}" for problem in problems]
        first = problems[0]
        metadata = {
            "file": self.file,
            "line": str(first.line),
            "key": first.key,
            "problems": str(len(problems)),
        }
        raise ConfigError("\n".join(lines), metadata=metadata)

    def _place(self, problem: ConfigProblem) -> str:
        return f"{self.file}:{problem.line}" if problem.line else self.file


# Notices about values that are accepted and read differently from how they are written.


def tell_reading(spec: KeySpec, prop: Property, findings: ConfigFindings) -> None:
    """Report how a valid value is read, if it does not say so itself. Values from providers are not shown."""
    if spec.distinct:
        for element, count in Counter(split_list(prop.value)).items():
            if count > 1:
                named = "an element" if prop.written is not None else repr(element)
                findings.warning(prop.key, f"{named} is named twice and counts once", line=prop.line)
    if spec.negative_is_off and float(prop.value) < 0:
        switch = spec.name.removesuffix(INTERVAL_SUFFIX) + SWITCH_SUFFIX
        findings.info(prop.key, f"is negative, which counts as {switch}=false", line=prop.line)


_KEY = "key"


def of_key(name: str) -> dict[str, str]:
    """The metadata of a field that has the value of this key, as its type: see `SettingsReader.declared`."""
    return {_KEY: name}


def texts_of(settings: Any) -> dict[str, str]:
    """By key: the values of a dataclass's fields that name their key, as texts; None is empty."""
    found = {
        each.metadata[_KEY]: getattr(settings, each.name)
        for each in fields(settings)
        if _KEY in each.metadata
    }
    return {key: "" if value is None else str(value) for key, value in found.items()}


@dataclass(slots=True, eq=False, repr=False)
class SettingsReader:
    """Reads one mapping of properties (a flow's, a worker's or the file's). A wrong value becomes a problem
    and reads as the default, so that one start shows all problems."""

    properties: Settings
    _: KW_ONLY
    resolve: Callable[[Property], Property]
    findings: ConfigFindings

    def boolean(self, name: str) -> bool:
        return cast("bool", self._value(name))

    def integer(self, name: str) -> int:
        return cast("int", self._value(name))

    def optional_integer(self, name: str) -> int | None:
        return cast("int | None", self._value(name))

    def number(self, name: str) -> float:
        return cast("float", self._value(name))

    def repeated(self, task: str) -> tuple[bool, float]:
        """Whether a task that MM2 repeats runs, and how often: `<task>.enabled` and
        `<task>.interval.seconds`.

        A negative interval switches it off, and reads as the default.
        """
        enabled, interval = self.boolean(f"{task}{SWITCH_SUFFIX}"), f"{task}{INTERVAL_SUFFIX}"
        seconds = self.number(interval)
        if seconds < 0:
            return False, float(BY_NAME[interval].default or 0)
        return enabled, seconds

    def text(self, name: str) -> str:
        return cast("str", self._value(name))

    def optional_text(self, name: str) -> str | None:
        """None when the key is absent or blank."""
        return cast("str | None", self._value(name)) or None

    def elements(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self._value(name))

    def patterns(self, name: str) -> tuple[str, ...]:
        """Names and Java regular expressions; one that does not compile is a problem of its line."""
        found = self.elements(name)
        try:
            PatternList(name, found)
        except ConfigError as error:
            prop = self.property(name) or Property(key=name, value="")
            self.findings.problem(prop.key, str(error).removeprefix(f"{name}: "), line=prop.line)
            return ()
        return found

    def declared(self, settings: type[Any]) -> dict[str, Any]:
        """The values of those fields of a dataclass that name their key: `field(metadata=of_key("…"))`."""
        kinds = get_type_hints(settings)
        return {
            each.name: self._declared(kinds[each.name], each.metadata[_KEY])
            for each in fields(settings)
            if _KEY in each.metadata
        }

    def _declared(self, kind: Any, name: str) -> Any:
        if kind == tuple[str, ...]:
            return self.patterns(name)
        value = self._value(name)
        return kind(str(value)) if isinstance(kind, type) and issubclass(kind, StrEnum) else value

    def property(self, name: str) -> Property | None:
        """The resolved property of a key, under its name or an older one; None when it is not set."""
        for candidate in (name, *BY_NAME[name].aliases):
            if candidate in self.properties:
                return self.resolve(self.properties[candidate])
        return None

    def _value(self, name: str) -> Value | None:
        spec = BY_NAME[name]
        fallback = None if spec.default is None else parse_value(spec, spec.default)
        prop = self.property(name)
        if prop is None:
            return fallback
        try:
            value = parse_value(spec, prop.value)
        except ValueError:
            self.findings.wrong_value(prop, expected(spec), secret=is_secret(name))
            return fallback
        tell_reading(spec, prop, self.findings)
        return value
