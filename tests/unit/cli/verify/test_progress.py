"""How far a verification is, and how long it will take."""

import io

import pytest

from twinlog.cli.verify.progress import progress_line, shown_progress, time_left
from twinlog_source.verify.request import VerifyProgress


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "time left not known"),
        (7.2, "7 s left"),
        (600.0, "10 min left"),
        (9_000.0, "2.5 h left"),
    ],
)
def test_the_time_left_is_said_as_people_say_it(seconds: float | None, words: str) -> None:
    assert time_left(seconds) == words


def test_a_line_says_how_far_it_is() -> None:
    progress = VerifyProgress(total_offsets=400, done_offsets=100, read_bytes=1_234_000_000, differences=2)
    line = progress_line(progress, 90.0)
    assert line == "verify: 25%, 1,234 MB read, 2 differences, 90 s left"
    assert progress_line(VerifyProgress(), None).startswith("verify: 100%")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_compared_once_more_begins_to_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with shown_progress() as show:
        show(VerifyProgress(total_offsets=100, done_offsets=100))
        show(VerifyProgress(total_offsets=100, done_offsets=10))
    last = terminal.getvalue().rpartition("verify")[2]
    assert "10%" in last
    assert "time left not known" in last
