"""The difference of two clocks is estimated from beats on one path, and forgotten when it is old."""

import random

from twinlog.model import Flow
from twinlog_heartbeat.model.delays import WINDOW_MS, DelayTracker, SkewEstimate


def test_the_skew_is_found_within_the_unevenness_of_the_path() -> None:
    generator = random.Random(7)
    for skew_ms in (-90_000, -250, 0, 250, 3_600_000):
        estimate = SkewEstimate()
        for second in range(60):
            now_ms = 1_000_000 + 1000 * second
            for own in (True, False):
                delay_ms = 40 + generator.randrange(30)
                emitted_ms = now_ms - delay_ms + (0 if own else skew_ms)
                estimate.on_observed(emitted_ms=emitted_ms, seen_ms=now_ms, own=own)
        found = estimate.milliseconds(1_060_000)
        assert found is not None
        assert abs(found - skew_ms) <= 30


def test_beats_of_one_writer_say_nothing_of_clocks() -> None:
    estimate = SkewEstimate()
    estimate.on_observed(emitted_ms=0, seen_ms=50, own=True)
    assert estimate.milliseconds(60) is None


def test_what_was_measured_long_ago_counts_no_more() -> None:
    estimate = SkewEstimate()
    estimate.on_observed(emitted_ms=0, seen_ms=50, own=True)
    estimate.on_observed(emitted_ms=500, seen_ms=50, own=False)
    assert estimate.milliseconds(60) == 500
    assert estimate.milliseconds(50 + WINDOW_MS) is None


def test_a_delay_tells_the_skew_while_own_beats_prove_the_path() -> None:
    tracker = DelayTracker(flow=Flow("A", "B"), started_ms=0, silent_after_ms=5000)
    tracker.on_emitted()
    tracker.on_observed(emitted_ms=1000, seen_ms=1040, own=True)
    assert tracker.report(1100).clock_skew_ms is None
    tracker.on_observed(emitted_ms=4000, seen_ms=1050, own=False)
    report = tracker.report(1100)
    assert report.clock_skew_ms == 2990
    assert report.last_delay_ms == 40
