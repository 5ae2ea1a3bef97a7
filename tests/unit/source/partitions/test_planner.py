"""Which partitions go to which slot."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.model import TopicPartition
from twinlog_source.partitions.planner import (
    FIRST_BACKLOG_RECORDS,
    SLOT_BYTES_PER_SECOND,
    Load,
    plan,
    slots_needed,
)

RATES = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 30)),
    st.one_of(st.none(), st.floats(0, 1e9)),
    max_size=60,
)


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]


@given(RATES, st.integers(1, 5), RATES)
def test_every_partition_is_in_exactly_one_slot_whatever_came_before(
    rates: dict[TopicPartition, float | None], slots: int, earlier: dict[TopicPartition, float | None]
) -> None:
    chosen = plan(rates, max_slots=slots, previous=plan(earlier, max_slots=slots))
    assert sorted(p for slot in chosen for p in slot) == sorted(rates)
    assert len(chosen) == min(slots, len(rates))
    assert all(chosen)


def test_a_plan_is_given_up_when_the_partitions_of_a_slot_have_left() -> None:
    a, b, c, _ = partitions(4)
    assert all(plan({a: 0.0, b: 0.0}, max_slots=2, previous=((a, b), (c,))))


def test_a_hot_partition_has_a_slot_for_itself() -> None:
    hot, *idle = partitions(9)
    chosen = plan({hot: 1e8, **dict.fromkeys(idle, 0.0)}, max_slots=2)
    assert (hot,) in chosen


def test_a_plan_is_kept_while_a_new_one_would_gain_little() -> None:
    a, b, c, d = partitions(4)
    before = ((a, b), (c, d))
    assert plan({a: 100_000, b: 90_000, c: 95_000, d: 92_000}, max_slots=2, previous=before) == before


def test_a_plan_is_given_up_when_one_slot_does_all_the_work() -> None:
    a, b, c, d = partitions(4)
    after = plan({a: 1e6, b: 1e6, c: 0.0, d: 0.0}, max_slots=2, previous=((a, b), (c, d)))
    assert not any({a, b} <= set(slot) for slot in after)


def test_a_plan_is_kept_while_hardly_anything_flows() -> None:
    a, b, c, d = partitions(4)
    before = ((a, b), (c, d))
    assert plan({a: 50_000, b: 50_000, c: 0.0, d: 0.0}, max_slots=2, previous=before) == before


@given(st.lists(st.floats(0.9, 1.1), min_size=16, max_size=16), st.floats(1e3, 1e8))
def test_a_steady_load_that_wobbles_keeps_its_plan(wobble: list[float], rate: float) -> None:
    loaded = partitions(16)
    before = plan(dict.fromkeys(loaded, rate), max_slots=4)
    wobbling = {each: rate * factor for each, factor in zip(loaded, wobble, strict=True)}
    assert plan(wobbling, max_slots=4, previous=before) == before


def test_a_new_partition_joins_the_lightest_slot_and_moves_nobody() -> None:
    a, b, c = partitions(3)
    assert plan({a: 50_000, b: 10_000, c: None}, max_slots=2, previous=((a,), (b,))) == ((a,), (b, c))


def test_two_thousand_idle_partitions_and_one_busy_topic() -> None:
    idle = [TopicPartition(f"idle-{number}", 0) for number in range(2000)]
    busy = [TopicPartition("busy", number) for number in range(200)]
    chosen = plan({**dict.fromkeys(idle, 0.0), **dict.fromkeys(busy, 1e6)}, max_slots=4)
    shares = [sum(1 for p in slot if p.topic == "busy") for slot in chosen]
    assert max(shares) - min(shares) <= 2


def test_a_quiet_flow_has_one_slot_and_one_that_is_behind_all() -> None:
    assert slots_needed(Load(bytes_per_second=1e6), present=0, most=8) == 1
    assert slots_needed(Load(bytes_per_second=1e6), present=8, most=8) == 1
    assert slots_needed(Load(first_backlog_records=FIRST_BACKLOG_RECORDS), present=0, most=8) == 8
    assert slots_needed(Load(first_backlog_records=FIRST_BACKLOG_RECORDS - 1), present=0, most=8) == 1
    assert slots_needed(Load(bytes_per_second=1e6, is_behind=True), present=1, most=8) == 8


@given(st.floats(0, 1e10), st.integers(0, 16), st.integers(1, 16), st.booleans())
def test_a_number_of_slots_is_kept_once_it_was_chosen_for_a_steady_load(
    rate: float, present: int, most: int, is_behind: bool
) -> None:
    load = Load(bytes_per_second=rate, is_behind=is_behind)
    chosen = slots_needed(load, present=present, most=most)
    assert 1 <= chosen <= most
    assert slots_needed(load, present=chosen, most=most) == chosen


def test_a_load_about_a_limit_does_not_change_the_number_of_slots_to_and_fro() -> None:
    over, under = (
        Load(bytes_per_second=SLOT_BYTES_PER_SECOND * 1.1),
        Load(bytes_per_second=SLOT_BYTES_PER_SECOND * 0.9),
    )
    assert slots_needed(over, present=1, most=4) == 2
    assert slots_needed(under, present=2, most=4) == 2
