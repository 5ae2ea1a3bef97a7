"""What can be done for a difference: a log is only appended to."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from twinlog.cli import app
from twinlog.cli.verify.repair import next_steps
from twinlog.cli.verify.repairing import Repaired
from twinlog.errors import ConfigError
from twinlog.verify.repair import Action, remedies, what_was_not_seen


def report(*differences: tuple[str, int | None, int | None], compacted: bool = False) -> dict[str, Any]:
    return {
        "flow": "A->B",
        "partitions": [
            {
                "topic": "orders",
                "partition": 3,
                "target_topic": "A.orders",
                "target_compacted": compacted,
            }
        ],
        "differences": [
            {
                "topic": "orders",
                "partition": 3,
                "kind": kind,
                "source_offset": source,
                "target_offset": target,
                "count": 2,
            }
            for kind, source, target in differences
        ],
    }


@pytest.mark.parametrize(
    ("told", "action", "offset"),
    [
        (report(("MISSING", 70, None), ("MISSING", 90, None)), Action.COPY_FROM, 70),
        (report(("MISSING", 7, 7)), Action.NEW_COPY, None),
        (report(("MISSING", 7, 7), ("CHANGED", 5, 5), compacted=True), Action.COPY_AGAIN, 5),
        (report(("FOREIGN", 7, 7), compacted=True), Action.NEW_COPY, None),
        (report(("DUPLICATE", 7, 8)), Action.NEW_COPY, None),
        (report(("FOREIGN", None, 8)), Action.NEW_COPY, None),
    ],
)
def test_each_difference_has_the_remedy_that_heals_it(
    told: dict[str, Any], action: Action, offset: int | None
) -> None:
    (remedy,) = remedies(told)
    assert (remedy.action, remedy.offset) == (action, offset)
    assert remedy.differences == 2 * len(told["differences"])
    assert any("twinlog positions set 'A->B' --topic orders" in command for command in remedy.commands)


def test_a_record_with_another_key_stays_in_a_compacted_copy_whatever_is_copied_again() -> None:
    told = report(("CHANGED", 5, 5), ("MISSING", 7, 7), compacted=True)
    told["differences"][0]["changed"] = ["value", "timestamp"]
    assert [each.action for each in remedies(told)] == [Action.COPY_AGAIN]
    told["differences"][0]["changed"] = ["key"]
    assert [each.action for each in remedies(told)] == [Action.NEW_COPY]


def test_what_only_the_copy_holds_keeps_it_from_being_made_again() -> None:
    told = report(("MISSING", 7, 7))
    (remedy,) = remedies(told)
    assert not remedy.holds_older
    told["not_compared"] = [{"topic": "orders", "partition": 9, "reason": "SOURCE_RETENTION"}]
    (remedy,) = remedies(told)
    assert remedy.holds_older, "the topic is one"
    assert "the source no longer has" in remedy.why
    told["not_compared"] = [{"topic": "payments", "partition": 3, "reason": "SOURCE_RETENTION"}]
    (remedy,) = remedies(told)
    assert not remedy.holds_older


@pytest.mark.parametrize(
    ("told", "begin", "end", "action"),
    [
        (report(("MISSING", 70, None)), 100, 200, Action.NEW_COPY),
        (report(("CHANGED", 70, 7), compacted=True), 100, 200, Action.NEW_COPY),
        (report(("MISSING", 70, None)), 0, 50, Action.COPY_FROM),
    ],
)
def test_nothing_is_copied_again_by_what_later_records_were_changed_with(
    told: dict[str, Any], begin: int, end: int, action: Action
) -> None:
    other = {"topic": "orders", "partition": 3, "reason": "OTHER_TRANSFORMS"}
    told["not_compared"] = [{**other, "from_offset": begin, "to_offset": end}]
    (remedy,) = remedies(told)
    assert remedy.action is action
    assert ("other transforms" in remedy.why) is (action is Action.NEW_COPY)


def test_an_equal_copy_needs_nothing() -> None:
    assert remedies(report()) == []


@pytest.mark.parametrize("topic", ["orders", "orders-eu"])
def test_nothing_is_copied_again_that_would_go_into_other_topics_too(topic: str) -> None:
    told = report(("MISSING", 70, None))
    told["partitions"].append(
        {
            **told["partitions"][0],
            "topic": "orders-eu",
            "target_topic": "A.orders-eu",
            "routed_from": "orders",
        }
    )
    told["differences"][0]["topic"] = topic
    with pytest.raises(ConfigError, match="its other routes"):
        remedies(told)


def test_what_is_no_report_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a report"):
        remedies({"flow": "A->B"})


def test_the_command_reads_the_report_alone(tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    file.write_text(json.dumps(report(("MISSING", 70, None))))
    answer = CliRunner().invoke(app, ["repair", "--from-report", str(file), "--dry-run", "-o", "json"])
    assert answer.exit_code == 0
    assert json.loads(answer.stdout)[0]["action"] == "COPY_FROM"
    answer = CliRunner().invoke(app, ["repair", "--from-report", str(file)])
    assert answer.exit_code == 2
    assert "--dry-run" in answer.stderr, "without a properties file nothing can be done"
    file.write_text(json.dumps(report()))
    answer = CliRunner().invoke(app, ["repair", "--from-report", str(file)])
    assert answer.exit_code == 0, "there is nothing to repair"


def test_nothing_that_deletes_is_proposed_for_a_copy_that_may_be_equal_by_now() -> None:
    found = remedies(report(("FOREIGN", 7, 7)))
    (line, *commands) = next_steps(found, (), flow="A->B")
    assert "--new-copies" in line
    assert any("delete A.orders" in command for command in commands)
    outdated = Repaired(applied=False, is_outdated=True, reason="NOT_REPAIRED")
    assert next_steps(found, [outdated], flow="A->B") == ["twinlog verify 'A->B' --report FILE"]
    assert next_steps(found, [Repaired(applied=True)], flow="A->B") == []


def test_nothing_that_deletes_is_proposed_for_what_only_the_copy_holds() -> None:
    told = report(("FOREIGN", 7, 7))
    told["not_compared"] = [{"topic": "orders", "reason": "SOURCE_RETENTION"}]
    assert next_steps(remedies(told), (), flow="A->B") == []


def test_the_commands_for_a_topic_are_printed_once() -> None:
    told = report(("FOREIGN", 7, 7))
    told["partitions"].append({**told["partitions"][0], "partition": 4})
    told["differences"].append({**told["differences"][0], "partition": 4})
    commands = next_steps(remedies(told), (), flow="A->B")
    assert len(commands) == len(set(commands)) == 5


@pytest.mark.parametrize("reason", ["KAFKA_TIMEOUT", "CORRUPT_BATCH", "TARGET_OPEN_TRANSACTION"])
def test_a_copy_that_could_not_be_read_may_hold_what_the_source_has_no_more(reason: str) -> None:
    """Another partition of the topic: all of them are deleted together."""
    known = [
        {"topic": "orders", "partition": 1, "reason": each, "detail": ""}
        for each in ("NOT_COPIED_YET", "KNOWN_GAP", "TARGET_RETENTION", "TOO_DIFFERENT")
    ]
    failed = {"topic": "orders", "partition": 2, "reason": reason, "detail": "B is away"}

    def said(*not_compared: dict[str, Any], source_from: int) -> str | None:
        compared = {
            "topic": "orders",
            "partition": 2,
            "source_from": source_from,
            "source_to": source_from + 9,
        }
        return what_was_not_seen({"partitions": [compared], "not_compared": [*not_compared]})

    assert said(*known, source_from=7) is None
    assert said(*known, failed, source_from=7) == f"orders-2: {reason} B is away"
    assert said(failed, source_from=0) is None, "the source has all that it ever had"
    flow = {"topic": None, "partition": None, "reason": reason, "detail": ""}
    assert said(flow, source_from=0) == reason


@pytest.mark.parametrize(
    "told",
    [
        report(("MISSING", None, None)),
        report(("MISSING", None, 5), ("MISSING", 7, 5), compacted=True),
        report(("MISSING", 1 << 63, None)),
        report(("MISSING", -1, None)),
        report() | {"partitions": {"orders": 3}},
        report() | {"differences": 7},
    ],
)
def test_what_no_verification_wrote_is_no_report(told: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="not a report"):
        remedies(told)


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"flow": 3, "partitions": 4}'])
def test_the_file_that_is_no_report_is_named(text: str, tmp_path: Path) -> None:
    """And not the properties file as what to check next."""
    file = tmp_path / "other.json"
    file.write_text(text)
    command = [
        "repair",
        "--from-report",
        str(file),
        "--dry-run",
        "--config",
        str(tmp_path / "mm2.properties"),
    ]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 2
    assert answer.stderr.startswith(f"error: {file}: ")
    assert "KeyError" not in answer.stderr
    assert answer.stderr.rstrip().endswith("next: twinlog repair --help")


def test_a_report_of_lists_within_lists_is_wrong_use(tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text("[" * 100_000)
    answer = CliRunner().invoke(app, ["repair", "--from-report", str(file), "--dry-run"])
    assert (answer.exit_code, "not JSON" in answer.stderr) == (2, True)
