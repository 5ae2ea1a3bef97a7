"""Cores are shared by need."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from twinlog_source.driver.epoch_rules import Need, affordable, cores_needed, share_cores, workers_needed


def needs_of(*, has_pipes: st.SearchStrategy[bool]) -> st.SearchStrategy[dict[int, Need]]:
    large = st.builds(Need, st.integers(1, 50), has_pipes=has_pipes)
    small = st.builds(Need, st.just(1), is_small=st.just(True), has_pipes=has_pipes)
    return st.dictionaries(st.integers(0, 40), st.one_of(large, small), max_size=30)


NEEDS = needs_of(has_pipes=st.just(False))


@given(NEEDS, st.integers(0, 120))
def test_no_core_is_idle_while_a_flow_needs_it_and_none_has_more_than_its_part(
    needs: dict[int, Need], cores: int
) -> None:
    shares = share_cores(needs, cores)
    assert shares.keys() == needs.keys()
    assert all(1 <= shares[each] <= need.slots for each, need in needs.items())
    used = cores_needed({each: Need(shares[each], need.is_small) for each, need in needs.items()})
    least = cores_needed({each: Need(1, need.is_small) for each, need in needs.items()})
    assert used == max(least, min(cores, cores_needed(needs)))
    short = [shares[each] for each, need in needs.items() if shares[each] < need.slots]
    assert not short or max(shares.values()) <= min(short) + 1, "nobody is short while another has more"
    more = share_cores(needs, cores + 1)
    assert sum(more.values()) - sum(shares.values()) == (cores >= least and used < cores_needed(needs))


@given(needs_of(has_pipes=st.booleans()), st.integers(0, 300))
def test_workers_leave_the_cores_that_records_need_which_are_changed(
    needs: dict[int, Need], cores: int
) -> None:
    workers = affordable(needs, cores)
    used = {each: replace(need, slots=workers[each].slots) for each, need in needs.items()}
    least = cores_needed({each: replace(need, slots=1) for each, need in needs.items()})
    assert all(1 <= used[each].slots <= need.slots for each, need in needs.items())
    assert cores_needed(used) <= max(least, cores)
    pipes = sum(need.slots for need in used.values() if need.has_pipes)
    assert cores_needed(used) == workers_needed(workers) + pipes + (pipes > 0)
    for each, need in needs.items():
        if need.slots > used[each].slots:
            more = used | {each: replace(need, slots=used[each].slots + 1)}
            idle = sum(need.has_pipes for need in needs.values())
            assert cores_needed(more) > cores - idle, "no more than an odd core for each is left over"
