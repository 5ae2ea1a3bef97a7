"""Every guide of docs/migration is run by a test, command for command (tests/e2e/guide.py)."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUIDES = sorted(path.name for path in (ROOT / "docs/migration").glob("*.md") if path.name != "README.md")
TESTS = [
    path
    for tier in ("e2e", "integration")
    for path in sorted((ROOT / "tests" / tier).rglob("test_*.py"))
    if "Guide(" in path.read_text()
]


@pytest.mark.parametrize("page", GUIDES)
def test_a_test_runs_the_commands_of_a_guide_and_is_named_on_it(page: str) -> None:
    text = (ROOT / "docs/migration" / page).read_text()
    named = {ROOT / path for path in re.findall(r"`(tests/\S+\.py)`", text)}
    running = {path for path in TESTS if f'Guide("{page}"' in path.read_text()}
    assert running
    assert running <= named


@pytest.mark.parametrize("page", GUIDES)
def test_a_command_that_asks_the_services_names_their_file(page: str) -> None:
    """Without it a command asks the ports that services have by default."""
    asking = re.findall(
        r"`?twinlog (?:status|verify|pause|positions) [^`\n]*", (ROOT / "docs/migration" / page).read_text()
    )
    assert [command for command in asking if "--config" not in command] == []
