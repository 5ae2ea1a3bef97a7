"""Parses YAML and JSON into trees with line numbers, within limits.

YAML is composed and never constructed, so tags create no objects. Scalars are text, as all settings of Kafka:
`true`, `600`, `null` (None).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from twinlog.errors import ConfigError
from twinlog.imports.draft import SECRETS, Setting
from twinlog.imports.references import DEFAULT_SECRETS_DIR

MAX_BYTES = 8 * 1024 * 1024
MAX_NODES = 200_000
"""After aliases were expanded."""
MAX_DEPTH = 60

_YAML_WITHOUT_KIND = "tag:yaml.org,2002:"
_MERGE = f"{_YAML_WITHOUT_KIND}merge"
_JSON_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s"{}\[\],:]+')
"""A string, a bracket, a number or a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A mapping, a list or a scalar."""

    place: str
    file: str = ""
    line: int = 0
    fields: Mapping[str, "Tree"] = field(default_factory=dict)
    items: tuple["Tree", ...] = ()
    scalar: str | None = None
    is_scalar: bool = False

    def get(self, *names: str) -> "Tree":
        """The tree at this path; an empty one if there is none."""
        tree = self
        for name in names:
            place = f"{tree.place}.{name}" if tree.place else name
            tree = tree.fields.get(name, Tree(place=place, file=tree.file, line=tree.line))
        return tree

    @property
    def is_there(self) -> bool:
        return bool(self.fields or self.items or (self.is_scalar and self.scalar is not None))

    def text(self, name: str, default: str = "") -> str:
        found = self.get(name).scalar
        return default if found is None else found.strip()

    def require(
        self, *, texts: Iterable[str] = (), tables: Iterable[str] = (), lists: Iterable[str] = ()
    ) -> None:
        """Raises ConfigError if one of these fields exists with another type: it would be read as if it were
        missing."""
        for names, is_so, kind in (
            (texts, lambda tree: tree.is_scalar, "text"),
            (tables, lambda tree: not tree.items and not tree.is_scalar, "a table"),
            (lists, lambda tree: not tree.fields and not tree.is_scalar, "a list"),
        ):
            for name in names:
                tree = self.fields.get(name)
                if tree is not None and not tree.is_null and not is_so(tree):
                    raise _error(tree.file, tree.line, f"{tree.place} has to be {kind}")

    @property
    def is_null(self) -> bool:
        return self.is_scalar and self.scalar is None

    @property
    def setting(self) -> Setting:
        return Setting(value=self.scalar or "", place=self.place, line=self.line)

    def settings(self) -> dict[str, Setting]:
        """The scalars of a flat mapping; lists are joined with commas, as Connect reads its lists. Raises
        ConfigError for anything else, because a setting must not be dropped silently."""
        if self.items or (self.is_scalar and self.scalar is not None):
            raise _error(self.file, self.line, f"{self.place} has to be a table of settings")
        found: dict[str, Setting] = {}
        for name, tree in self.fields.items():
            if tree.fields or not all(item.is_scalar for item in tree.items):
                raise _error(tree.file, tree.line, f"{tree.place} has to be one value, or a list of values")
            if tree.items:
                joined = ",".join(item.scalar or "" for item in tree.items)
                found[name] = tree.setting.at(joined)
            elif tree.is_scalar and tree.scalar is not None:
                found[name] = tree.setting
        return found


def resources(documents: Sequence[Tree]) -> Iterator[Tree]:
    """The Kubernetes resources in documents, some of which may be lists of them. Raises ConfigError for an
    empty list."""
    for document in documents:
        if document.text("kind").endswith("List") and "items" in document.fields:
            if not document.get("items").is_there:
                raise _error(
                    document.file, document.line, "the list is empty: no resource was found where it was made"
                )
            yield from document.get("items").items
        else:
            yield document


def check_size(text: str | bytes, file: str) -> None:
    """Raises ConfigError for a file that is larger than any realistic one."""
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than {MAX_BYTES} bytes; import one resource at a time")


def read_yaml(text: str, file: str) -> tuple[Tree, ...]:
    """The documents of a file, without empty ones. Raises ConfigError with file and line."""
    try:
        import yaml
    except ImportError as error:
        raise ConfigError("reading YAML needs the package PyYAML: pip install PyYAML") from error

    check_size(text, file)
    try:
        counted = _Counted(file)
        trees = (counted.tree(node, "", 0) for node in yaml.compose_all(text, Loader=yaml.SafeLoader))
        return tuple(tree for tree in trees if tree.is_there)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or "not YAML"
        if "{{" in text:
            problem = (
                f"{problem}; it is a template: render it first, or take what `kubectl get -o yaml` tells"
            )
        raise _error(file, mark.line + 1 if mark else 0, problem) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _error(file, line, "a character that YAML does not allow") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise _error(file, 0, "cannot be read as YAML") from error


def read_json(text: str, file: str) -> Tree:
    """A text with several objects or lists is read as a list of them: one per line, as loops over `curl`
    write them. Raises ConfigError with file and line, also for a name that occurs twice in an object."""
    check_size(text, file)
    try:
        _check_json(text)
    except json.JSONDecodeError as error:
        raise _error(file, error.lineno, error.msg) from error
    except RecursionError:
        pass  # The tree has the line.
    documents = tuple(_JsonTree(text, file).documents())
    return documents[0] if len(documents) == 1 else Tree(place="", file=file, line=1, items=documents)


def _check_json(text: str) -> None:
    decoder = json.JSONDecoder(parse_int=str, parse_float=str)
    blank = re.compile(r"\s*")
    position = _end(blank, text, 0)
    while True:
        _, position = decoder.raw_decode(text, position)
        position = _end(blank, text, position)
        if position == len(text):
            return
        if text[position] not in "{[":
            raise json.JSONDecodeError("Extra data", text, position)


def _end(blank: re.Pattern[str], text: str, position: int) -> int:
    found = blank.match(text, position)
    return found.end() if found else position


class _JsonTree:
    """The tree of a JSON text. Python's own parser has no line numbers."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._words = _json_words(text)

    def documents(self) -> Iterator[Tree]:
        for word, line in self._words:
            yield self._tree(word, line, "", 0)

    def _tree(self, word: str, line: int, place: str, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            raise _error(self._file, line, "nested too deeply")
        if word == "{":
            return Tree(place=place, file=self._file, line=line, fields=self._fields(place, depth))
        if word == "[":
            return Tree(place=place, file=self._file, line=line, items=tuple(self._items(place, depth)))
        if word in ("NaN", "Infinity", "-Infinity"):
            raise _error(self._file, line, f"{word} is not a JSON value")
        if word == "null":
            return Tree(place=place, file=self._file, line=line, is_scalar=True)
        scalar = self._text(word, line) if word.startswith('"') else word
        return Tree(place=place, file=self._file, line=line, is_scalar=True, scalar=scalar)

    def _text(self, word: str, line: int) -> str:
        text = str(json.loads(word))
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise _error(self._file, line, "half a character (a lone surrogate)")
        return text

    def _fields(self, place: str, depth: int) -> dict[str, Tree]:
        found: dict[str, Tree] = {}
        for word, line in self._words:
            if word == "}":
                break
            name = self._text(word, line)
            if name in found:
                raise _error(self._file, line, f"{name!r} occurs twice in one object")
            found[name] = self._tree(*next(self._words), _below(place, name), depth + 1)
        return found

    def _items(self, place: str, depth: int) -> Iterator[Tree]:
        for number in count():
            word, line = next(self._words)
            if word == "]":
                return
            yield self._tree(word, line, f"{place}[{number}]", depth + 1)


def _json_words(text: str) -> Iterator[tuple[str, int]]:
    """Brackets and values with their lines."""
    line, counted = 1, 0
    for match in _JSON_TOKEN.finditer(text):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        yield match[0], line


class _Counted:
    """Converts YAML nodes into trees and counts them: an alias is expanded at every place."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._nodes = 0

    def tree(self, node: Any, place: str, depth: int) -> Tree:
        import yaml

        line = node.start_mark.line + 1
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise _error(self._file, line, "aliases or nesting make too much of this file")
        if isinstance(node, yaml.MappingNode):
            self._require_plain(node, line)
            return Tree(place=place, file=self._file, line=line, fields=self._fields(node, place, depth))
        if isinstance(node, yaml.SequenceNode):
            self._require_plain(node, line)
            items = (self.tree(item, f"{place}[{n}]", depth + 1) for n, item in enumerate(node.value))
            return Tree(place=place, file=self._file, line=line, items=tuple(items))
        return Tree(place=place, file=self._file, line=line, is_scalar=True, scalar=self._scalar(node, line))

    def _fields(self, node: Any, place: str, depth: int) -> dict[str, Tree]:
        merged: dict[str, Tree] = {}
        own: dict[str, Tree] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == _MERGE:
                for tree in self._merged(value, place, depth):
                    merged = {**tree.fields, **merged}
                continue
            name = self._scalar(key, line) if not isinstance(key.value, list) else None
            if name is None:
                raise _error(self._file, line, "a name of a field has to be text")
            if name in own:
                raise _error(self._file, line, f"{name!r} occurs twice here")
            own[name] = self.tree(value, _below(place, name), depth + 1)
        return {**merged, **own}

    def _merged(self, node: Any, place: str, depth: int) -> Iterator[Tree]:
        parts: Sequence[Any] = node.value if type(node).__name__ == "SequenceNode" else (node,)
        for part in parts:
            yield self.tree(part, place, depth + 1)

    def _require_plain(self, node: Any, line: int) -> None:
        if node.tag not in (f"{_YAML_WITHOUT_KIND}map", f"{_YAML_WITHOUT_KIND}seq"):
            raise _error(self._file, line, f"the tag {node.tag} has no place here")

    def _scalar(self, node: Any, line: int) -> str | None:
        from yaml.constructor import ConstructorError, SafeConstructor

        kind = node.tag.removeprefix(_YAML_WITHOUT_KIND)
        if kind == "null":
            return None
        if kind == "bool":
            return "true" if node.value.lower() in ("true", "yes", "on") else "false"
        if kind == "int":
            try:
                return str(SafeConstructor().construct_yaml_int(node))
            except (ValueError, ConstructorError) as error:
                raise _error(self._file, line, "not a number") from error
        if kind in ("str", "float", "timestamp", "value"):
            return str(node.value)
        raise _error(self._file, line, f"the tag {node.tag} has no place here")


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _error(file: str, line: int, problem: str) -> ConfigError:
    where = f"{file}:{line}" if line else file
    return ConfigError(f"{where}: {problem}", metadata={"file": file, "line": str(line)})


# A properties file as values of the Helm chart (deploy/kubernetes/chart). Pure.

_SECRET: Final = re.compile(re.escape(DEFAULT_SECRETS_DIR) + r"/([a-z0-9.-]+)")


def helm_values(properties: str) -> str:
    """Values with the file in `properties` and each Secret that it refers to in `secrets`. How the services
    know each other is not said: the chart asks for it. Comments stay out: the report has them, and to the
    chart a word such as `keystore.key:` in them looks like a secret. So does what the chart itself writes
    where it mounts Secrets: preflight would name it as written twice."""
    kept = [line for line in properties.splitlines() if not line.startswith("#")]
    secrets = sorted(set(_SECRET.findall("\n".join(kept))))
    if secrets and f"config.providers={SECRETS}" in kept:
        kept = [line for line in kept if not line.startswith("config.providers")]
    lines = "\n".join(kept).strip().splitlines()
    return "\n".join(
        [
            "# Choose one: security.tls.secretName, or security.insecure=true (docs/kubernetes.md).",
            f"secrets: [{', '.join(secrets)}]",
            "tools: {enabled: true}",
            "properties: |",
            *(f"  {line}" if line else "" for line in lines),
            "",
        ]
    )
