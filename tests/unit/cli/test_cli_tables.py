"""Tables: one line a row in a pipe, never wider than the terminal, and never columns of a few letters."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cli.common.fields import Column, print_rows, table, table_lines, toned

KEYS = (Column(title="key"), Column(title="value"), Column(title="lag", right=True))
LONG = "__consumer_offsets, .*[\\-\\.]internal, .*\\.replica, __.*, " * 3
ROWS = [["topics", "orders", "7"], ["topics.exclude", LONG, "1200"]]


def test_in_a_pipe_each_row_is_one_line_and_a_long_cell_stretches_no_other() -> None:
    lines = table_lines(KEYS, ROWS, width=None)
    assert lines[0].split() == ["key", "value", "lag"]
    assert len(lines) == 3
    assert lines[2] == f"topics.exclude  {LONG}  1200".rstrip()
    assert len(lines[1]) < 90
    assert lines[1].endswith("7")


def test_in_a_pipe_a_cell_of_several_lines_is_one_line() -> None:
    assert table_lines(KEYS, [["a", "one\ntwo", "1"]], width=None)[1] == "a    one two    1"


def test_what_fits_a_terminal_is_not_wrapped() -> None:
    assert table_lines(KEYS, ROWS[:1], width=80) == [
        "key     value   lag",
        "───────────────────",
        "topics  orders    7",
    ]


def test_long_cells_are_wrapped_in_their_column() -> None:
    lines = table_lines(KEYS, ROWS, width=80)
    assert all(len(line) <= 80 for line in lines)
    assert lines[3].startswith("topics.exclude  __consumer_offsets")
    assert lines[3].endswith("1200")
    assert lines[4].startswith(" " * 16)


def test_empty_columns_and_the_least_missed_go_before_text_is_wrapped_to_a_few_words_a_line() -> None:
    columns = [
        Column(title="key"),
        Column(title="empty"),
        Column(title="spare", spare=1),
        Column(title="why"),
    ]
    rows = [["orders-0", "", "x" * 30, "the partition has no leader that answers, and waits"]]
    assert table_lines(columns, rows, width=75)[0].split() == ["key", "spare", "why"]
    lines = table_lines(columns, rows, width=66)
    assert lines[0].split() == ["key", "why"]
    assert lines[2].endswith("and waits")


def test_too_many_columns_become_paragraphs() -> None:
    columns = [Column(title=f"column{number}") for number in range(8)]
    rows = [[f"cell-{number}-{'x' * 20}" for number in range(8)], ["next", *([""] * 6), "last"]]
    lines = table_lines(columns, rows, width=80)
    assert lines[0] == rows[0][0]
    assert lines[1] == f"  column1  {rows[0][1]}"
    assert lines[-3:] == ["", "next", "  column7  last"]


@given(
    rows=st.lists(st.lists(st.text(alphabet="ab -.\n", max_size=90), min_size=3, max_size=3), max_size=4),
    width=st.integers(min_value=40, max_value=200),
)
def test_nothing_is_lost_and_nothing_is_wider_than_the_terminal(rows: list[list[str]], width: int) -> None:
    lines = table_lines(KEYS, rows, width=width)
    assert all(len(line) <= width and line == line.rstrip() for line in lines)
    told = sorted("".join(re.findall("[ab.-]", "".join(lines[2:]))))
    if len(lines) > 1 and lines[1].startswith("─"):
        assert told == sorted(re.findall("[ab.-]", "".join(cell for row in rows for cell in row)))


def test_without_rows_it_says_so_instead_of_showing_a_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(table("key|key"), [], empty="no topics")
    assert capsys.readouterr().out == "no topics\n"
    print_rows(table("key|key value|value lag|lag>"), [])
    assert capsys.readouterr().out.split() == ["key", "value", "lag"]


def test_states_are_in_colour_and_names_that_hold_such_a_word_are_not() -> None:
    assert toned("orders-0  FAULTED  7") == "orders-0  \x1b[31mFAULTED\x1b[0m  7"
    assert toned("RUNNING.orders  DOWN-0  _READY") == "RUNNING.orders  DOWN-0  _READY"
