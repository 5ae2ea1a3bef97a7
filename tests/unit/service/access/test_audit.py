"""A line of the audit log is bounded, and no call fails because of it."""

import io
import json
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.configsync.v1 import configsync_service_pb2 as sync
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.service.access.audit import MAX_SHOWN, NOT_SHOWABLE, UNKNOWN_CALLER, Audit, changed
from twinlog.telemetry.logging import configure_logging

Line = Callable[..., dict[str, Any]]


def request(value: str) -> Message:
    return sync.UpdateRulesRequest(changes=[sync.RuleChange(key="topics", value=value)])


NOT_TO_BE_SHOWN = source.AcknowledgeGapsRequest(found_until=Timestamp(seconds=10**15))


@pytest.fixture(params=["info", "warning", "error"])
def line(request: pytest.FixtureRequest, log_stream: io.StringIO) -> Line:
    """The line of a call with this request, which changes this; at every level of the log."""
    configure_logging(service="s", version="1", format="json", level=request.param, stream=log_stream)

    def call(asked: object, change: dict[str, object]) -> None:
        audit = Audit(method="/s/UpdateRules", caller=UNKNOWN_CALLER, peer="ipv4:10.0.0.1:1", request=asked)
        if change:
            changed(before=change.get("before"), after=change.get("after"))
        audit.ended("OK")

    def written(asked: object = None, **change: object) -> dict[str, Any]:
        # In a context of its own, as each call has one: this call is over for the next test.
        copy_context().run(call, asked, change)
        found: dict[str, Any] = json.loads(log_stream.getvalue().splitlines()[-1])
        assert (found["event"], found["method"], found["outcome"]) == ("audit", "UpdateRules", "OK")
        return found

    return written


def test_a_request_is_shown(line: Line) -> None:
    assert line(request("a"))["request"] == {"changes": [{"key": "topics", "value": "a"}]}


def test_a_long_request_is_shown_in_parts(line: Line) -> None:
    """Padding hides no other value."""
    long = request("a" * (MAX_SHOWN + 1))
    long.changes.add(key="twinlog.sync.topic.acls.mode", value="full")  # type: ignore[attr-defined]
    padded, other = line(long)["request"]["changes"]
    assert padded["key"] == "topics"
    assert len(padded["value"]) < 300
    assert other == {"key": "twinlog.sync.topic.acls.mode", "value": "full"}
    many = sync.UpdateRulesRequest(changes=[sync.RuleChange(key="topics", value="a" * 900)] * 10_000)
    assert line(many)["request"]["changes"][-1] == "and 9990 more"


def test_what_cannot_be_shown_is_said_and_fails_nothing(line: Line) -> None:
    assert line(NOT_TO_BE_SHOWN)["request"] == NOT_SHOWABLE
    found = line(request("a"), before=[NOT_TO_BE_SHOWN], after={1, 2})
    assert found["before"] == NOT_SHOWABLE
    assert "request" in found


def test_of_long_lists_only_the_first_are_shown(line: Line) -> None:
    class Counted(list[Any]):
        looked_at = 0

        def __iter__(self) -> Iterator[Any]:
            for each in super().__iter__():
                self.looked_at += 1
                yield each

    short = [sync.RuleChange(key="topics", value=str(number)) for number in range(3)]
    long = Counted(sync.RuleChange(key="topics", value=str(number)) for number in range(100_000))
    found = line(before=short, after=long)
    assert found["before"] == [{"key": "topics", "value": str(number)} for number in range(3)]
    assert len(found["after"]) <= MAX_SHOWN + 1
    assert long.looked_at < MAX_SHOWN


def test_a_long_value_is_cut_and_hides_no_other(line: Line) -> None:
    long = {"topics": "a" * 10 * MAX_SHOWN, "twinlog.sync.topic.acls.mode": "full", "deletes": "true"}
    found = line(before=long, after=[request("a" * (MAX_SHOWN + 1))])
    assert len(found["before"].pop("topics")) < MAX_SHOWN
    assert found["before"] == {"twinlog.sync.topic.acls.mode": "full", "deletes": "true"}
    assert found["after"][0]["changes"][0]["value"].endswith("…")
