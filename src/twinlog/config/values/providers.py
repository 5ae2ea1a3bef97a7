"""`${provider:[path:]key}` references in values, and Kafka's three standard providers.

Values are resolved when they are used, so values that a flow does not need are not read. As in Kafka, a
reference without a value stays as written, with a notice.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from twinlog.config.keys.client import NOTES, SECURITY_KEYS
from twinlog.config.keys.spec import split_list
from twinlog.config.values.precedence import Settings, strip_prefix
from twinlog.config.values.reader import ConfigFindings
from twinlog.errors import ConfigError
from twinlog.filters.java_classes import RegexSyntaxError
from twinlog.filters.java_regex import compile_linear
from twinlog.filters.linear import LinearPattern
from twinlog.properties import Property, parse

# Finds config providers of other packages by their entry points.
#
# A package declares `[project.entry-points."twinlog.config_providers"]` with the name in
# `config.providers.<name>.class`, and a factory that gets its `param.*` and returns an object with `get(path,
# key)`, which returns the value or None. It may block; it is called when a file is loaded, and again when a
# client connects.

GROUP = "twinlog.config_providers"


class OtherProvider:
    """A provider of another package. Its exceptions are only named by type, because their text may contain a
    secret."""

    def __init__(self, make: "Callable[[Mapping[str, str]], Provider]", params: Mapping[str, str]) -> None:
        try:
            self._provider = make(params)
        except Exception as error:  # Code of another package.
            raise ConfigError(f"the provider cannot be made: {type(error).__name__}") from error

    def get(self, path: str, key: str) -> str | None:
        try:
            value = self._provider.get(path, key)
        except Exception as error:  # Code of another package.
            raise ConfigError(f"the provider failed: {type(error).__name__}") from error
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"the provider gave no text but {type(value).__name__}")
        return value


def other_provider(class_name: str, params: Mapping[str, str]) -> "Provider | None":
    """The provider with this name; None when no package has it. Raises ConfigError."""
    for found in entry_points(group=GROUP, name=class_name):
        try:
            make = found.load()
        except Exception as error:  # Code of another package.
            raise ConfigError(f"{found.value} cannot be imported: {type(error).__name__}") from error
        return OtherProvider(make, params)
    return None


_REFERENCE = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
_PACKAGE = "org.apache.kafka.common.config.provider"


class FileSystem(Protocol):
    """What providers read. Both methods block."""

    def read_bytes(self, path: str) -> bytes:
        """Raises OSError."""
        ...

    def is_file(self, path: str) -> bool: ...


class LocalFileSystem:
    def read_bytes(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def is_file(self, path: str) -> bool:
        return Path(path).is_file()


class OneText:
    """`FileSystem` with one file; those to which it refers are elsewhere, and exist when Twinlog runs."""

    def __init__(self, path: str, content: bytes) -> None:
        self._path, self._content = path, content

    def read_bytes(self, path: str) -> bytes:
        return self._content if path == self._path else b""

    def is_file(self, path: str) -> bool:
        return False


class Provider(Protocol):
    def get(self, path: str, key: str) -> str | None:
        """The value, or None when there is none. Raises ConfigError when the location cannot be read."""
        ...


class EnvVarProvider:
    """`${env:NAME}`; `allowlist.pattern` must match the whole name."""

    def __init__(self, params: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._allowed = _pattern(params.get("allowlist.pattern", ".*"))

    def get(self, path: str, key: str) -> str | None:
        if path:
            raise ConfigError(f"an environment variable has no path: write ${{…:{key}}}")
        return self._environ.get(key) if self._allowed.matches(key) else None


class FileProvider:
    """`${file:/path/to/some.properties:key}`: a key of a Java properties file in UTF-8."""

    def __init__(self, params: Mapping[str, str], files: FileSystem) -> None:
        self._files = files
        self._allowed = _AllowedPaths(params.get("allowed.paths", ""))
        self._read: dict[str, Mapping[str, Property]] = {}

    def get(self, path: str, key: str) -> str | None:
        path = self._allowed.permitted(path)
        if not path:
            return None
        if path not in self._read:
            content = _content(self._files, path)
            self._read[path] = parse(content, file=path, encoding="utf-8").entries
        found = self._read[path].get(key)
        return None if found is None else found.value


class DirectoryProvider:
    """`${dir:/path/to/directory:name}`: the whole content of one UTF-8 file."""

    def __init__(self, params: Mapping[str, str], files: FileSystem) -> None:
        self._files = files
        self._allowed = _AllowedPaths(params.get("allowed.paths", ""))

    def get(self, path: str, key: str) -> str | None:
        file = self._allowed.permitted(str(Path(path) / key))
        if not path or "/" in key or not file or not self._files.is_file(file):
            return None
        try:
            return _content(self._files, file).decode()
        except UnicodeDecodeError as error:
            raise ConfigError(f"{file} is not UTF-8") from error


def _pattern(expression: str) -> LinearPattern:
    try:
        return compile_linear(expression)
    except RegexSyntaxError as error:
        raise ConfigError(f"allowlist.pattern is not a regular expression: {error}") from error


def _content(files: FileSystem, path: str) -> bytes:
    try:
        return files.read_bytes(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


class _AllowedPaths:
    def __init__(self, text: str) -> None:
        self._roots = [_normal(root) for root in split_list(text)]
        for root in self._roots:
            if not root.is_absolute():
                raise ConfigError(f"allowed.paths: {root} is not an absolute path")

    def permitted(self, path: str) -> str:
        """The path to read instead; empty if it is not allowed. Without a list every path is allowed."""
        if not self._roots:
            return path
        normal = _normal(path)
        return str(normal) if any(normal.is_relative_to(root) for root in self._roots) else ""


def _normal(path: str) -> Path:
    """The path without `.` and `..`, links not followed."""
    parts: list[str] = []
    for part in Path(path).parts:
        if part == ".." and parts and parts[-1] not in ("..", "/"):
            parts.pop()
        elif part != ".." or not parts or parts[-1] == "..":
            parts.append(part)
    return Path(*parts)


@dataclass(slots=True, eq=False, repr=False)
class Resolver:
    """Replaces references in values; reports once what cannot be found."""

    providers: Mapping[str, Provider]
    findings: ConfigFindings
    _: KW_ONLY
    settings: Mapping[str, str] = field(default_factory=dict)
    """Those of `config.providers`, from which the providers were created."""

    def may_change(self, text: str) -> bool:
        """Whether a reference in it may give another value later: all except the process's environment."""
        found = (self.providers.get(match[1]) for match in _REFERENCE.finditer(text))
        return any(each is not None and not isinstance(each, EnvVarProvider) for each in found)

    def filled(self, text: str) -> str | None:
        """The text with all references replaced; None when one of them has no value now."""
        parts, position = list[str](), 0
        for match in _REFERENCE.finditer(text):
            provider = self.providers.get(match[1])
            try:
                value = None if provider is None else provider.get(match[3] or "", match[4])
            except ConfigError:
                value = None
            if value is None:
                return None
            parts += (text[position : match.start()], value)
            position = match.end()
        return "".join((*parts, text[position:]))

    def resolve(self, prop: Property) -> Property:
        """The property with its references replaced; unchanged when it has none, or is already resolved."""
        if "${" not in prop.value or prop.written is not None:
            return prop
        value = _REFERENCE.sub(lambda match: self._replacement(prop, match), prop.value)
        return prop if value == prop.value else replace(prop, value=value, written=prop.value)

    def _replacement(self, prop: Property, match: re.Match[str]) -> str:
        name, path, key = match[1], match[3] or "", match[4]
        provider = self.providers.get(name)
        if provider is None:
            # It may not be a reference at all, but part of a password: the rest of it is not shown.
            text = f"${{{name}:…}} is used literally: there is no provider {name!r} in config.providers"
            self.findings.warning(prop.key, text, line=prop.line)
            return match[0]
        try:
            found = provider.get(path, key)
        except ConfigError as error:
            self.findings.problem(prop.key, f"{match[0]}: {error}", line=prop.line)
            return match[0]
        if found is None:
            is_directory = isinstance(provider, DirectoryProvider)
            why = f"there is no {Path(path, key)}" if is_directory else f"provider {name!r} has no such value"
            text = f"{match[0]} is used literally: {why}"
            self.findings.warning(prop.key, text, line=prop.line, is_mistake=True)
            return match[0]
        return found


