"""`twinlog status --watch`: what stands on a screen of a size."""

import time

import pytest

from twinlog.cli.status.rows import FlowRow, ServiceRow, Status
from twinlog.cli.status.watch import screen_lines

AT_MS = 1_769_832_306_000


def status(flows: int) -> Status:
    found = Status(services=[ServiceRow(name="source", endpoint="127.0.0.1:1", health="SERVING")])
    for number in range(flows):
        row = FlowRow(flow=f"A{number}->B", partitions={"RUNNING": 3})
        row.add_note("source", "NO_TASK", "no task copies it")
        found.flows[row.flow] = row
    return found


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60)])
def test_no_line_is_longer_and_no_screen_fuller_than_the_terminal(width: int, height: int) -> None:
    lines = screen_lines(status(100), at_ms=AT_MS, width=width, height=height)
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert "more lines" in lines[-1]


def test_what_is_wrong_stands_above_services() -> None:
    text = "\n".join(screen_lines(status(1), at_ms=AT_MS, width=120, height=40))
    assert text.index("1 problem: NO_TASK") < text.index("A0->B") < text.index("SERVING")
    assert "more lines" not in text


def test_it_says_of_when_it_is_and_in_which_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    assert screen_lines(status(1), at_ms=AT_MS, width=120, height=40)[0] == "as of 04:05:06 UTC"
