"""One limit shared by several slots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog_source.partitions.planner import SlotLimits, differ, share_limit

DEMANDS = st.lists(st.one_of(st.none(), st.floats(0, 1e9)), min_size=1, max_size=6)


@given(st.floats(1, 1e9), DEMANDS)
def test_the_shares_add_up_to_the_limit(limit: float, demands: list[float | None]) -> None:
    shares = share_limit(limit, demands)
    assert sum(shares) == pytest.approx(limit)
    assert min(shares) >= 0


@given(
    st.floats(1, 1e9),
    st.lists(
        st.tuples(st.one_of(st.none(), st.floats(0, 1e9)), st.floats(0.01, 100)), min_size=1, max_size=6
    ),
)
def test_by_weight_all_is_dealt_and_nobody_who_needs_it_gets_less_than_its_part(
    limit: float, parts: list[tuple[float | None, float]]
) -> None:
    demands, weights = [demand for demand, _ in parts], [weight for _, weight in parts]
    shares = share_limit(limit, demands, weights)
    assert sum(shares) == pytest.approx(limit)
    for (demand, weight), share in zip(parts, shares, strict=True):
        fair = limit * weight / sum(weights)
        assert share >= 0.999 * (fair if demand is None else min(fair, demand))


@given(st.floats(1, 1e9), DEMANDS)
def test_a_modest_slot_gets_what_it_needs(limit: float, demands: list[float | None]) -> None:
    equal = limit / len(demands)
    for demand, share in zip(demands, share_limit(limit, demands), strict=True):
        if demand is not None and demand < equal:
            assert share >= demand * 0.999
        else:
            assert share >= equal * 0.999


def test_tasks_are_told_when_a_limit_came_went_or_moved() -> None:
    def throttle(whole: int | None, **topics: int) -> SlotLimits:
        return SlotLimits(bytes_per_second=whole, topic_bytes_per_second=topics)

    assert not differ(throttle(None), throttle(None))
    assert not differ(throttle(1000, t=500), throttle(1010, t=495))
    assert differ(throttle(1000), throttle(1100))
    assert differ(throttle(1000), throttle(None))
    assert differ(throttle(None), throttle(10))
    assert differ(throttle(None, t=500), throttle(None))
    assert differ(throttle(None, t=500), throttle(None, t=600))
