"""How commands are told what they are about: flows as arguments or options, rates, and who asks."""

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.common.v1 import types_pb2 as types
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.checkpoint.groups import Order, chosen_rows, without_groups
from twinlog.cli.checkpoint.groups import _named as named_groups
from twinlog.cli.common.call import Call, command
from twinlog.cli.common.location import load_config
from twinlog.cli.common.names import parse_time, who
from twinlog.cli.common.options import argument, flow_and_names, flow_of_file, required_flow
from twinlog.cli.source.client import parse_bytes, parse_scope
from twinlog.cli.source.gaps import _request, flow_and_verb
from twinlog.cli.source.pause import _named as named_rate
from twinlog.cli.source.positions import _known, _meant, _require_clear, _target, _title
from twinlog.errors import ConfigError, NotFoundError


@command
def _asking(_call: Call, flow: str | None = argument("[A->B]", "The flow.", None)) -> None:
    typer.echo(flow)


@command
def _naming(_call: Call, words: list[str] | None = argument("[A->B] [GROUP]", "What.", None)) -> None:
    typer.echo(flow_and_names(words))


def invoke(work: Callable[..., None], *words: str) -> Result:
    app = typer.Typer()
    app.command()(work)
    return CliRunner().invoke(app, words)


def test_a_flow_is_an_argument_or_an_option_and_never_two() -> None:
    for words in (["A->B"], ["--flow", "A->B"], ["A->B", "--flow", "A->B"]):
        assert invoke(_asking, *words).stdout == "A->B\n"
    refused = invoke(_asking, "A->B", "--flow", "B->A").exception
    assert str(refused) == "two flows are named: A->B and --flow B->A: name one"
    for words in (["A->B", "billing"], ["billing", "--flow", "A->B"]):
        assert invoke(_naming, *words).stdout == "('A->B', ['billing'])\n"
    assert invoke(_naming, "--flow", "A->B").stdout == "('A->B', [])\n"
    assert "several flows" in str(invoke(_naming, "B->A", "--flow", "A->B").exception)
    assert isinstance(invoke(_naming, "--flow", "billing").exception, ConfigError), "that is no flow"
    with pytest.raises(ConfigError, match="name the flow"):
        required_flow(None)


def test_a_file_with_one_flow_needs_no_name(tmp_path: Path) -> None:
    def chosen(*lines: str, named: str | None = None) -> str:
        path = tmp_path / "mm2.properties"
        clusters = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        path.write_text(clusters + "\n".join(lines))
        return flow_of_file(named, load_config(path))

    forth, back = "A->B.enabled = true", "B->A.enabled = true"
    assert chosen(forth) == "A->B"
    assert chosen(forth, back, named="B->A") == "B->A"
    with pytest.raises(ConfigError, match=r"several flows \(A->B, B->A\)"):
        chosen(forth, back)
    with pytest.raises(ConfigError, match="enables no flow"):
        chosen()


def test_groups_takes_a_flow_and_a_group_as_arguments() -> None:
    assert named_groups([], "") == (None, "")
    assert named_groups(["A->B"], "") == ("A->B", "")
    assert named_groups(["billing", "A->B"], "") == ("A->B", "billing")
    assert named_groups([], "x->y") == (None, "x->y")


def test_groups_that_lag_are_chosen_and_what_is_not_known_is_left_out_by_no_bound() -> None:
    rows = [
        checkpoint.GroupPartition(group=group, source_lag=lag)
        for group, lag in (("a", 5), ("b", None), ("c", 0), ("d", 70))
    ]

    def chosen(least_lag: int, order: Order) -> str:
        return "".join(row.group for row in chosen_rows(rows, least_lag=least_lag, order=order))

    assert chosen(0, Order.NAME) == "abcd"
    assert chosen(1, Order.NAME) == "abd"
    assert chosen(0, Order.LAG) == "bdac"
    assert chosen(6, Order.LAG) == "bd"


@pytest.mark.parametrize("names", [["billing", "ledger"], ["A->B", "B->A"]])
def test_groups_takes_one_flow_and_one_group(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="several"):
        named_groups(names, "")


def test_a_rate_stands_beside_the_flow() -> None:
    assert named_rate(["20M", "A->B"]) == ("A->B", "20M")
    assert named_rate(["A->B"]) == ("A->B", None)
    assert named_rate(None) == (None, None)
    with pytest.raises(ConfigError, match="no such option: --topc"):
        named_rate(["A->B", "--topc"])


def test_positions_of_a_topic_that_is_not_copied_are_an_error_and_of_a_flow_without_topics_none() -> None:
    with pytest.raises(NotFoundError, match="A->B nosuch is not copied") as caught:
        _known(parse_scope("A->B", "nosuch", None), [])
    assert caught.value.reason == "PARTITION_UNKNOWN"
    assert _known(parse_scope("A->B", "", None), []) == []


