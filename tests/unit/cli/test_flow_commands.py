"""How commands are told what they are about: flows as arguments or options, rates, and who asks."""

import pytest

from twinlog.cli.flow_choice import chosen_flow, required_flow
from twinlog.cli.groups import _named as named_groups
from twinlog.cli.source_client import parse_bytes, who
from twinlog.cli.throttle import _named as named_rate
from twinlog.errors import ConfigError


def test_a_flow_is_an_argument_or_an_option_and_never_two() -> None:
    assert chosen_flow(None, None) is None
    assert chosen_flow("A->B", None) == chosen_flow(None, "A->B") == chosen_flow("A->B", "A->B") == "A->B"
    with pytest.raises(ConfigError, match=r"two flows are named: A->B and --flow B->A"):
        chosen_flow("A->B", "B->A")
    with pytest.raises(ConfigError, match="name the flow"):
        required_flow(None, None)


@pytest.mark.parametrize(
    ("names", "flow", "group", "expected"),
    [
        ([], None, "", (None, "")),
        (["billing"], None, "", (None, "billing")),
        (["A->B"], None, "", ("A->B", "")),
        (["A->B", "billing"], None, "", ("A->B", "billing")),
        (["billing"], "A->B", "", ("A->B", "billing")),
        ([], None, "x->y", (None, "x->y")),
    ],
)
def test_groups_takes_a_flow_and_a_group_as_arguments(
    names: list[str], flow: str | None, group: str, expected: tuple[str | None, str]
) -> None:
    assert named_groups(names, flow, group) == expected


@pytest.mark.parametrize("names", [["billing", "ledger"], ["A->B", "B->A"]])
def test_groups_takes_one_flow_and_one_group(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="several"):
        named_groups(names, None, "")


def test_a_rate_stands_behind_the_flow_however_the_flow_is_named() -> None:
    assert named_rate("A->B", None, "20M") == ("A->B", "20M")
    assert named_rate("20M", "A->B", None) == ("A->B", "20M")
    assert named_rate("A->B", None, None) == ("A->B", None)
    assert named_rate(None, None, None) == (None, None)
    with pytest.raises(ConfigError, match="no such option: --topc"):
        named_rate("A->B", None, "--topc")


def test_a_negative_rate_is_refused_as_a_rate() -> None:
    with pytest.raises(ConfigError, match="'-5' is not a rate"):
        parse_bytes("-5")


def test_who_asks_has_a_name_also_without_a_passwd_entry() -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1000680000")

    assert who(nobody).startswith("uid-")
    assert who(lambda: "root").startswith("root@")
