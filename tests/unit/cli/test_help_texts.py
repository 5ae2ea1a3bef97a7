"""What `--help` of each command shows is what its author wrote."""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

from rich.text import Text
from typer.testing import CliRunner

from twinlog.cli import COMMANDS, app
from twinlog.cli.common.lazy import load
from unit.cases import about
from unit.cli.test_next_command import command_of

PREFORMATTED = "\b"
NARROW = 80


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


def test_a_block_of_lines_is_no_wider_than_a_narrow_terminal() -> None:
    for path, command in EVERY:
        with about(path):
            blocks = [each for each in (command.help or "").split("\n\n") if each.startswith(PREFORMATTED)]
            assert [line for block in blocks for line in block.split("\n") if len(line) > NARROW - 2] == []


def test_examples_stand_at_the_end() -> None:
    for path, command in EVERY:
        with about(path):
            assert not re.search(r"\bExamples?:", command.help or "")


def test_a_value_is_called_what_it_is_and_not_by_its_type() -> None:
    for path, _ in EVERY:
        with about(path):
            text = CliRunner().invoke(app, [*path.split(), "--help"], env={"COLUMNS": str(NARROW)}).output
            assert "--help" in text
            assert "--install-completion" not in text
            assert re.findall(r"Usage:.*(?:\[\[|[{}]).*", text) == [], "brackets around brackets"
            assert re.findall(r"\S*[^\s,;]…", text) == [], "cut, for want of room"
            assert re.findall(r"<(?:bool|str|int|float|path|list)\b.*|<=x<=\d{6,}", text) == []
    assert "<bool>" not in CliRunner().invoke(app, ["--help"]).output


def test_nothing_in_brackets_is_taken_for_markup() -> None:
    for path, command in EVERY:
        with about(path):
            for shown in (command.help, *(getattr(each, "help", None) for each in command.params)):
                text = Text.from_markup(shown or "")
                assert text.spans == []


def test_the_page_names_the_package_it_needs() -> None:
    command = load("ui", COMMANDS["ui"])
    assert "twinlog[ui]" in Text.from_markup(command.help).plain


def test_each_shell_gets_a_script_that_asks_twinlog() -> None:
    for shell in ("bash", "zsh", "fish"):
        script = CliRunner().invoke(app, ["completion", shell]).stdout
        assert "_TWINLOG_COMPLETE" in script
        assert f"complete_{shell}" in script


def test_every_command_shows_how_it_is_called() -> None:
    for name, entry in COMMANDS.items():
        command = load(name, entry)
        with about(name):
            texts = (command.help or "", command.epilog or "", *(each.help or "" for each in _below(command)))
            assert any(f"twinlog {name}" in text for text in texts)
            for below, each in getattr(command, "commands", {}).items():
                shown = f"{each.help} {each.epilog}"
                assert each.hidden or f"twinlog {name} {below}" in shown, below
            assert entry.panel
            for example in entry.examples:
                found, _ = command_of(shlex.split(example))
                options = {option for parameter in found.params for option in parameter.opts}
                assert {word for word in shlex.split(example) if word.startswith("--")} <= options, example


def test_a_mistyped_command_is_told_what_it_may_mean() -> None:
    told = CliRunner().invoke(app, ["stats"])
    assert told.exit_code == 2
    assert "Did you mean 'status'" in told.output


def test_every_reason_is_explained_and_a_mistyped_one_is_told_which_are_like_it() -> None:
    told = CliRunner().invoke(app, ["explain", "reason", "record_too_large", "-o", "json"])
    assert json.loads(told.stdout)["reason"] == "RECORD_TOO_LARGE"
    wrong = CliRunner().invoke(app, ["explain", "reason", "RECORD_TO_LARGE"])
    assert wrong.exit_code == 2
    assert "RECORD_TOO_LARGE" in wrong.output


def _below(command: Any) -> list[Any]:
    return list(getattr(command, "commands", {}).values())


def test_names_of_the_last_release_work_and_no_help_shows_them() -> None:
    for words, now in (
        (("import",), "twinlog convert"),
        (("failover", "abort"), "Give up"),
        (("failback", "attach"), "progress of a running move"),
        (("failover", "cancel"), "Stop a running move"),
    ):
        with about(words):
            answer = CliRunner().invoke(app, [*words, "--help"])
            assert answer.exit_code == 0
            assert now in answer.output
            shown = CliRunner().invoke(app, [*words[:-1], "--help"]).output
            assert f" {words[-1]} " not in shown
