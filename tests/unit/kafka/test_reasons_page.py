"""docs/reasons.md is what the table says, and the table holds every reason that the code gives."""

import ast
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import twinlog.api
from twinlog.reasons import KAFKA, OWN
from twinlog.reasons.page import tables
from twinlog.text_tables import renewed

ROOT = Path(__file__).parents[3]
WORD = re.compile(r"[A-Z][A-Z0-9]+(_[A-Z0-9]+)*")
OF_ISSUES = {"bad", "_of", "_refusal"}
"""The functions that make an issue of a verdict, or refuse a request."""
SHOWN = ("Reason", "State", "Verdict", "Action", "Outcome", "Kind", "Basis", "Lane", "Why")
"""How enums are called whose members stand in a column or field of that name."""
INSIDE = {
    *("ProducerState", "LeaseState", "ConfigSource", "ActionKind", "MoveKind", "RecordKind"),
    *(
        "FilterOutcome",
        "TranslationOutcome",
        "TransactionOutcome",
        "twinlog_checkpoint.translation.walk.Outcome",
    ),
}
"""Seen by no user, or the name of a command."""


GENERATED = ROOT / "src" / "twinlog" / "api"
FOR_TESTS = ROOT / "src" / "twinlog" / "testing"


def sources() -> Iterator[tuple[str, str]]:
    """Text and module."""
    for tree in (ROOT / "src", *(ROOT / "services").iterdir()):
        for path in tree.rglob("*.py"):
            if not {GENERATED, FOR_TESTS} & set(path.parents):
                module = ".".join(path.relative_to(tree).with_suffix("").parts)
                yield path.read_text(encoding="utf-8"), module


def words(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if (
            isinstance(part, ast.Constant)
            and isinstance(part.value, str)
            and WORD.fullmatch(part.value)
            and part.value != "UNSPECIFIED"
        ):
            yield part.value


def given(text: str, module: str) -> Iterator[str]:
    """`reason="X"`, `reason = "X"`, `default_reason = "X"`, `bad(…, "X", …)`, the members of enums that are
    shown, and what the command line calls by its name: `GAPS = "GAPS"`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.keyword) and node.arg == "reason":
            yield from words(node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in OF_ISSUES:
            for argument in node.args:
                yield from words(argument)
        elif isinstance(node, ast.Assign):
            names = ast.unparse(node.targets[0]).strip("()").split(", ")
            if names in (["reason"], ["default_reason"]):
                yield from words(node.value)
            elif module.startswith("twinlog.cli"):
                yield from {name.strip("_") for name in names} & set(words(node.value))
        elif isinstance(node, ast.ClassDef) and is_shown(node.name, module):
            for member in node.body:
                yield from words(member.value) if isinstance(member, ast.Assign) else ()


def is_shown(name: str, module: str) -> bool:
    return name.endswith(SHOWN) and not {name, f"{module}.{name}"} & INSIDE


def of_the_api() -> Iterator[str]:
    for found in pkgutil.walk_packages(twinlog.api.__path__, "twinlog.api."):
        if found.name.endswith("_pb2"):
            for enum in import_module(found.name).DESCRIPTOR.enum_types_by_name.values():
                names = [value.name for value in enum.values]
                prefix = names[0].removesuffix("UNSPECIFIED")
                yield from (
                    (name.removeprefix(prefix) for name in names[1:]) if is_shown(enum.name, "") else ()
                )


def test_the_page_is_the_tables() -> None:
    page = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
    assert page == renewed(page, tables()), ".venv/bin/python -m twinlog.reasons.page docs/reasons.md"


def test_every_reason_of_the_code_is_in_a_table_and_no_other() -> None:
    from_kafka = {reason.name for reason in KAFKA.reasons}
    own = [reason.name for group in OWN for reason in group.reasons]
    used = {reason for text, module in sources() for reason in given(text, module)} | {*of_the_api()}
    used -= {"UNSPECIFIED"}
    assert used - from_kafka - set(own) == set()
    assert set(own) - used == set(), "no longer given"
    assert all(len({each.name for each in group.reasons}) == len(group.reasons) for group in OWN)
