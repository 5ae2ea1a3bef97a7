"""Options of `twinlog apply` and `twinlog rules` that leave open what is meant are refused."""

from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.call import Call, Services
from twinlog.cli.common.fields import Output
from twinlog.cli.configsync.plan import _require_clear
from twinlog.cli.configsync.rules import _left_out_groups, _require_known, told_of_rules
from twinlog.errors import ConfigError, TransientKafkaError

RULES = pb2.Rules(rules=[pb2.Rule(key="topics"), pb2.Rule(key="topics.exclude")])


@pytest.mark.parametrize(
    ("plan", "scopes", "output", "yes", "words"),
    [
        ("1234", ["acls"], Output.TABLE, True, "exclude each other"),
        (None, [], Output.JSON, False, "give --plan ID or --yes"),
        (None, [], Output.TABLE, False, "stdin is not a terminal"),
    ],
)
def test_an_apply_that_is_not_clear_is_refused(
    plan: str | None,
    scopes: list[str],
    output: Output,
    yes: bool,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO())
    with pytest.raises(ConfigError, match=words):
        _require_clear(plan, scopes, Call(config=None, endpoint=None, output=output), yes=yes)


@pytest.mark.parametrize(
    ("plan", "output", "yes"),
    [("1234", Output.JSON, False), (None, Output.JSON, True), (None, Output.TABLE, True)],
)
def test_one_that_is_clear_goes_on(plan: str | None, output: Output, yes: bool) -> None:
    _require_clear(plan, [], Call(config=None, endpoint=None, output=output), yes=yes)


def test_a_key_that_is_no_rule_is_told_with_the_one_that_was_meant() -> None:
    _require_known(RULES, None)
    _require_known(RULES, "topics")
    with pytest.raises(ConfigError, match=r"topics\.exclud: .*did you mean topics\.exclude\?"):
        _require_known(RULES, "topics.exclud")


def test_rules_that_are_not_the_files_are_told_with_the_commands_that_end_this() -> None:
    flow = types_pb2.Flow(source="A", target="B")
    in_force = pb2.Rule(key="topics", value="txt", file_value="acct", changed=True, changed_by="ann")
    in_force.changed_at.FromJsonString("2026-11-28T13:32:00Z")
    aside = pb2.Rule(key="groups", value=".*", file_value=".*", replaced="a", put_aside="")
    first, second = told_of_rules(flow, [*RULES.rules, in_force, aside])
    assert first == (
        "topics: the file has 'acct', a rule of 2026-11-28 13:32:00 UTC by ann replaces it by 'txt';"
        " undo: `twinlog rules reset 'A->B' topics`"
    )
    assert second == (
        "groups: the file has '.*', and had 'a' when a rule replaced that by nothing: the rule is put aside,"
        " not in force; to apply it again: `twinlog rules restore 'A->B' groups`; to drop it: `twinlog"
        " rules reset 'A->B' groups`"
    )


async def _left_out(answer: checkpoint.ListGroupsResponse | None) -> tuple[list[str], float]:
    """Of a rule that takes no group, with the time that the checkpoint service is given."""
    given: list[float] = []

    async def list_groups(_request: Any, timeout: float = 60.0) -> checkpoint.ListGroupsResponse:
        given.append(timeout)
        if answer is None:
            raise TransientKafkaError("no answer in time", reason="KAFKA_TIMEOUT")
        return answer

    at = cast("Services", SimpleNamespace(checkpoint=SimpleNamespace(ListGroups=list_groups)))
    groups = await _left_out_groups(at, pb2.Rules(rules=[pb2.Rule(key="groups")]), "groups")
    return groups, given[0]


async def test_groups_that_are_not_known_are_not_told_as_none(capsys: pytest.CaptureFixture[str]) -> None:
    row = checkpoint.GroupPartition(group="billing")
    starting, looked = checkpoint.FlowProgress(), checkpoint.FlowProgress()
    looked.confirmed.FromMilliseconds(1)
    groups, seconds = await _left_out(None)
    assert (groups, seconds < 30) == ([], True)
    assert "is not known: no answer in time" in capsys.readouterr().err
    assert (await _left_out(checkpoint.ListGroupsResponse(flows=[starting])))[0] == []
    assert "has not read them yet" in capsys.readouterr().err
    assert (await _left_out(checkpoint.ListGroupsResponse(flows=[looked], groups=[row])))[0] == ["billing"]
    assert not capsys.readouterr().err
