"""Every documented key has a test that sets it and looks at what a client, a broker or a service then does.

`every_key.txt` names that test. It is looked up in its file, and the key has to stand in it, or in what it
uses of the same file: helpers, fixtures and constants.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from twinlog.config.keys.client import EFFECTIVE_BY_CLIENT
from twinlog.config.keys.table import ALL_KEYS
from unit.cases import about

TESTS = Path(__file__).parents[2]

DOCUMENTED = {spec.name for spec in ALL_KEYS if spec.meaning}
OF_ALL_CLIENTS = frozenset[str]().union(*EFFECTIVE_BY_CLIENT.values())


def _entries(text: str) -> list[tuple[str, str, str]]:
    """Key, file and test: lines of keys follow the test that sets them."""
    found: list[tuple[str, str, str]] = []
    file = name = ""
    for line in text.splitlines():
        if line.startswith(" "):
            found += [(key, file, name) for key in line.split()]
        else:
            file, _, name = line.partition("::")
    return found


OF_FLOWS, OF_CLIENTS = map(_entries, Path(__file__).with_name("every_key.txt").read_text().split("\n\n"))
"""The keys of flows and services, and the settings of Kafka clients."""


def test_every_documented_key_has_its_test() -> None:
    assert {key for key, _, _ in OF_FLOWS} == DOCUMENTED
    assert {key for key, _, _ in OF_CLIENTS} == OF_ALL_CLIENTS


def test_the_test_of_a_key_is_there_and_sets_it() -> None:
    for key, file, name in sorted(OF_FLOWS + OF_CLIENTS):
        with about(key, file, name):
            written = "\n".join(_texts_of(TESTS / file, name))
            assert re.search(rf"(?:(?<![\w-])|(?<=\\n)){re.escape(key)}(?=[\"'\s=])", written), (
                f"{file}::{name} does not set {key}"
            )


def _texts_of(file: Path, name: str) -> Iterator[str]:
    """A test and everything of its file that it uses, decorators included."""
    lines, defined = _parsed(file)
    assert name in defined, f"{file.name} has no {name}"
    seen: set[str] = set()
    wanted = [name]
    while wanted:
        each = wanted.pop()
        if each in seen:
            continue
        seen.add(each)
        for node in defined[each]:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            yield from lines[first - 1 : node.end_lineno]
            wanted += [used for used in _names(node) if used in defined]


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.arg):
            yield each.arg


@cache
def _parsed(file: Path) -> tuple[Sequence[str], dict[str, list[ast.stmt]]]:
    """What a file defines at its top and in its classes, by name; constants by the names they are given."""
    source = file.read_text(encoding="utf-8")
    defined: dict[str, list[ast.stmt]] = {}
    module = ast.parse(source)
    statements = list(module.body)
    for statement in statements:
        if isinstance(statement, ast.ClassDef):
            statements += statement.body
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            defined.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    defined.setdefault(target.id, []).append(statement)
    return source.splitlines(), defined
