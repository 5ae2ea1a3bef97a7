"""Invariants of the dense history of offset pairs."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.model import TopicPartition
from twinlog.wire import TopicIds
from twinlog_checkpoint.translation.history import (
    MAX_PAIRS_PER_PARTITION,
    OffsetPair,
    PairHistory,
    SyncHistory,
)


def history(*pairs: tuple[int, int]) -> PairHistory:
    pairs_of_partition = PairHistory()
    for upstream, downstream in pairs:
        pairs_of_partition.on_sync(OffsetPair(upstream, downstream))
    return pairs_of_partition


def contents(pairs: PairHistory) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    upstream = -1
    while (pair := pairs.above(upstream)) is not None:
        found.append((pair.upstream, pair.downstream))
        upstream = pair.upstream
    return found


def test_the_topics_of_syncs_are_known_also_after_a_restart() -> None:
    seen, restored, partition = SyncHistory(), SyncHistory(), TopicPartition("orders", 3)
    seen.on_sync(partition, OffsetPair(100, 200))
    kept = history((100, 200)).condensed()
    assert kept is not None
    restored.restore(partition, kept)
    for known in (seen, restored):
        assert (known.has_topic("orders"), known.has_topic("orders-3")) == (True, False)


def test_the_nearest_pairs_on_both_sides() -> None:
    pairs = history((100, 200), (150, 251), (200, 310))
    assert pairs.at_or_below(99) is None
    assert pairs.at_or_below(100) == OffsetPair(100, 200)
    assert pairs.at_or_below(199) == OffsetPair(150, 251)
    assert pairs.above(150) == OffsetPair(200, 310)
    assert pairs.above(200) is None
    assert pairs.downstream_at_or_below(309) == OffsetPair(150, 251)
    assert pairs.downstream_above(251) == OffsetPair(200, 310)
    assert pairs.newest() == OffsetPair(200, 310)


def test_a_rewound_copy_voids_the_pairs_above_it() -> None:
    pairs = history((0, 0), (50, 50), (100, 100))
    before = pairs.generation
    pairs.on_sync(OffsetPair(40, 130))
    assert contents(pairs) == [(0, 0), (40, 130)]
    assert pairs.generation > before


def test_a_target_recreated_voids_every_pair() -> None:
    pairs = history((0, 0), (50, 50), (100, 100))
    pairs.on_sync(OffsetPair(101, 0))
    assert contents(pairs) == [(101, 0)]


def test_a_source_recreated_voids_every_pair() -> None:
    pairs = history((10, 10), (50, 50))
    pairs.on_sync(OffsetPair(0, 51))
    assert contents(pairs) == [(0, 51)]


@pytest.mark.parametrize("ids", [TopicIds("a2", "b"), TopicIds("a", "b2")])
def test_a_sync_of_another_topic_voids_every_pair_also_where_its_offsets_rise(ids: TopicIds) -> None:
    pairs = PairHistory()
    pairs.on_sync(OffsetPair(10, 10), TopicIds("a", "b"))
    before = pairs.generation
    pairs.on_sync(OffsetPair(50, 51), ids)
    assert contents(pairs) == [(50, 51)]
    assert pairs.generation > before
    assert not pairs.vouched(OffsetPair(10, 10))


def test_a_verified_pair_fits_between_and_never_contradicts() -> None:
    pairs = history((0, 0), (100, 100))
    before = pairs.generation
    for pair in [
        OffsetPair(50, 50),
        OffsetPair(50, 51),
        OffsetPair(60, 40),
        OffsetPair(0, 1),
        OffsetPair(70, 200),
    ]:
        pairs.on_verified(pair)
    assert contents(pairs) == [(0, 0), (50, 50), (100, 100)]
    assert pairs.generation == before


def test_a_late_sync_keeps_the_pairs_verified_beyond_it() -> None:
    pairs = history((0, 0))
    before = pairs.generation
    pairs.on_verified(OffsetPair(500, 510))
    pairs.on_sync(OffsetPair(101, 102))
    assert contents(pairs) == [(0, 0), (101, 102), (500, 510)]
    pairs.on_sync(OffsetPair(500, 510))
    assert contents(pairs) == [(0, 0), (101, 102), (500, 510)]
    assert pairs.generation == before


def test_a_sync_that_contradicts_a_verified_pair_wins() -> None:
    pairs = history((0, 0))
    pairs.on_verified(OffsetPair(500, 510))
    pairs.on_sync(OffsetPair(400, 600))
    assert contents(pairs) == [(0, 0), (400, 600)]


def test_memory_is_bounded_and_the_newest_stay_dense() -> None:
    pairs = history(*((offset, offset + 7) for offset in range(MAX_PAIRS_PER_PARTITION + 1)))
    assert len(pairs) < MAX_PAIRS_PER_PARTITION
    assert pairs.at_or_below(0) == OffsetPair(0, 7)
    assert pairs.at_or_below(1) == OffsetPair(0, 7)
    newest = MAX_PAIRS_PER_PARTITION
    assert pairs.at_or_below(newest - 1) == OffsetPair(newest - 1, newest + 6)


Offsets = st.integers(min_value=0, max_value=200)


@given(st.lists(st.tuples(Offsets, Offsets, st.booleans()), max_size=60))
def test_both_sides_always_rise_and_the_newest_sync_is_always_there(
    events: list[tuple[int, int, bool]],
) -> None:
    pairs = PairHistory()
    for upstream, downstream, verified in events:
        pair = OffsetPair(upstream, downstream)
        if verified:
            pairs.on_verified(pair)
            continue
        pairs.on_sync(pair)
        assert pairs.at_or_below(upstream) == pair
        assert pairs.downstream_at_or_below(downstream) == pair
    found = contents(pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(found))