def configured_resolver(
    raw: Settings, *, environ: Mapping[str, str], files: FileSystem, findings: ConfigFindings
) -> Resolver:
    """The providers that `config.providers` names, built from `config.providers.<name>.*`."""
    makers: dict[str, Callable[[Mapping[str, str]], Provider]] = {
        f"{_PACKAGE}.EnvVarConfigProvider": lambda params: EnvVarProvider(params, environ),
        f"{_PACKAGE}.FileConfigProvider": lambda params: FileProvider(params, files),
        f"{_PACKAGE}.DirectoryConfigProvider": lambda params: DirectoryProvider(params, files),
    }
    providers: dict[str, Provider] = {}
    names = raw.get("config.providers")
    for name in split_list(names.value) if names else ():
        prefix = f"config.providers.{name}."
        class_key = f"{prefix}class"
        chosen = raw.get(class_key)
        if chosen is None:
            findings.problem(
                class_key, f"missing: expected one of {', '.join(makers)}", line=names.line if names else 0
            )
            continue
        class_name = chosen.value.strip()
        make = makers.get(class_name)
        params = {key: prop.value.strip() for key, prop in strip_prefix(raw, f"{prefix}param.").items()}
        try:
            provider = other_provider(class_name, params) if make is None else make(params)
        except ConfigError as error:
            findings.problem(class_key, str(error), line=chosen.line)
            continue
        if provider is None:
            known = ", ".join(makers)
            findings.wrong_value(
                chosen, f"one of {known}, or that of an installed package (docs/logins.md)", secret=False
            )
            continue
        providers[name] = provider
    settings = {key: prop.value for key, prop in raw.items() if key.startswith("config.providers")}
    return Resolver(providers, findings, settings=settings)


