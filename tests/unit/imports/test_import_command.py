"""`twinlog convert`: a file that others cannot read, never overwritten unasked, and a report."""

import json
import stat
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator
from typer.testing import CliRunner

from twinlog.cli import app
from unit.imports.estates import STRIMZI_V1

CHART = Path(__file__).parents[3] / "deploy" / "kubernetes" / "chart"
TOPICS = "Current serving topics: [orders]"
PLACES = ["--source", "A=a:9092", "--target", "B=b:9092", "--group", "g"]


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    path = tmp_path / "topics.txt"
    path.write_text(TOPICS)
    return path


def test_the_file_goes_to_stdout_and_the_report_aside(topics: Path) -> None:
    answer = CliRunner().invoke(app, ["convert", str(topics), *PLACES])

    assert answer.exit_code == 0, answer.output
    assert "A->B.topics=orders" in answer.stdout
    assert "0 impossible" not in answer.stdout
    assert "0 impossible" in answer.stderr


def test_a_file_is_written_for_its_owner_alone_and_replaced_only_when_asked(topics: Path) -> None:
    to = topics.parent / "mm2.properties"
    command = ["convert", str(topics), *PLACES, "--to", str(to)]

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
    command = ["convert", str(mapping), "--format", "ureplicator", *PLACES, "-o", "json"]

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
    answer = CliRunner().invoke(app, ["convert", *arguments], input=TOPICS)
    assert answer.exit_code == 2
    assert word in answer.output


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"kind: x\nname: \xff\n")

    answer = CliRunner().invoke(app, ["convert", str(path)])

    assert answer.exit_code == 2
    assert "latin.yaml:2" in answer.output


def test_values_for_the_chart_have_the_file_and_the_secrets_that_it_refers_to(tmp_path: Path) -> None:
    mirror = Path(__file__).parent / "hold_out" / "strimzi-hub.yaml"
    to, values = tmp_path / "mm2.properties", tmp_path / "values.yaml"

    answer = CliRunner().invoke(app, ["convert", str(mirror), "--to", str(to), "--to-helm", str(values)])

    assert answer.exit_code in (0, 1), answer.output
    found = yaml.safe_load(values.read_text())
    there = [line for line in to.read_text().splitlines() if not line.startswith("#")]
    of_chart = [line for line in there if line.startswith("config.providers")]
    assert of_chart, "for the file beside the values"
    kept = [line for line in there if line not in of_chart]
    assert found["properties"].splitlines() == "\n".join(kept).strip().splitlines()
    assert found["secrets"] == ["apac-user", "emea-ca", "emea-user"]
    assert found["tools"] == {"enabled": True}
    assert f"{values} is written" in answer.stdout
    assert "mount the Secret apac-user" in answer.stdout, "for the file beside the values"
    alone = CliRunner().invoke(app, ["convert", str(mirror), "--to-helm", str(values), "--force"])
    assert "the chart mounts the Secret apac-user" in alone.stdout
    assert "mount the Secret" not in alone.stdout
    schema = json.loads((CHART / "values.schema.json").read_text())
    Draft7Validator(schema).validate({**yaml.safe_load((CHART / "values.yaml").read_text()), **found})


def test_what_somebody_has_to_read_stands_last(tmp_path: Path) -> None:
    mirror = Path(__file__).parent / "hold_out" / "strimzi-hub.yaml"
    answer = CliRunner().invoke(app, ["convert", str(mirror), "--to", str(tmp_path / "mm2.properties")])
    *lines, _ = answer.stdout.splitlines()
    fates = list(dict.fromkeys(line[:11].strip() for line in lines))
    assert fates == [fate for fate in ("mapped", "ignored", "to do", "impossible") if fate in fates]
    assert "to do" in fates


def test_what_the_chart_cannot_have_is_said_in_its_own_words(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror.yaml"
    mirror.write_text(
        STRIMZI_V1.replace("client.rack: zone-1", 'client.rack: "${env:RACK}"')
        + "  externalConfiguration: {env: [{name: RACK}]}\n  template: {pod: {}}\n"
    )

    answer = CliRunner().invoke(app, ["convert", str(mirror), "--to-helm", str(tmp_path / "values.yaml")])

    assert "${secrets:/etc/twinlog/secrets/NAME:KEY}" in answer.stdout
    assert "image.pullSecrets" in answer.stdout
    assert "the variable RACK" not in answer.stdout, "pods of the chart have none"


def test_a_pipe_that_brought_nothing_is_said_to_be_empty() -> None:
    answer = CliRunner().invoke(app, ["convert", "-"], input="")

    assert answer.exit_code == 2
    assert "stdin: it is empty" in answer.output
