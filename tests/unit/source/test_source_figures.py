"""Rates, ages and distributions: what people and Prometheus are told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.telemetry.metrics import AGE_BUCKETS_SECONDS
from twinlog_source.partitions.lag_time import MOST_SIGHTINGS, LagTime
from twinlog_source.partitions.latency import LatencyHistogram
from twinlog_source.partitions.latency_window import WINDOW_SECONDS, LatencyWindows
from twinlog_source.partitions.rates import SHOWN_SECONDS, Rate
from twinlog_source.task.spreads import spread_message, spread_of

SAMPLES = st.lists(st.tuples(st.floats(0, 5000), st.integers(1, 1000)), min_size=1, max_size=50)


def test_the_shown_rate_is_that_of_the_last_seconds_and_nothing_once_they_are_over() -> None:
    rate = Rate()
    rate.begin(0.0)
    for second in range(1, 11):
        rate.observe(second * 100, float(second))
    assert rate.shown(10.0) == pytest.approx(100)
    assert rate.shown(10.0 + SHOWN_SECONDS / 2) < 100
    assert rate.shown(10.0 + SHOWN_SECONDS) == 0
    assert rate.current(10.0 + SHOWN_SECONDS) > 0, "a plan does not forget as quickly"


def test_a_new_task_does_not_make_the_rate_jump() -> None:
    rate = Rate()
    rate.begin(0.0)
    rate.observe(500, 1.0)
    rate.begin(1.5)
    rate.observe(100, 2.0)
    assert rate.shown(2.0) == 600 / SHOWN_SECONDS


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
        assert len(lag._sightings) <= MOST_SIGHTINGS + 1


@given(SAMPLES, SAMPLES)
def test_a_spread_survives_the_report_and_adds_up(
    first: list[tuple[float, int]], second: list[tuple[float, int]]
) -> None:
    whole = LatencyHistogram()
    for part in (first, second):
        spread = LatencyHistogram()
        for seconds, records in part:
            spread.add(seconds, records)
        told = spread.take()
        assert told is not None
        assert spread.take() is None
        message = spread_message(told)
        assert message is not None
        whole.merge(spread_of(pb.Spread.FromString(message.SerializeToString())))
    both = [*first, *second]
    assert whole.records == sum(records for _, records in both)
    assert whole.sum_seconds == pytest.approx(sum(seconds * records for seconds, records in both))
    assert (whole.min_seconds, whole.max_seconds) == (min(both)[0], max(both)[0])


@given(SAMPLES)
def test_samples_are_few_and_in_the_buckets_of_the_records(samples: list[tuple[float, int]]) -> None:
    spread = LatencyHistogram()
    for seconds, records in samples:
        spread.add(seconds, records)
    drawn = LatencyHistogram()
    for seconds in spread.samples(100):
        drawn.add(seconds, 1)
    assert drawn.records <= 100 + 2 * (len(AGE_BUCKETS_SECONDS) + 1)
    assert drawn.records >= len(spread.buckets)


def test_records_without_timestamps_have_no_age() -> None:
    spread = LatencyHistogram()
    spread.add_batch(-1, 10, now_ms=1_000)
    assert spread.take() is None
    spread.add_batch(5_000, 10, now_ms=1_000)
    assert spread.max_seconds == 0, "a producer's clock that is ahead"


def test_a_window_forgets() -> None:
    windows = LatencyWindows()
    slow, quick = LatencyHistogram(), LatencyHistogram()
    slow.add(9.0, 1)
    quick.add(1.0, 3)
    windows.add("t", slow, 0.0)
    windows.add("t", quick, 20.0)
    assert windows.recent(20.0)["t"].max_seconds == 9.0
    assert windows.recent(WINDOW_SECONDS)["t"].max_seconds == 1.0
    assert windows.recent(20.0 + WINDOW_SECONDS) == {}
