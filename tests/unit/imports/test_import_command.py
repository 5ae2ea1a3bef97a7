"""`twinlog import`: a file that others cannot read, never overwritten unasked, and a report."""

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinlog.cli import app

TOPICS = "Current serving topics: [orders]"
PLACES = ["--source", "A=a:9092", "--target", "B=b:9092", "--group", "g"]


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    path = tmp_path / "topics.txt"
    path.write_text(TOPICS)
    return path


def test_the_file_goes_to_stdout_and_the_report_aside(topics: Path) -> None:
    answer = CliRunner().invoke(app, ["import", str(topics), *PLACES])

    assert answer.exit_code == 0, answer.output
    assert "A->B.topics=orders" in answer.stdout
    assert "0 impossible" not in answer.stdout
    assert "0 impossible" in answer.stderr


def test_a_file_is_written_for_its_owner_alone_and_replaced_only_when_asked(topics: Path) -> None:
    to = topics.parent / "mm2.properties"
    command = ["import", str(topics), *PLACES, "--to", str(to)]

    assert CliRunner().invoke(app, command).exit_code == 0
    assert stat.S_IMODE(to.stat().st_mode) == 0o600
    to.write_text("kept")
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "--force" in refused.output
    assert to.read_text() == "kept"
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0
    assert "A->B.topics=orders" in to.read_text()
    assert sorted(path.name for path in to.parent.iterdir()) == ["mm2.properties", "topics.txt"]


def test_the_report_is_json_when_asked_and_the_exit_code_tells_what_is_impossible(tmp_path: Path) -> None:
    mapping = tmp_path / "mapping"
    mapping.write_text("orders orders2 orders3\npayments\n")
    command = ["import", str(mapping), "--format", "ureplicator", *PLACES, "-o", "json"]

    answer = CliRunner().invoke(app, command)

    assert answer.exit_code == 1
    told = json.loads(answer.stdout)
    assert told["complete"] is False
    assert "A->B.topics=payments" in told["properties"]
    [line] = [each for each in told["report"] if each["fate"] == "impossible"]
    assert (line["place"], line["line"]) == ("orders", 1)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["no-such-file"], "cannot be read"),
        (["-", "--format", "xml"], "--format"),
        (["-", "--mm2-version", "new"], "--mm2-version"),
    ],
)
def test_wrong_use_is_exit_code_2(arguments: list[str], word: str) -> None:
    answer = CliRunner().invoke(app, ["import", *arguments], input=TOPICS)
    assert answer.exit_code == 2
    assert word in answer.output


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"kind: x\nname: \xff\n")

    answer = CliRunner().invoke(app, ["import", str(path)])

    assert answer.exit_code == 2
    assert "latin.yaml:2" in answer.output
