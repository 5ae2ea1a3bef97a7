"""ARCHITECTURE.md leads to files that exist."""

import re
from pathlib import Path

from unit.cases import about

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
TABLE = PAGE.partition("## Where is it decided")[2]
ROWS = re.findall(r"^\| (.+?) \| (.+?) \|$", TABLE, re.MULTILINE)
ANSWERS = {question: answer for question, answer in ROWS if question != "question"}
SERVICE = re.compile(r"\b(source|checkpoint|heartbeat|configsync)\b")


def paths(answer: str) -> list[Path]:
    """The paths of an answer; one below `services/` leaves its package out."""
    found, package = [], Path()
    for words, path in re.findall(r"([^`]*)`([^`]+)`", answer):
        named = SERVICE.search(words)
        if named is not None:
            package = Path("services", named[1], f"twinlog_{named[1]}")
        found.append(Path(path) if path.startswith(("src/", "proto/")) else package / path)
    return found


def test_each_question_is_answered_by_files_that_exist() -> None:
    for question in ANSWERS:
        with about(question):
            found = paths(ANSWERS[question])
            assert found
            assert [str(path) for path in found if not (ROOT / path).exists()] == []


def test_the_table_answers_twenty_questions_or_more() -> None:
    assert len(ANSWERS) >= 20
