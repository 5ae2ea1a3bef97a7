"""ARCHITECTURE.md leads to files that exist."""

import re
from pathlib import Path

from unit.cases import about

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
PLACES = PAGE.partition("## Where is it decided")[2].split("\n### ")[1:]
MOST_WORDS = 1_800


def answers() -> dict[str, list[Path]]:
    """By question: the paths, which leave out the folder that their heading names."""
    found: dict[str, list[Path]] = {}
    for place in PLACES:
        heading, *lines = place.splitlines()
        folder = ROOT / re.findall(r"`([^`]+)`", heading)[0]
        for question, answer in re.findall(r"^\| (.+?) \| (.*`.+?) \|$", "\n".join(lines), re.MULTILINE):
            assert question not in found
            paths = re.findall(r"`([^`]+)`", answer)
            found[question] = [ROOT / path if path.startswith("proto/") else folder / path for path in paths]
    return found


def test_each_question_is_answered_by_files_that_exist() -> None:
    for question, paths in answers().items():
        with about(question):
            assert [str(path) for path in paths if not path.exists()] == []


def test_the_table_answers_twenty_questions_or_more() -> None:
    assert len(answers()) >= 20


def test_each_path_of_the_six_ways_is_the_end_of_one() -> None:
    ways = PAGE.partition("## Six ways through the code")[2].partition("\n## ")[0]
    files = [str(path) for top in ("src", "services") for path in (ROOT / top).rglob("*.*")]
    for named in re.findall(r"`([^` *]+\.(?:py|txt))`", ways):
        with about(named):
            assert sum(path.endswith(f"/{named}") for path in files) == 1


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= MOST_WORDS
