"""How commands fail: the same exit codes in every form, and the form that was asked for."""

import contextvars
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import typer
from typer.testing import CliRunner

import twinlog.cli
from twinlog.cli import COMMANDS, app, main
from twinlog.cli.common.failures import ANSWERS_IN_JSON, FAILED, RUN, answers_in_json, told_failures
from twinlog.cli.common.fields import print_json
from twinlog.cli.common.lazy import load
from unit.cases import about


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


def test_what_a_command_logs_is_no_part_of_its_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also Spark, which it starts, logs so."""
    monkeypatch.setattr(sys, "argv", ["twinlog", "--version"])
    context = contextvars.copy_context()
    with pytest.raises(SystemExit):
        context.run(main)
    capsys.readouterr()
    log = structlog.get_logger("twinlog_source.pipeline.runner")

    async def work() -> None:
        log.info("spark_started")
        log.warning("spark_lost")
        logging.getLogger("twinlog_source.task").error("java.lang.IllegalStateException")
        print_json({"ok": True})

    try:
        context.run(context[RUN], work())
    finally:
        structlog.reset_defaults()
    told = capsys.readouterr()
    assert json.loads(told.out) == {"ok": True}
    assert "spark_lost" in told.err
    own_loops = [
        file
        for file in Path(twinlog.cli.__file__).parent.rglob("*.py")
        if "asyncio.run(" in file.read_text() and file.name != "failures.py"
    ]
    assert own_loops == [], "run it with RUN"


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
    assert answers[0].stderr.splitlines()[:-1] == answers[1].stderr.splitlines()[:-1]
    assert "A->B.topcis: unknown key; did you mean A->B.topics?" in answers[0].stderr


def test_the_commands_that_grant_rights_are_a_document_too(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
    )
    answer = invoke(["preflight", str(file), "--acls", "-o", "json"])
    assert answer.exit_code == 0
    commands = json.loads(answer.stdout)
    lines = invoke(["preflight", str(file), "--acls"]).stdout.splitlines()
    assert [each["command"] for each in commands] == [line for line in lines if not line.startswith("#")]
    assert commands[0]["command"].startswith("kafka-acls.sh --bootstrap-server ")
    purposes = dict.fromkeys(each["purpose"] for each in commands)
    assert [f"# {purpose}:" for purpose in purposes if purpose] == [
        line for line in lines if line.startswith("#")
    ]
    assert "" in purposes


def test_each_line_that_cannot_be_translated_is_a_document_too(tmp_path: Path) -> None:
    file, target = tmp_path / "offsets.csv", tmp_path / "moved.csv"
    file.write_text("orders,zero,5\norders,0,-7\n")
    words = ["translate", "--from", str(file), "--to", str(target)]
    answer = invoke([*words, "-o", "json"])
    assert answer.exit_code == 1
    assert json.loads(answer.stdout) == []
    told = [json.loads(line) for line in answer.stderr.splitlines()]
    assert [each["reason"] for each in told] == ["INVALID_CONFIG"] * 3
    assert [each["metadata"].get("line") for each in told] == ["1", "2", None]
    assert told[0]["error"].startswith(f"{file}:1: ")
    assert told[2]["error"] == f"{target} was not written"
    assert not target.exists()
    lines = invoke(words).stderr.splitlines()
    assert lines == [each["error"] for each in told], "for people a line is enough"


TOO_LARGE = "99999999999999999999"


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["pause", "A->B", "--topic", "orders", "--partition", "3000000000"], "--partition"),
        (["gaps", "ack", "A->B", "--topic", "orders", "--partition", "0", "--from", TOO_LARGE], "--from"),
        (["positions", "set", "A->B", "--topic", "orders", "--to", TOO_LARGE], "--to"),
        (["positions", "set", "A->B", "--topic", "orders", "--to=-999999d"], "--to"),
        (["positions", "set", "A->B", "--to", "latest"], "--yes"),
        (["positions", "set", "A->B", "--topic", "orders", "--to", "1969-12-31T00:00:00Z"], "--to"),
        (["translate", "A->B", f"orders:0:{TOO_LARGE}"], "OFFSET"),
        (["translate", "A->B", "orders:3000000000:5"], "OFFSET"),
        (["translate", "A->B", "orders:0@-99999999999999999d"], "OFFSET"),
        (["translate", "A->B", "orders:0:" + "9" * 5_000], "OFFSET"),
        (["failover", "run", "A->B", "--wait", "inf"], "--wait"),
        (["verify", "A->B", "--config", "{file}", "--from", "-99999999999999999d"], "--from"),
        (["verify", "A->B", "--config", "{file}", "--to", TOO_LARGE], "--to"),
        (["verify", "A->B", "--config", "{file}", "--parallel", "0"], "--parallel"),
        (["verify", "A->B", "--config", "{file}", "--partition", "-1"], "--partition"),
        (["verify", "A->B", "--config", "{file}", "--wait", "nan"], "--wait"),
        (["verify", "A->B", "--config", "{file}", "--wait", "inf"], "--wait"),
        (
            ["verify", "A->B", "--config", "{file}", "--max-bytes-per-second", "9" * 5_000],
            "--max-bytes-per-second",
        ),
        (["copy", "A->B", "--config", "{file}", "--until", f"orders:0={TOO_LARGE}"], "--until"),
        (["copy", "A->B", "--config", "{file}", "--until", "orders:3000000000=1"], "--until"),
        (["pause", "A->B", "--no-such-option"], "--no-such-option"),
        (["no-such-command"], None),
    ],
)
def test_a_number_that_nothing_can_hold_is_wrong_use_in_the_form_of_the_answer(
    words: list[str], key: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n")
    words = [str(file) if word == "{file}" else word for word in words]
    answer = invoke([*words, "-o", "json"])
    assert (answer.exit_code, answer.stdout) == (2, ""), answer.stderr
    told = json.loads(answer.stderr)
    assert (told["reason"], told["metadata"].get("key")) == ("INVALID_CONFIG", key)
    assert len(told["error"]) < 1_000
    assert "Traceback" not in invoke(words).stderr


def every_command(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for inner, each in getattr(command, "commands", {}).items():
        yield from every_command(f"{name} {inner}", each)


def test_every_number_of_a_command_line_has_its_bounds() -> None:
    for name in sorted(COMMANDS):
        with about(name):
            for command, found in every_command(name, load(name, COMMANDS[name])):
                for param in found.params:
                    if re.search(r"\b(int|float)\b", str(param.type_descriptor.annotation)):
                        kept = param.type_descriptor.parameter_info
                        assert None not in (kept.min, kept.max), f"{command} {param.opts}"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["pause", "A->B", "orders"], "--topic"),
        (["resume", "A->B", "orders", "3"], "--topic"),
        (["positions", "get", "A->B", "orders"], "--topic"),
        (["verify", "A->B", "orders"], "--topic"),
        (["throttle", "A->B", "orders"], "--topic"),
        (["throttle", "A->B", "orders", "20M"], "--topic"),
        (["gaps", "A->B", "orders"], "--topic"),
        (["failover", "plan", "A->B", "orders"], "--group"),
    ],
)
def test_a_surplus_word_is_told_with_the_option_that_names_it(words: list[str], option: str) -> None:
    for form in ([], ["-o", "json"]):
        answer = invoke([*words, *form])
        assert (answer.exit_code, answer.stdout) == (2, "")
        assert option in answer.stderr
        assert "orders" in answer.stderr


@pytest.mark.parametrize(("command", "failed"), [("verify", 3), ("pause", 1)])
@pytest.mark.parametrize("in_json", [False, True])
def test_what_nobody_expected_is_told_and_is_no_answer(
    command: str, failed: int, in_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify` ends with 1 only where something differs."""

    def run() -> int:
        FAILED.set(COMMANDS[command].failed)
        ANSWERS_IN_JSON.set(in_json)
        with pytest.raises(typer.Exit) as ended, told_failures():
            raise ExceptionGroup("tasks", [ZeroDivisionError("by zero")])
        return ended.value.exit_code

    assert contextvars.Context().run(run) == failed
    told = capsys.readouterr().err
    if in_json:
        document = json.loads(told)
        assert document["reason"] == "INTERNAL"
        assert "ZeroDivisionError" in document["metadata"]["traceback"]
    else:
        assert "Traceback (most recent call last)" in told
        assert "error: unexpected ZeroDivisionError: by zero" in told


