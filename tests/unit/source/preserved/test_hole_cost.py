"""When holes cost so much that a copy cannot keep its source's offsets."""

from twinlog_source.preserved.fill_limits import HoleCost


def _filled(count: int, *, every: float, each: float) -> tuple[HoleCost, float]:
    cost, now = HoleCost(), 0.0
    for number in range(count):
        now = number * every + each
        cost.filled(number * every, now)
    return cost, now


def test_holes_that_take_more_than_half_of_the_time_are_too_many() -> None:
    cost, now = _filled(240, every=0.25, each=0.2)
    assert cost.is_too_high(now)


def test_many_holes_that_take_little_time_are_not() -> None:
    cost, now = _filled(6_000, every=0.01, each=0.004)
    assert not cost.is_too_high(now)


def test_a_few_holes_are_not_however_long_they_take() -> None:
    cost, now = _filled(30, every=1.5, each=1.5)
    assert not cost.is_too_high(now)


def test_holes_of_a_far_target_are_too_many_though_only_few_fit_into_a_minute() -> None:
    cost, now = _filled(60, every=1.0, each=0.9)
    assert cost.is_too_high(now)


def test_holes_of_long_ago_do_not_count() -> None:
    cost, now = _filled(240, every=0.25, each=0.2)
    assert not cost.is_too_high(now + 31.0)
    assert not cost.is_too_high(now + 100.0)


def test_of_a_hole_only_what_lies_within_the_last_minute_counts() -> None:
    cost = HoleCost()
    cost.filled(0.0, 96.0)
    for number in range(120):
        cost.filled(96.0 + number / 10, 96.05 + number / 10)
    assert not cost.is_too_high(140.0)


def test_a_broker_that_stands_still_for_a_while_is_not_a_source_with_too_many_holes() -> None:
    """There is no way back from what is decided by it."""
    cost, now = _filled(100, every=0.05, each=0.02)
    for _ in range(90):
        cost.filled(now, now + 0.1)
        now += 0.1
    cost.filled(now, now + 6.0)
    assert not cost.is_too_high(now + 6.0)


def test_one_hole_that_waits_for_long_decides_nothing_however_many_quick_ones_follow() -> None:
    """The target's transaction coordinator stood still once; that says nothing of the source."""
    cost, now = HoleCost(), 40.0
    cost.filled(0.0, now)
    for _ in range(31):
        cost.filled(now, now + 0.05)
        now += 0.1
        assert not cost.is_too_high(now)