# Secrets that change while a process runs: references to files are read again when a client connects.
#
# After the start, a client's properties contain plain text. The text as written, and the providers it
# needs, stay next to it under their own keys, so that they reach every place where the client is created,
# also workers of Spark: `twinlog.written.<key>`, and `twinlog.written` with the providers as JSON. They
# are never shown.


def notes(resolved: Mapping[str, Property], resolver: Resolver) -> dict[str, str]:
    """What has to stay with the properties of a client; empty when none of its values can change."""
    written = {
        f"{NOTES}.{key}": prop.written
        for key, prop in resolved.items()
        if key in SECURITY_KEYS and prop.written is not None and resolver.may_change(prop.written)
    }
    return {**written, NOTES: json.dumps(dict(resolver.settings))} if written else {}


def reread(
    properties: Mapping[str, str], *, environ: Mapping[str, str], files: FileSystem
) -> Mapping[str, str]:
    """The properties with their references read again. A value that cannot be read now stays."""
    if NOTES not in properties:
        return properties
    settings = {key: Property(key=key, value=value) for key, value in json.loads(properties[NOTES]).items()}
    resolver = configured_resolver(settings, environ=environ, files=files, findings=ConfigFindings(file=""))
    fresh = dict(properties)
    for key, written in properties.items():
        if key.startswith(f"{NOTES}."):
            value = resolver.filled(written)
            if value is not None:
                fresh[key.removeprefix(f"{NOTES}.")] = value.strip()
    return fresh
