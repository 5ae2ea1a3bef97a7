"""Distributions of times over records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.telemetry.metrics.spec import AGE_BUCKETS_SECONDS
from twinlog_source.partitions.latency import WINDOW_SECONDS, LatencyHistogram, LatencyWindows
from twinlog_source.task.stream.messages import fill, value_of

SAMPLES = st.lists(st.tuples(st.floats(0, 5000), st.integers(1, 1000)), min_size=1, max_size=50)


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
        message = pb.LatencyHistogram()
        fill(message, told)
        whole.merge(value_of(LatencyHistogram, pb.LatencyHistogram.FromString(message.SerializeToString())))
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
    windows.forget(20.0)
    assert set(windows.recent(20.0)) == {"t"}
    windows.forget(20.0 + WINDOW_SECONDS)
    assert windows.recent(20.0) == {}, "a topic that is gone takes no memory"
