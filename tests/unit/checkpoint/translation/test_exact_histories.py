"""Exact translation on random histories: the translated offset is the very record the group reads next."""

import asyncio
import random
from collections.abc import Callable, Coroutine

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unit.checkpoint.exact_questions import check_all, check_poor
from unit.checkpoint.mirrored_logs import ORIGIN, MirroredLogs

EXAMPLES = settings().max_examples // 4
"""Each plays a whole mirror and asks for every offset of it, which takes 50 ms."""

Steps = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.integers(1, 120)),
        st.tuples(st.just("copy"), st.integers(1, 100)),
        st.tuples(st.just("crash"), st.integers(0, 40)),
        st.tuples(st.just("rest"), st.just(0)),
    ),
    min_size=2,
    max_size=12,
)
Losses = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.integers(1, 120)),
        st.tuples(st.just("copy"), st.integers(1, 100)),
        st.tuples(st.just("rest"), st.just(0)),
        st.tuples(st.just("lose_tail"), st.integers(1, 100)),
        st.tuples(st.just("create_again"), st.integers(0, 1)),
        st.tuples(st.just("retain"), st.integers(1, 100)),
        st.tuples(st.just("forget"), st.integers(0, 100)),
    ),
    min_size=3,
    max_size=12,
)


async def play(logs: MirroredLogs, steps: list[tuple[str, int]]) -> None:
    for name, count in steps:
        if name == "produce":
            logs.produce(count)
        elif name == "copy":
            logs.copy(count)
        elif name == "crash":
            logs.crash(count)
        elif name == "lose_tail":
            logs.lose_tail(count / 100)
        elif name == "create_again":
            logs.create_again(from_start=bool(count))
        elif name == "retain":
            log = logs.source.log(ORIGIN)
            logs.retain(log.start_offset + (log.end_offset - log.start_offset) * count // 200)
        elif name == "forget":
            log = logs.source.log(ORIGIN)
            logs.forget_pairs(log.start_offset + (log.end_offset - log.start_offset) * count // 100)
        else:
            logs.rest()
    logs.produce(20)
    logs.copy()
    logs.rest()


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 10_000), steps=Steps, exactly_once=st.booleans())
def test_every_offset_of_a_mirror_with_restarts_and_aborts_is_exact(
    seed: int, steps: list[tuple[str, int]], exactly_once: bool
) -> None:
    async def run() -> None:
        logs = MirroredLogs(seed=seed, exactly_once=exactly_once)
        await play(logs, steps)
        end = logs.source.log(ORIGIN).end_offset
        await check_all(logs, range(end + 1))

    _run(run)


@settings(max_examples=EXAMPLES)
@given(
    seed=st.integers(0, 10_000),
    steps=Losses,
    exactly_once=st.booleans(),
    lost=st.sampled_from([0.0, 0.9, 1.0]),
)
def test_no_answer_is_ahead_where_the_copy_lost_its_tail_or_was_created_again(
    seed: int, steps: list[tuple[str, int]], exactly_once: bool, lost: float
) -> None:
    async def run() -> None:
        logs = MirroredLogs(seed=seed, exactly_once=exactly_once, lost_syncs=lost)
        await play(logs, steps)
        offsets = range(logs.source.log(ORIGIN).end_offset + 1)
        await check_all(logs, offsets, exact_share=0.0)
        await check_poor(logs, offsets)

    _run(run)


@settings(max_examples=EXAMPLES)
@example(
    seed=108,
    steps=[
        ("produce", 1),
        ("produce", 1),
        ("crash", 25),
        ("produce", 53),
        ("copy", 100),
        ("produce", 107),
        ("crash", 25),
        ("crash", 26),
        ("produce", 1),
        ("rest", 0),
    ],
    exactly_once=False,
    keys=2,
    source_share=0.0,
    target_share=0.09410850504778726,
)
@given(
    seed=st.integers(0, 10_000),
    steps=Steps,
    exactly_once=st.booleans(),
    keys=st.sampled_from([2, 20, 400]),
    source_share=st.floats(0, 1),
    target_share=st.floats(0, 1),
)
def test_compacted_logs_go_on_at_the_first_surviving_record(
    seed: int,
    steps: list[tuple[str, int]],
    exactly_once: bool,
    keys: int,
    source_share: float,
    target_share: float,
) -> None:
    """What cannot be known any more is no exact answer; what is one is right."""

    async def run() -> None:
        logs = MirroredLogs(seed=seed, exactly_once=exactly_once, keys=keys)
        await play(logs, steps)
        logs.compact(logs.source, source_share)
        logs.compact(logs.target, target_share)
        end = logs.source.log(ORIGIN).end_offset
        await check_all(logs, range(end + 1), exact_share=0.0)

    _run(run)


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 10_000), steps=Steps, exactly_once=st.booleans(), lost=st.sampled_from([0.9, 1]))
def test_lost_syncs_cost_reading_not_exactness(
    seed: int, steps: list[tuple[str, int]], exactly_once: bool, lost: float
) -> None:
    async def run() -> None:
        logs = MirroredLogs(seed=seed, exactly_once=exactly_once, lost_syncs=lost)
        await play(logs, steps)
        end = logs.source.log(ORIGIN).end_offset
        await check_all(logs, range(end + 1))

    _run(run)


@pytest.mark.parametrize("seed", range(3))
async def test_long_histories_with_everything_in_them_are_exact(seed: int) -> None:
    """Restarts, aborts, lost syncs, few or many keys, both logs compacted apart: far more than one window
    holds."""
    rng = random.Random(seed)
    logs = MirroredLogs(seed=seed, exactly_once=seed % 2 == 0, keys=rng.choice([10, 400]), offset_lag_max=100)
    for _ in range(6):
        logs.produce(rng.randint(200, 1200))
        logs.copy(rng.randint(200, 1500))
        logs.crash(rng.randint(0, 60))
    logs.copy()
    logs.rest()
    logs.compact(logs.source, rng.choice([0.0, rng.random(), 0.9]))
    logs.compact(logs.target, rng.choice([0.0, rng.random(), 0.9]))
    end = logs.source.log(ORIGIN).end_offset
    await check_all(logs, rng.sample(range(end + 1), 40))


def _run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    """Hypothesis runs plain functions."""
    asyncio.run(scenario())
