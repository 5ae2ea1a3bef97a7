"""Rates, as people and plans see them."""

import pytest

from twinlog_source.partitions.rows import SHOWN_SECONDS, Rate


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
