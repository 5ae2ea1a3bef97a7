"""The supervisor's pure parts: when to restart, how lines are merged."""

import io
import json

import pytest

from twinlog.service.waiting import Backoff
from twinlog.supervisor.log_lines import LogLines, last_words
from twinlog.supervisor.policy import GiveUp, Restart, RestartPolicy
from twinlog.testing.fakes.clock import FakeClock


def _policy() -> RestartPolicy:
    return RestartPolicy(Backoff(initial_seconds=1, max_seconds=4, random=lambda: 1.0))


def test_a_child_that_dies_is_restarted_with_growing_waits_and_reported_in_the_end() -> None:
    policy = _policy()
    steps = [policy.ended(1, ran_seconds=0.5, has_served=False) for _ in range(4)]

    assert [step.after_seconds for step in steps if isinstance(step, Restart)] == [1, 2, 4, 4]
    assert [step.keeps_crashing for step in steps if isinstance(step, Restart)] == [False, False, True, True]


def test_a_child_that_ran_for_long_starts_with_a_fresh_backoff() -> None:
    policy = _policy()
    for _ in range(3):
        policy.ended(137, ran_seconds=1, has_served=True)

    assert policy.ended(1, ran_seconds=61, has_served=True) == Restart(after_seconds=1, crashes_in_a_row=1)


def test_an_end_without_being_asked_is_a_restart_even_with_0() -> None:
    assert isinstance(_policy().ended(0, ran_seconds=1, has_served=False), Restart)


def test_a_refused_configuration_gives_up_only_before_all_have_served() -> None:
    assert _policy().ended(2, ran_seconds=1, has_served=False) == GiveUp(exit_code=2)
    assert isinstance(_policy().ended(2, ran_seconds=1, has_served=True), Restart)


def _lines(format: str) -> tuple[LogLines, io.StringIO]:  # noqa: A002
    stream = io.StringIO()
    return LogLines(stream, format=format, clock=FakeClock()), stream


def test_a_services_line_passes_as_it_is() -> None:
    log, stream = _lines("json")
    log.child_line("source", '{"event": "listening", "port": 5, "service": "source"}')

    assert json.loads(stream.getvalue()) == {"event": "listening", "port": 5, "service": "source"}


def test_what_keeps_serving_services_from_working_is_what_they_said_last_of_clusters() -> None:
    log, _ = _lines("json")
    assert log.obstacles == ""
    away = '{"event": "cluster_unreachable", "cluster": "%s", "reason": "%s"}'
    log.child_line("source", away % ("T", "AUTHENTICATION_FAILED"))
    log.child_line("heartbeat", away % ("S", "KAFKA_TIMEOUT"))
    assert log.obstacles == "KAFKA_TIMEOUT on S, AUTHENTICATION_FAILED on T"
    log.child_line("source", '{"event": "cluster_reachable", "cluster": "S"}')
    assert log.obstacles == "AUTHENTICATION_FAILED on T"


@pytest.mark.parametrize("text", ["WARN NativeCodeLoader: …", "{not json", '{"no": "event"}', "[1]"])
def test_anything_else_becomes_an_output_event(text: str) -> None:
    log, stream = _lines("json")
    log.child_line("source", text)

    line = json.loads(stream.getvalue())
    assert (line["service"], line["event"], line["line"]) == ("source", "output", text)


def test_secrets_in_foreign_lines_are_blanked() -> None:
    log, stream = _lines("json")
    log.child_line("source", "Using password=hunter2 for the store")
    log.event("info", "starting", properties={"sasl.jaas.config": "hunter2"})

    assert "hunter2" not in stream.getvalue()


def test_console_lines_show_time_service_level_event_and_values() -> None:
    log, stream = _lines("console")
    log.child_line(
        "source",
        '{"time": "2026-01-02T03:04:05.6Z", "level": "info", "event": "listening",'
        ' "address": "a b", "port": 5}',
    )

    assert stream.getvalue() == '03:04:05Z source     info    listening address="a b" port=5\n'


def test_a_stream_that_is_gone_does_not_stop_the_run() -> None:
    log, stream = _lines("json")
    stream.close()
    log.event("info", "starting")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "no reason was logged"),
        (['{"event": "spark_started", "level": "info"}'], "no reason was logged"),
        (["just text", '{"event": "spark_started", "level": "info"}'], "just text"),
        (["just text"], "just text"),
        (
            ['{"event": "crashed", "exception": "Traceback\\n  at x\\nValueError: broken"}'],
            "ValueError: broken",
        ),
        (
            ['{"event": "bad", "level": "error", "message": "no"}', '{"event": "stopped", "level": "info"}'],
            "no",
        ),
    ],
)
def test_the_cause_of_a_crash_is_its_last_error(lines: list[str], words: str) -> None:
    assert last_words(lines, 1) == words


def test_the_cause_of_an_end_by_a_signal_is_the_signal() -> None:
    lines = ["a panic", '{"event": "bad", "level": "error", "message": "long ago"}']
    assert last_words(lines, 137).startswith("ended by SIGKILL")
    assert last_words(["a panic"], 134) == "ended by SIGABRT; a panic"
    assert last_words([], 139) == "ended by SIGSEGV; no reason was logged"


def test_what_was_said_of_the_configuration_is_said_once() -> None:
    log, stream = _lines("json")
    log.event("warning", "configuration_notice", key="topcis", line=3, message="unknown key")
    for service in ("source", "checkpoint"):
        log.child_line(
            service, '{"event": "configuration_notice", "key": "topcis", "line": 3, "message": "unknown key"}'
        )
        log.child_line(service, '{"event": "configuration_notice", "key": "x", "line": 4, "message": "no"}')
    assert [json.loads(line)["key"] for line in stream.getvalue().splitlines()] == ["topcis", "x"]


def test_a_line_nested_without_end_is_output_as_any_other() -> None:
    log, stream = _lines("json")
    log.child_line("source", '{"event":' + "[" * 100_000)
    assert json.loads(stream.getvalue())["event"] == "output"
