"""`twinlog verify`: what is wrong on the command line is said with exit code 2, before anything is read."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinlog.cli import app

FILE = """
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mm2.properties"
    path.write_text(FILE)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["A->C"], "A->C"),
        (["A-"], "is not a flow"),
        (["A->B", "--from", "yesterday"], "yesterday"),
        (["A->B", "--isolation", "serializable"], "--isolation"),
        (["A->B", "--max-bytes-per-second", "fast"], "--max-bytes-per-second"),
        (["A->B", "--from", "500", "--to", "500"], "--from"),
        (["A->B", "--from", "-1h", "--to", "-2h"], "--from"),
        (["A->B", "--report", "/no/such/directory/report.json"], "no such directory"),
        (["A->B", "--html", "/"], "cannot be written"),
    ],
)
def test_wrong_use_is_named_with_exit_code_2(file: str, arguments: list[str], word: str) -> None:
    answer = CliRunner().invoke(app, ["verify", *arguments, "--config", file, "-o", "json"])
    assert answer.exit_code == 2, answer.output
    assert word in json.loads(answer.stderr)["error"]


def test_a_wrong_isolation_is_named_by_what_asks_before_a_deletion(file: str) -> None:
    wrong = ["--topic", "orders", "--isolation", "serializable"]
    answer = CliRunner().invoke(app, ["safe-to-delete", "A->B", *wrong, "--config", file, "-o", "json"])
    assert answer.exit_code == 2, answer.output
    assert "--isolation" in json.loads(answer.stderr)["error"]


def test_the_properties_file_is_needed() -> None:
    answer = CliRunner().invoke(app, ["verify", "A->B"], env={"TWINLOG_CONFIG": ""})
    assert answer.exit_code == 2
    assert "--config" in answer.stderr
