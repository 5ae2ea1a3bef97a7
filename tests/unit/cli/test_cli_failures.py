"""How commands fail: the same exit codes in every form, and the form that was asked for."""

import contextvars
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from twinlog.cli import app


def invoke(words: list[str]) -> Any:
    """As a process of its own: what one command notes of its options is not seen by another test."""
    return contextvars.Context().run(CliRunner().invoke, app, words)


def test_an_error_of_a_command_that_answers_in_json_is_json_too(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A B\n")
    answer = invoke(["preflight", str(file), "-o", "json"])
    assert (answer.exit_code, answer.stdout) == (2, "")
    told = json.loads(answer.stderr)
    assert told["reason"] == "INVALID_CONFIG"
    assert "write commas between aliases, as A, B" in told["error"]
    assert told["metadata"]["key"] == "clusters"


def test_an_error_for_people_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A B\n")
    answer = invoke(["preflight", str(file)])
    assert answer.exit_code == 2
    assert answer.stderr.startswith(f"error: {file}:1: clusters: ")


def test_preflight_and_run_refuse_the_same_file_when_strict(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
        "A->B.topcis = orders\n"
    )
    answers = [invoke([command, str(file), "--strict"]) for command in ("preflight", "run")]
    assert [answer.exit_code for answer in answers] == [2, 2]
    assert answers[0].stderr == answers[1].stderr
    assert "A->B.topcis: unknown key; did you mean A->B.topics?" in answers[0].stderr