@pytest.mark.parametrize("about", ["RATE", "--most"])
def test_a_number_of_bytes_is_refused_under_the_name_of_its_argument(about: str) -> None:
    with pytest.raises(ConfigError, match=f"{about}: '-5' is not a number of bytes") as caught:
        parse_bytes("-5", about)
    assert caught.value.metadata["key"] == about


def test_who_asks_has_a_name_also_without_a_passwd_entry() -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1000680000")

    assert who(nobody).startswith("uid-")
    assert who(lambda: "root").startswith("root@")


NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW_MS),
        ("-10m", NOW_MS - 600_000),
        ("-2h", NOW_MS - 7_200_000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T02:00:01+02:00", 1000),
    ],
)
def test_times_are_of_the_calendar_or_so_long_ago_and_utc_without_a_zone(text: str, expected: int) -> None:
    assert parse_time(text, now_ms=NOW_MS) == expected


@pytest.mark.parametrize("text", ["6:48", "-10", "-1.5h", "yesterday", ""])
def test_what_is_no_time_is_told_with_what_would_be(text: str) -> None:
    with pytest.raises(ConfigError, match="without a zone it is UTC"):
        parse_time(text, now_ms=NOW_MS)


def target(text: str) -> pb2.PositionTarget:
    return _target(text, now_ms=NOW_MS)


def test_a_bare_offset_for_a_whole_flow_is_refused_unless_it_is_meant() -> None:
    with pytest.raises(ConfigError, match="--all if you mean that"):
        _require_clear(target("5"), "", everything=False)
    with pytest.raises(ConfigError, match="omit --topic"):
        _require_clear(target("5"), "orders", everything=True)
    _require_clear(target("5"), "", everything=True)
    _require_clear(target("5"), "orders", everything=False)
    for relative in ("earliest", "latest", "-10m"):
        _require_clear(target(relative), "", everything=False)


def change(*, applied: bool = False, reason: str = "") -> pb2.PositionChange:
    return pb2.PositionChange(applied=applied, reason=reason)


def test_what_positions_set_says_is_what_was_done() -> None:
    refused = change(reason="OFFSET_OUT_OF_RANGE")
    assert _title([refused], dry_run=False) == "nothing was moved"
    assert _title([change(applied=True), refused], dry_run=False) == "moved 1 of 2 partitions"
    doubtful = change(reason="POSITION_UNCERTAIN")
    assert _title([doubtful], dry_run=False) == "nothing was moved; unknown for 1"
    assert _title([change()], dry_run=True) == "dry run: nothing was changed"
    assert _title([], dry_run=False) == "no partition is copied: nothing was changed"


def test_positions_set_says_how_it_understood_a_time() -> None:
    assert _meant(target("2026-01-31T12:00:00+02:00")) == (
        " (to the first records of 2026-01-31 10:00:00 UTC or later)"
    )
    assert _meant(target("5")) == ""


def test_gaps_takes_a_flow_and_ack_takes_what_is_acknowledged() -> None:
    assert flow_and_verb(None) == (None, False)
    assert flow_and_verb(["A->B"]) == flow_and_verb(["list", "A->B"]) == ("A->B", False)
    assert flow_and_verb(["ack", "A->B"]) == ("A->B", True)
    request = _request("A->B", "orders", 3, 20, everything=False)
    assert (request.scope.source_topic, request.scope.partition, request.from_offset) == ("orders", 3, 20)
    assert not _request("A->B", "", None, None, everything=True).scope.source_topic
    for words in (["orders"], ["A->B", "B->A"]):
        with pytest.raises(ConfigError, match=r"expected a flow|several flows"):
            flow_and_verb(words)


@pytest.mark.parametrize(
    ("topic", "partition", "begin", "everything"),
    [("", None, None, False), ("orders", None, None, True), ("orders", None, 20, False)],
)
def test_an_acknowledgement_that_leaves_open_what_is_meant_is_refused(
    topic: str, partition: int | None, begin: int | None, everything: bool
) -> None:
    with pytest.raises(ConfigError):
        _request("A->B", topic, partition, begin, everything=everything)


def test_no_group_is_known_only_once_all_were_looked_at() -> None:
    starting, standing_by, looked = (
        checkpoint.FlowProgress(flow=types.Flow(source="A", target=target)) for target in "BCD"
    )
    standing_by.obstacle_reason = "OWNED_ELSEWHERE"
    looked.confirmed.FromMilliseconds(1)
    assert without_groups([standing_by, looked]) == "no groups known"
    told = without_groups([starting, standing_by, looked])
    assert told == "no groups known yet: A->B has not read them since it started"
