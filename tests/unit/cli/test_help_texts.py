"""What `--help` of each command shows is what its author wrote."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from twinlog.cli import COMMANDS
from twinlog.cli.common.lazy import load
from unit.cases import about

PREFORMATTED = "\b"


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands(each, f"{path} {name}")


EVERY = [each for name, entry in COMMANDS.items() for each in _commands(load(name, entry), name)]


def test_lines_of_a_paragraph_flow_together() -> None:
    for path, command in EVERY:
        with about(path):
            paragraphs = (command.help or "").split("\n\n")
            assert [each for each in paragraphs if "\n" in each and not each.startswith(PREFORMATTED)] == []


def test_nothing_in_brackets_is_taken_for_markup() -> None:
    for path, command in EVERY:
        with about(path):
            for shown in (command.help, *(getattr(each, "help", None) for each in command.params)):
                text = Text.from_markup(shown or "")
                assert text.spans == []


def test_the_page_names_the_package_it_needs() -> None:
    command = load("ui", COMMANDS["ui"])
    assert "twinlog[ui]" in Text.from_markup(command.help).plain
