"""Limits in bytes per second: the mean holds, whatever the size of a fetch."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog_source.partitions.planner import LimitDebt, SlotLimits, share_debt
from twinlog_source.task.reading.fetch_schedule import Throttle


@given(st.integers(10_000, 10_000_000), st.integers(1_000, 1_000_000))
def test_the_mean_rate_is_the_limit_but_for_one_fetch_and_the_burst(limit: int, fetch_bytes: int) -> None:
    throttle = Throttle()
    throttle.set_limits(limit, {}, 0.0)
    taken, now, step = 0, 0.0, 0.01
    while now < 10:
        if throttle.allows("t", now):
            throttle.spend("t", fetch_bytes, now)
            taken += fetch_bytes
        else:
            now += step
        if taken > limit * 20:
            break
    assert taken <= limit * 10.3 + fetch_bytes
    assert taken >= limit * 9 - fetch_bytes


def test_a_topic_with_a_limit_does_not_hold_up_the_others() -> None:
    throttle = Throttle()
    throttle.set_limits(0, {"slow": 100}, 0.0)
    throttle.spend("slow", 1000, 0.0)
    assert not throttle.allows("slow", 0.1)
    assert throttle.allows("fast", 0.1)


def test_limits_are_taken_away() -> None:
    throttle = Throttle()
    throttle.set_limits(100, {"t": 1}, 0.0)
    throttle.spend("t", 10_000, 0.0)
    throttle.set_limits(0, {}, 0.0)
    assert throttle.is_open
    assert throttle.allows("t", 0.0)


def test_a_changed_limit_forgives_no_debt_and_gives_nothing_away() -> None:
    throttle = Throttle()
    throttle.set_limits(1000, {"t": 1000}, 0.0)
    throttle.spend("t", 10_000, 0.0)
    for tenth in range(1, 40):
        throttle.set_limits(1000 + tenth % 2, {"t": 1000 + tenth % 3}, tenth / 10)
        assert not throttle.allows("t", tenth / 10)
    assert throttle.allows("t", 10.1)


def test_the_next_tasks_wait_for_what_the_ones_before_have_read_beyond_the_limits() -> None:
    before = Throttle()
    before.set_limits(1000, {"t": 100, "free": 100}, 0.0)
    before.spend("t", 10_000, 0.0)
    owed = before.owed(1.0)
    assert owed == LimitDebt(bytes=9_000, topic_bytes={"t": 9_900})
    shares = share_debt(
        [owed],
        [
            SlotLimits(bytes_per_second=900, topic_bytes_per_second={"t": 100}),
            SlotLimits(bytes_per_second=100),
        ],
    )
    assert shares == (LimitDebt(bytes=8_100, topic_bytes={"t": 9_900}), LimitDebt(bytes=900))
    after = Throttle()
    after.set_limits(900, {"t": 100}, 1.0)
    after.owe(shares[0], 1.0)
    assert not after.allows("u", 9.9)
    assert after.allows("u", 10.1)
    assert not after.allows("t", 99.9)
    assert after.allows("t", 100.1)
    unlimited = Throttle()
    unlimited.owe(shares[0], 1.0)
    assert unlimited.allows("t", 1.0), "the limit was taken away meanwhile"


def test_a_fetch_brings_no_more_than_the_limits_allow_in_a_moment() -> None:
    throttle = Throttle()
    assert (throttle.sizes(1_000_000).max_bytes, throttle.at_once("t")) == (1_000_000, None)
    throttle.set_limits(1_000_000, {"slow": 80_000, "less-slow": 4_000_000}, 0.0)
    assert throttle.sizes(1_000_000).max_bytes == 250_000
    assert throttle.sizes(200_000).max_bytes == 200_000
    assert throttle.sizes(1_000_000).partition_bytes.keys() == {"slow", "less-slow"}
    assert [throttle.at_once(topic) for topic in ("slow", "less-slow", "free")] == [1, 3, None]
