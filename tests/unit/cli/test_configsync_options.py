"""Options of `twinlog apply` and `twinlog rules` that leave open what is meant are refused."""

import pytest

from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.output import Output
from twinlog.cli.configsync.plan import _require_clear
from twinlog.cli.configsync.rules import _require_known
from twinlog.errors import ConfigError

RULES = pb2.Rules(rules=[pb2.Rule(key="topics"), pb2.Rule(key="topics.exclude")])


@pytest.mark.parametrize(
    ("plan", "scopes", "output", "yes", "words"),
    [
        ("1234", ["acls"], Output.TABLE, True, "exclude each other"),
        (None, [], Output.JSON, False, "give --plan ID or --yes"),
    ],
)
def test_an_apply_that_is_not_clear_is_refused(
    plan: str | None, scopes: list[str], output: Output, yes: bool, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        _require_clear(plan, scopes, output, yes=yes)


@pytest.mark.parametrize(
    ("plan", "output", "yes"),
    [("1234", Output.JSON, False), (None, Output.JSON, True), (None, Output.TABLE, False)],
)
def test_one_that_is_clear_goes_on(plan: str | None, output: Output, yes: bool) -> None:
    _require_clear(plan, [], output, yes=yes)


def test_a_key_that_is_no_rule_is_told_with_the_one_that_was_meant() -> None:
    _require_known(RULES, None)
    _require_known(RULES, "topics")
    with pytest.raises(ConfigError, match=r"topics\.exclud: .*did you mean topics\.exclude\?"):
        _require_known(RULES, "topics.exclud")
