"""How long until a partition has caught up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog_source.partitions.rows import WINDOW_SECONDS, CatchUp


def observed(*, copied: int, written: int, seconds: int, behind: int = 100_000) -> CatchUp:
    """A partition that copies and gets so many records a second."""
    catch_up = CatchUp()
    for second in range(seconds + 1):
        catch_up.observe(copied * second, behind + written * second, float(second))
    return catch_up


def test_what_producers_write_meanwhile_is_counted() -> None:
    assert observed(copied=1000, written=0, seconds=10).seconds(90_000, 10.0) == 90.0
    assert observed(copied=1000, written=500, seconds=10).seconds(95_000, 10.0) == 190.0


@pytest.mark.parametrize("written", [1000, 1500])
def test_a_lag_that_does_not_shrink_has_no_end(written: int) -> None:
    assert observed(copied=1000, written=written, seconds=10).seconds(100_000, 10.0) is None


def test_a_few_seconds_say_nothing() -> None:
    assert observed(copied=1000, written=0, seconds=4).seconds(96_000, 4.0) is None
    assert CatchUp().seconds(100, 0.0) is None


def test_only_the_last_half_minute_counts() -> None:
    catch_up = observed(copied=0, written=0, seconds=60)
    for second in range(61, 91):
        catch_up.observe(1000 * (second - 60), 100_000, float(second))
    assert catch_up.seconds(70_000, 90.0) == 70.0
    assert catch_up.seconds(70_000, 90.0 + WINDOW_SECONDS) is None, "nobody has looked since"


def test_what_was_before_a_move_or_another_log_does_not_count() -> None:
    catch_up = observed(copied=1000, written=0, seconds=10)
    catch_up.observe(0, 100_000, 11.0)
    assert catch_up.seconds(100_000, 11.0) is None
    catch_up = observed(copied=1000, written=0, seconds=10)
    catch_up.observe(10_000, 50_000, 11.0)
    assert catch_up.seconds(40_000, 11.0) is None


def test_a_burst_is_measured_from_when_it_came() -> None:
    catch_up = CatchUp()
    for second in range(20):
        catch_up.observe(0, 0, float(second))
    for second in range(20, 27):
        catch_up.observe(1000 * (second - 20), 100_000, float(second))
    assert catch_up.seconds(94_000, 26.0) == 94.0


@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 5_000), st.floats(0.1, 5)), max_size=60),
    st.integers(0, 1_000_000),
)
def test_it_is_never_negative_and_holds_no_more_than_a_half_minute(
    steps: list[tuple[int, int, float]], behind: int
) -> None:
    catch_up, position, end, now = CatchUp(), 0, behind, 0.0
    for copied, written, seconds in steps:
        end, now = end + written, now + seconds
        position = min(end, position + copied)
        catch_up.observe(position, end, now)
        left = catch_up.seconds(end - position, now)
        assert left is None or left >= 0
        assert len(catch_up.sightings) <= WINDOW_SECONDS + 1
