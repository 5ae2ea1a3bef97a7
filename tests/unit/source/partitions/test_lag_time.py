"""How long a partition has been behind."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog_source.partitions.latency import MOST_SIGHTINGS, LagTime


def test_a_busy_partition_that_keeps_up_has_no_growing_lag() -> None:
    lag = LagTime()
    for second in range(100):
        lag.observe(second * 10, second * 10 + 5, float(second))
        assert not second or (lag.seconds(float(second)) or 0) <= 1.0


def test_the_lag_is_the_age_of_the_oldest_record_that_is_not_copied() -> None:
    lag = LagTime()
    lag.observe(100, 100, 0.0)
    lag.observe(100, 100, 60.0)
    lag.observe(100, 150, 61.0)
    assert lag.seconds(70.0) == 10.0, "idle for a minute is not late for a minute"
    lag.observe(100, 200, 80.0)
    assert lag.seconds(80.0) == 20.0
    lag.observe(150, 200, 90.0)
    assert lag.seconds(90.0) == 29.0, "what came after 61 is still missing"
    lag.observe(200, 200, 91.0)
    assert lag.seconds(95.0) == 0.0


def test_a_lag_that_was_there_at_the_start_is_as_old_as_its_first_record_and_not_known_before() -> None:
    lag = LagTime()
    lag.observe(100, 500, 10.0)
    assert lag.needs_timestamp
    assert lag.seconds(20.0) is None
    lag.note_written(100, -50.0)
    assert not lag.needs_timestamp
    assert lag.seconds(20.0) == 70.0
    lag.observe(300, 600, 21.0)
    lag.note_written(300, -10.0)
    assert lag.seconds(22.0) == 32.0, "what came in between is copied"
    lag.observe(500, 600, 23.0)
    assert lag.seconds(24.0) == 14.0, "the log was seen to end here at 10"
    lag.observe(300, 600, 25.0)
    assert lag.seconds(26.0) is None, "set back to where nothing is known of"


def test_a_lag_grows_while_nothing_moves() -> None:
    lag = LagTime()
    lag.observe(100, 100, 0.0)
    for second in range(1, 3600):
        lag.observe(100, 100 + second, float(second))
    assert lag.seconds(3600.0) == 3600.0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=300))
def test_a_lag_is_never_shorter_than_the_oldest_missing_record_is_old(
    steps: list[tuple[int, int]],
) -> None:
    lag, position, end = LagTime(), 0, 0
    lag.observe(0, 0, 0.0)
    arrived: list[float] = []
    for second, (appended, copied) in enumerate(steps):
        arrived += [second + 0.5] * appended
        end += appended
        position = min(end, position + copied)
        lag.observe(position, end, float(second + 1))
        oldest = second + 1 - arrived[position] if position < end else 0.0
        told = lag.seconds(float(second + 1))
        assert told is not None
        assert told >= oldest - 1
        assert len(lag.sightings) <= MOST_SIGHTINGS + 1
