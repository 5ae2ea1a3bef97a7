"""Every failure ends with the command that helps, and that command exists."""

import contextvars
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from twinlog.cli import app
from twinlog.cli.common.failures import help_after
from twinlog.cli.common.fields import print_rows, table
from twinlog.cli.common.pasteable import (
    GIVEN_ENDPOINTS,
    GIVEN_FILE,
    document,
    next_command,
    pasteable,
    say,
    with_pasteable,
)
from twinlog.cli.verdict.moving import Check
from twinlog.errors import StateError
from twinlog.reasons import known_reasons
from unit.cases import about

REASONS = sorted({*known_reasons(), "GRPC_UNKNOWN", "GRPC_CANCELLED"})
NAMED = {"flow": "A->B", "topic": "orders", "group": "billing"}


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, and its own words."""
    assert words[0] == "twinlog"
    found: Any = typer.main.get_command(app)
    rest = words[1:]
    while rest and not rest[0].startswith("-"):
        below = getattr(found, "get_command", None)
        if below is None:
            break
        found = below(None, rest[0])
        assert found is not None, f"there is no command {rest[0]}"
        rest = rest[1:]
    return found, rest


def test_every_reason_leads_to_a_command_that_exists_with_its_options() -> None:
    for file in ["", "mm2.properties"]:
        for reason in REASONS:
            with about(file, reason):
                told = next_command(reason, NAMED, command="twinlog partitions", file=file)
                command, rest = command_of(shlex.split(told))
                options = {name for parameter in command.params for name in parameter.opts} | {"--help"}
                assert {word for word in rest if word.startswith("-")} <= options
                required = [
                    each for each in command.params if each.param_type_name == "argument" and each.required
                ]
                values = [word for word in rest if not word.startswith("-")]
                assert "--help" in rest or len(values) >= len(required), f"{told} lacks {required}"


def test_what_is_not_named_has_a_place() -> None:
    assert next_command("PAUSED_BY_OPERATOR", {}) == "twinlog resume <A->B>"
    assert next_command("OFFSETS_CONFIGURED", {}) == "twinlog explain topic <TOPIC>"


def test_no_advice_takes_the_properties_file_for_a_file_of_state() -> None:
    for reason in REASONS:
        with about(reason):
            named = next_command(reason, {**NAMED, "state_file": "backup.jsonl"}, file="mm2.properties")
            if named.startswith("twinlog state "):
                assert "mm2.properties" not in named
            assert next_command(reason, {}, file="mm2.properties").count("mm2.properties") <= 1


@pytest.mark.parametrize("reason", ["TOKEN_UNUSABLE", "TOKEN_NEEDS_TLS", "CERTIFICATE_UNUSABLE"])
def test_what_keeps_every_call_from_being_made_leads_to_a_command_that_makes_none(reason: str) -> None:
    assert next_command(reason, {}, command="twinlog status", file="f") == "twinlog preflight f"


@pytest.mark.parametrize("kind", ["failover", "failback"])
@pytest.mark.parametrize("reason", ["KAFKA_UNAVAILABLE", "KAFKA_TIMEOUT", "KAFKA_REFUSED"])
def test_a_move_that_a_cluster_ends_leads_to_what_it_did(kind: str, reason: str) -> None:
    for verb in ("run", "watch"):
        with about(verb):
            command = f"twinlog {kind} {verb}"
            told = next_command(reason, {"flow": "A->B"}, command=command, file="f")
            assert told == f"twinlog {kind} status 'A->B'"
            assert next_command(reason, {"flow": ""}, command=command) == f"twinlog {kind} status"
    assert next_command(reason, {}, command=f"twinlog {kind} plan", file="f") == "twinlog preflight f"


def test_what_ends_a_move_and_has_a_command_of_its_own_keeps_it() -> None:
    named = {"flow": "A->B"}
    told = [
        next_command(reason, named, command="twinlog failover run", file="f")
        for reason in ("MOVE_BLOCKED", "TOKEN_UNUSABLE", "INVALID_CONFIG")
    ]
    assert told == ["twinlog failover plan 'A->B'", "twinlog preflight f", "twinlog preflight f"]


def test_a_name_that_a_shell_would_read_otherwise_is_quoted() -> None:
    told = next_command("OFFSETS_CONFIGURED", {"topic": "a; rm -rf /"})
    assert shlex.split(told) == ["twinlog", "explain", "topic", "a; rm -rf /"]


def test_a_wrong_file_leads_to_preflight_and_a_wrong_option_to_the_help_of_the_command() -> None:
    wrong_file = {"key": "A->B.topics"}
    assert next_command("INVALID_CONFIG", wrong_file, file="f.properties") == "twinlog preflight f.properties"
    wrong_option = next_command("INVALID_CONFIG", {"key": "--topic"}, command="twinlog pause", file="f")
    assert wrong_option == "twinlog pause --help"


def test_a_failure_for_people_ends_with_the_command(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A B\n")
    answer = invoke(["partitions", "--config", str(file)])
    assert answer.exit_code == 2
    assert answer.stderr.splitlines()[-1] == f"next: twinlog preflight {file}"


@pytest.mark.parametrize("in_environment", [False, True])
def test_a_file_that_is_wrong_leads_to_preflight_of_it_and_from_there_only_once_it_is_corrected(
    tmp_path: Path, in_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A B\n")
    if in_environment:
        monkeypatch.setenv("TWINLOG_CONFIG", str(file))
    assert invoke(["run", str(file)]).stderr.splitlines()[-1] == f"next: twinlog preflight {file}"
    told = invoke(["preflight", str(file)]).stderr.splitlines()[-1]
    assert told == f"next: correct that, then twinlog preflight {file}"
    told = json.loads(invoke(["preflight", str(file), "-o", "json"]).stderr)["next"]
    assert told == f"twinlog preflight {file}"


def test_the_flow_that_a_command_was_given_is_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["twinlog", "gaps", "ack", "dc-a->B", "--topic", "lost"])
    error = StateError("no such gap", reason="GAP_UNKNOWN")
    assert help_after(error) == "twinlog gaps 'dc-a->B' --all"
    monkeypatch.setattr("sys.argv", ["twinlog", "gaps", "--topic", "lost"])
    assert help_after(error) == "twinlog gaps <A->B> --all"


def test_a_failure_in_json_has_the_command_as_a_field() -> None:
    answer = invoke(["positions", "get", "nonsense", "-o", "json"])
    assert json.loads(answer.stderr)["next"] == "twinlog positions get --help"


def invoke(words: list[str]) -> Any:
    """As a process of its own: what one command notes of its options is not seen by another test."""
    return contextvars.Context().run(CliRunner().invoke, app, words)


def commands(command: Any, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "list_commands"):
        return [(words, command)]
    return [
        found
        for name in command.list_commands(None)
        for found in commands(command.get_command(None, name), (*words, name))
    ]


ALL = commands(typer.main.get_command(app))


def test_the_flow_is_the_first_argument_and_help_shows_no_other_spelling() -> None:
    for words, command in ALL:
        with about(words, command):
            arguments = [each for each in command.params if each.param_type_name == "argument"]
            takes_flow = ["A->B" in (each.metavar or "") for each in arguments]
            assert not any(takes_flow[1:]), "the flow stands behind something else"
            shown = [each for each in command.params if "--flow" in each.opts and not each.hidden]
            assert shown == [], "help shows two ways to name the flow"
            if any("--flow" in each.opts for each in command.params):
                assert takes_flow[:1] == [True], "there is no argument for the flow"
            metavars = " ".join(each.metavar or "" for each in arguments)
            assert not re.search(r"\bFLOW\b", metavars), "a flow is shown as A->B"


@pytest.fixture
def given() -> None:
    """The running command was told where the services are."""
    GIVEN_FILE.set("my file")
    GIVEN_ENDPOINTS.set(("source=h:1",))


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_a_command_in_a_sentence_asks_the_services_that_the_running_command_asks(
    words: tuple[str, ...], command: Any
) -> None:
    options = {name for parameter in command.params for name in parameter.opts}
    line = shlex.join(["twinlog", *words, "A->B"])
    (told,) = re.findall("`(.+)`", with_pasteable(f"lost; undo: `{line}`, or wait"))
    assert ("--config 'my file'" in told) == ("--config" in options)
    assert ("--endpoint source=h:1" in told) == ("--endpoint" in options)
    assert told.startswith(line)
    assert with_pasteable(f"`{told}`") == f"`{told}`"


@pytest.mark.usefixtures("given")
def test_what_is_no_command_and_what_needs_no_service_stays_as_it_is() -> None:
    for text in ("twinlog gaps", "`kafka-topics.sh --list`", "`twinlog --version`", "`twinlog gaps --help`"):
        assert with_pasteable(text) == text
    assert pasteable("# delete B.orders") == "# delete B.orders"
    assert pasteable("") == ""


def test_a_command_that_is_complete_by_addresses_stays_as_it_is() -> None:
    GIVEN_ENDPOINTS.set(("source=h:1",))
    told = pasteable("twinlog gaps list")
    assert told == pasteable(told) == "twinlog gaps list --endpoint source=h:1"


@pytest.mark.usefixtures("given")
def test_preflight_names_the_file_since_it_finds_none_by_itself() -> None:
    told = with_pasteable("`twinlog preflight` names the right")
    assert told == with_pasteable(told) == "`twinlog preflight 'my file'` names the right"
    GIVEN_FILE.set("")
    assert pasteable("twinlog preflight") == "twinlog preflight FILE"


@pytest.mark.usefixtures("given")
def test_tables_and_lines_complete_their_commands(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(table("why|why"), [{"why": "`twinlog verify A->B`"}])
    say("note: `twinlog verify A->B`")
    assert capsys.readouterr().out.count("`twinlog verify A->B --config 'my file'`") == 2


MISSING = "/nowhere/of/them.properties"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["adopt", MISSING], f"twinlog init {MISSING}"),
        (["convert", MISSING], "twinlog convert --help"),
        (
            ["mirror-maker", "--consumer.config", MISSING, "--producer.config", MISSING, "--include", "a"],
            "twinlog mirror-maker --help",
        ),
    ],
)
def test_a_failure_leads_to_the_file_or_to_the_help_of_the_command_that_failed(
    arguments: list[str], told: str
) -> None:
    assert invoke(arguments).stderr.splitlines()[-1] == f"next: {told}"


def test_a_file_of_another_replicator_leads_to_its_conversion(tmp_path: Path) -> None:
    file = tmp_path / "mirror.yaml"
    file.write_text("apiVersion: kafka.strimzi.io/v1\nkind: KafkaMirrorMaker2\n")
    answer = invoke(["adopt", str(file)])
    assert answer.exit_code == 2
    assert answer.stderr.splitlines()[-1] == f"next: twinlog convert {file} --to mm2.properties"


def test_mirror_makers_dry_run_refuses_what_would_not_start(tmp_path: Path) -> None:
    file = tmp_path / "both.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=g\n")
    both = ["--consumer.config", str(file), "--producer.config", str(file), "--dry-run"]
    answer = invoke(["mirror-maker", *both, "--include", "a("])
    assert answer.exit_code == 2
    assert "not a valid regular expression" in answer.stderr
    assert invoke(["mirror-maker", *both, "--include", "a"]).exit_code == 0


@pytest.mark.usefixtures("given")
def test_a_document_has_the_same_commands() -> None:
    check = Check(title="GAPS", verdict="NO_GO", message="1 gap", command="twinlog gaps 'A->B'")
    assert document(check)["command"] == "twinlog gaps 'A->B' --endpoint source=h:1 --config 'my file'"


def test_a_value_that_is_wrong_on_the_command_line_leads_to_its_help_and_not_to_the_file() -> None:
    for metadata, command in [
        ({"key": "A->B.topics"}, "twinlog rules set"),
        ({"key": "nope"}, "twinlog rules get"),
        ({"field": "scopes"}, "twinlog plan"),
    ]:
        with about(command):
            told = next_command("INVALID_CONFIG", metadata, command=command, file="mm2.properties")
            assert told == f"{command} --help"
