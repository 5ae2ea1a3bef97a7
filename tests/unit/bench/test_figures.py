"""Cutting runs into parts, percentiles, medians."""

import math

import pytest
from bench.comparing.results import Sample, measure_drain, middle, percentile, without_markers


def sample(at_seconds: float, records: int, cpu_seconds: float) -> Sample:
    return Sample(at_seconds, records, cpu_seconds, at_seconds * 0.1, at_seconds * 0.2)


RUN = [
    sample(0.0, 0, 0.0),
    sample(5.0, 0, 8.0),
    sample(6.0, 0, 9.0),
    sample(7.0, 100, 10.5),
    sample(8.0, 400, 12.0),
    sample(9.0, 700, 12.5),
    sample(10.0, 1000, 13.0),
    sample(11.0, 1000, 13.1),
    sample(12.0, 1000, 13.2),
]


def test_the_run_begins_before_its_first_record_and_ends_with_the_last_one() -> None:
    drain = measure_drain(RUN)
    assert drain.first_record_seconds == 6.0
    assert drain.first_record_cpu_seconds == 9.0
    assert drain.whole.records == 1000
    assert drain.whole.seconds == 4.0
    assert drain.whole.records_per_second == 250.0
    assert drain.whole.records_per_cpu_second == 250.0


def test_the_warm_part_leaves_the_first_half_of_the_records_out() -> None:
    warm = measure_drain(RUN).warm
    assert warm.records == 300
    assert warm.seconds == 1.0
    assert warm.records_per_cpu_second == 600.0


def test_brokers_are_counted_over_the_same_stretch() -> None:
    whole = measure_drain(RUN).whole
    assert whole.source_broker_cpu_seconds == pytest.approx(0.4)
    assert whole.target_broker_cpu_seconds == pytest.approx(0.8)
    assert whole.broker_cpu_seconds == pytest.approx(1.2)


def test_a_run_between_two_samples_is_warm_and_whole_at_once() -> None:
    drain = measure_drain([sample(0, 0, 0), sample(1, 0, 1), sample(2, 50, 2), sample(3, 50, 2)])
    assert drain.warm == drain.whole
    assert drain.whole.records_per_second == 50.0


@pytest.mark.parametrize("samples", [[], [sample(0, 0, 0), sample(1, 0, 1)]])
def test_a_run_without_records_has_no_figures(samples: list[Sample]) -> None:
    with pytest.raises(ValueError, match="no record was copied"):
        measure_drain(samples)


def test_no_cpu_time_is_no_division_by_zero() -> None:
    assert measure_drain([sample(0, 0, 1), sample(1, 9, 1)]).whole.records_per_cpu_second == math.inf


def test_percentiles_are_values_that_were_seen() -> None:
    ordered = [float(value) for value in range(1, 1001)]
    assert percentile(ordered, 50) == 500.0
    assert percentile(ordered, 99) == 990.0
    assert percentile(ordered, 99.9) == 999.0
    assert percentile(ordered, 100) == 1000.0
    assert percentile([3.0], 50) == 3.0
    assert percentile([1.0, 2.0, 3.0], 0) == 1.0


def test_the_median_of_an_even_number_is_a_run_that_happened() -> None:
    assert middle([5.0, 1.0, 3.0]) == 2
    assert middle([5.0, 1.0, 3.0, 4.0]) == 2
    assert middle([7.0]) == 0


def test_nothing_has_no_percentile_and_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
    with pytest.raises(ValueError, match="no values"):
        middle([])


def test_transaction_markers_are_no_records() -> None:
    offsets = [sample(0, 0, 0), sample(1, 505, 1), sample(2, 1010, 2)]
    assert [each.records for each in without_markers(offsets, 1000)] == [0, 500, 1000]
    assert without_markers(offsets, 1010) == offsets
    assert without_markers([], 0) == []
