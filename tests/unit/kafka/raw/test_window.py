"""How much is under way: grows with what passes, halves with what does not."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.kafka.raw.settings import InFlightWindow

MOST, LEAST, SLOW = 8 << 20, 1 << 20, 5.0


def window() -> InFlightWindow:
    return InFlightWindow(most_bytes=MOST, least_bytes=LEAST, slow_seconds=SLOW)


def test_begins_with_all_and_halves_with_what_was_slow_or_given_up() -> None:
    slow = window()
    assert slow.size_bytes == MOST
    slow.passed(MOST, began=0.0, now=SLOW + 1)
    assert slow.size_bytes == MOST // 2
    slow.shrink(MOST // 2, began=10.0, now=11.0)
    assert slow.size_bytes == MOST // 4


def test_what_was_under_way_together_counts_once() -> None:
    slow = window()
    for number in range(5):
        slow.shrink(MOST, began=number / 10, now=1.0)
    assert slow.size_bytes == MOST // 2


def test_halves_what_was_tried_where_that_was_less() -> None:
    slow = window()
    slow.shrink(4 << 20, began=0.0, now=1.0)
    assert slow.size_bytes == 2 << 20


def test_little_that_passes_shows_nothing() -> None:
    slow = window()
    slow.shrink(MOST, began=0.0, now=1.0)
    slow.passed(1000, began=2.0, now=2.1)
    assert slow.size_bytes == MOST // 2


@given(bytes_per_second=st.integers(LEAST // 5, 100 << 20), latency=st.floats(0, 1))
def test_settles_at_what_passes_in_time(bytes_per_second: int, latency: float) -> None:
    """And never takes longer again than a little more than that."""
    slow, now, took = window(), 0.0, []
    for _ in range(100):
        began, tried = now, slow.size_bytes
        now += latency + tried / bytes_per_second
        took.append(now - began)
        slow.passed(tried, began=began, now=now)
        assert LEAST <= slow.size_bytes <= MOST
    least_seconds = latency + LEAST / bytes_per_second
    assert max(took[20:]) <= max(SLOW * 1.25, least_seconds) + latency
    assert slow.size_bytes * 4 >= min(MOST, (SLOW - latency) * bytes_per_second)
