"""How long a verification will take: by what it did in the last minute."""

import pytest

from twinlog.cli.verify.progress import WINDOW_SECONDS, TimeLeft, progress_line, shown_time
from twinlog_source.verify.request import VerifyProgress


def test_the_time_left_is_what_is_left_at_the_rate_of_now() -> None:
    left = TimeLeft()
    assert left.seconds(1_000) is None
    left.observe(100.0, 0)
    assert left.seconds(1_000) is None, "one look tells no rate"
    left.observe(110.0, 100)
    assert left.seconds(1_000) == pytest.approx(90.0)
    left.observe(120.0, 200)
    assert left.seconds(1_000) == pytest.approx(80.0)


def test_a_rate_that_changed_is_forgotten_within_a_minute() -> None:
    left = TimeLeft()
    for second in range(200):
        left.observe(float(second), second * 1_000)
    done = 199 * 1_000
    for second in range(200, 200 + int(WINDOW_SECONDS) + 1):
        done += 10
        left.observe(float(second), done)
    assert left.seconds(done + 100) == pytest.approx(10.0)


def test_what_does_not_move_has_no_time_left_and_what_is_done_has_none_to_wait() -> None:
    left = TimeLeft()
    for second in range(10):
        left.observe(float(second), 50)
    assert left.seconds(100) is None
    left.observe(10.0, 100)
    assert left.seconds(100) == 0.0


def test_a_partition_that_is_compared_once_more_begins_to_count_anew() -> None:
    left = TimeLeft()
    left.observe(0.0, 0)
    left.observe(10.0, 1_000)
    left.observe(20.0, 500)
    assert left.seconds(1_000) is None
    left.observe(30.0, 600)
    assert left.seconds(1_000) == pytest.approx(40.0)


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
    assert shown_time(seconds) == words


def test_a_line_says_how_far_it_is() -> None:
    progress = VerifyProgress(total_offsets=400, done_offsets=100, read_bytes=1_234_000_000, differences=2)
    line = progress_line(progress, 90.0)
    assert line == "verify: 25%, 1,234 MB read, 2 differences, 2 min left"
    assert progress_line(VerifyProgress(), None).startswith("verify: 100%")
