"""docs/reasons.md is what the tables say, and the tables hold every reason that the code gives."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from twinlog.kafka.errors import CLIENT_REASONS, KAFKA_REASONS
from twinlog.kafka.reasons_page import render_reasons
from twinlog.reasons import REASON_GROUPS

ROOT = Path(__file__).parents[3]
TABLES = ROOT / "src" / "twinlog" / "reasons"
WORD = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
OF_ISSUES = {"bad", "_of"}
"""The functions that make an issue of a verdict."""
NO_REASONS = {"LaneReason"}
"""Why a batch took its lane: no failure, and told in docs/metrics.md."""
GIVEN_BY_POSITION = {
    "PAST_END",
    "SKIPPED_BY_OPERATOR",
    "SOURCE_UNREADABLE",
    "TARGET_UNREADABLE",
    "TOPICS_WAITING",
    "TOO_MANY_WATCHERS",
    "UP_TO_DATE",
}
"""Reasons that no keyword, class or enum shows to be one."""


GENERATED = ROOT / "src" / "twinlog" / "api"
FOR_TESTS = ROOT / "src" / "twinlog" / "testing"


def sources() -> Iterator[str]:
    for tree in (ROOT / "src" / "twinlog", ROOT / "services"):
        for path in tree.rglob("*.py"):
            if not {GENERATED, FOR_TESTS, TABLES} & set(path.parents):
                yield path.read_text(encoding="utf-8")


def words(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and WORD.fullmatch(part.value):
            yield part.value


def given(text: str) -> Iterator[str]:
    """`reason="X"`, `default_reason = "X"`, `bad(…, "X", …)`, and the members of enums of reasons."""
    if "reason" not in text.lower():
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.keyword) and node.arg == "reason":
            yield from words(node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in OF_ISSUES:
            for argument in node.args:
                yield from words(argument)
        elif isinstance(node, ast.ClassDef):
            of_reasons = node.name.endswith("Reason") and node.name not in NO_REASONS
            is_enum = any(ast.unparse(base) == "StrEnum" for base in node.bases)
            for member in node.body:
                if isinstance(member, ast.Assign):
                    names = [ast.unparse(target) for target in member.targets]
                    if names == ["default_reason"] or (is_enum and of_reasons):
                        yield from words(member.value)


def test_the_page_is_the_tables() -> None:
    assert (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8") == render_reasons()


def test_every_reason_of_the_code_is_in_a_table_and_no_other() -> None:
    from_kafka = {reason.name for reason in (*KAFKA_REASONS.values(), *CLIENT_REASONS)}
    own = [reason.name for group in REASON_GROUPS for reason in group.reasons]
    texts = list(sources())
    used = {reason for text in texts for reason in given(text)} | GIVEN_BY_POSITION
    assert used - from_kafka - set(own) == set()
    assert set(own) - used == set(), "no longer given"
    assert all(len({each.name for each in group.reasons}) == len(group.reasons) for group in REASON_GROUPS)
    everything = "".join(texts)
    assert {reason for reason in GIVEN_BY_POSITION if f'"{reason}"' not in everything} == set()