@pytest.mark.parametrize(
    ("words", "json_wanted"),
    [
        (["verify", "-o", "json"], True),
        (["verify", "-ojson"], True),
        (["verify", "--output=json"], True),
        (["verify", "-o", "json", "-o", "table"], False),
        (["verify", "--", "-o", "json"], False),
        (["verify", "-o"], False),
        ([], False),
    ],
)
def test_the_form_of_the_answer_is_known_of_a_command_line_that_is_wrong(
    words: list[str], json_wanted: bool
) -> None:
    assert answers_in_json(words) is json_wanted


@pytest.mark.parametrize("kind", ["failover", "failback"])
def test_a_move_that_cannot_ask_is_refused_unless_it_need_not(kind: str) -> None:
    """stdin is no terminal: cron, CI, ssh without -t."""
    answer = invoke([kind, "run", "A->B", "-o", "json"])
    assert answer.exit_code == 2
    assert json.loads(answer.stderr)["metadata"]["key"] == "--yes"


@pytest.mark.parametrize("command", ["preflight", "adopt"])
def test_a_file_that_the_environment_names_is_checked_without_an_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A B\n")
    monkeypatch.setenv("TWINLOG_CONFIG", str(file))
    answer = invoke([command])
    assert answer.exit_code == 2
    assert answer.stderr.startswith(f"error: {file}:1: clusters: ")
    assert "Missing argument" not in answer.stderr
