"""OffsetSyncStore: MM2's own answers to random histories, and invariants A to D."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.model import TopicPartition
from twinlog.offsets import OffsetSyncStore, SyncTranslation, TranslationOutcome
from twinlog.offsets.sync_store import SLOTS
from twinlog.wire import OffsetSync

Golden = Callable[[str], list[dict[str, Any]]]
TP = TopicPartition("topic1", 2)
TOO_FAR_BACK = -1


def sync(upstream_offset: int, downstream_offset: int) -> OffsetSync:
    return OffsetSync(partition=TP, upstream_offset=upstream_offset, downstream_offset=downstream_offset)


def filled(
    syncs: Iterable[tuple[int, int]], *, loaded: Iterable[tuple[int, int]] = (), must_read_to_end: bool = True
) -> OffsetSyncStore:
    """A store that read `loaded` at its start and `syncs` after."""
    store = OffsetSyncStore(must_read_to_end=must_read_to_end)
    for upstream, downstream in loaded:
        store.apply(sync(upstream, downstream))
    store.finish_reading()
    for upstream, downstream in syncs:
        store.apply(sync(upstream, downstream))
    return store


def translated(store: OffsetSyncStore, upstream_offset: int) -> int | None:
    """The answer as MM2 gives it: None, -1 for too far back, or the offset."""
    translation = store.translate(TP, upstream_offset)
    if translation.outcome is TranslationOutcome.TOO_OLD:
        return TOO_FAR_BACK
    return translation.downstream_offset


def distinct_syncs(store: OffsetSyncStore) -> Sequence[OffsetSync]:
    """Each sync of the partition's slots once, newest first."""
    return list({id(sync): sync for sync in store.slots(TP)}.values())


def distinct(store: OffsetSyncStore) -> dict[int, int]:
    """First slot of each distinct sync and its upstream offset."""
    slots = store.slots(TP)
    return {i: slots[i].upstream_offset for i in range(SLOTS) if i == 0 or slots[i] is not slots[i - 1]}


# ---------------------------------------------------------------------------------------------- answers


def test_no_translation_if_store_not_started() -> None:
    store = OffsetSyncStore(must_read_to_end=True)
    assert [translated(store, u) for u in (0, 100, 200)] == [None, None, None]
    store.apply(sync(100, 200))
    assert store.translate(TP, 100) == SyncTranslation(outcome=TranslationOutcome.NOT_READ)
    assert not store.read_to_end
    store.finish_reading()
    assert store.read_to_end
    assert [translated(store, u) for u in (0, 100, 200)] == [TOO_FAR_BACK, 200, 201]


def test_no_translation_if_no_offset_sync() -> None:
    assert filled([]).translate(TP, 0) == SyncTranslation(outcome=TranslationOutcome.NO_SYNC)


def test_random_histories_end_as_in_mm2(golden: Golden) -> None:
    for vector in golden("offset_sync_stores"):
        store = filled(vector["after"], loaded=vector["before"], must_read_to_end=vector["must_read_to_end"])
        assert [s.upstream_offset for s in store.slots(TP)] == vector["slots"]
        for upstream, downstream in vector["translations"]:
            assert translated(store, upstream) == downstream


def test_partitions_do_not_mix() -> None:
    store = filled([(100, 200)])
    other = TopicPartition("topic1", 3)
    assert store.translate(other, 100).outcome is TranslationOutcome.NO_SYNC
    assert store.slots(other) == ()
    store.apply(OffsetSync(partition=other, upstream_offset=7, downstream_offset=8))
    assert store.partitions() == {TP, other}
    assert store.translate(other, 7).downstream_offset == 8
    assert translated(store, 100) == 200


def test_a_translation_says_what_it_rests_on() -> None:
    store = filled([(100, 200)])
    assert store.translate(TP, 100).outcome is TranslationOutcome.AT_SYNC
    assert store.translate(TP, 101) == SyncTranslation(
        outcome=TranslationOutcome.AFTER_SYNC, downstream_offset=201, sync=sync(100, 200)
    )
    assert store.translate(TP, 99) == SyncTranslation(outcome=TranslationOutcome.TOO_OLD, sync=sync(100, 200))


# ------------------------------------------------------------------------------------------- invariants

_STEPS = st.lists(
    st.one_of(st.integers(1, 4), st.integers(1, 200), st.integers(1, 2**40)), min_size=1, max_size=150
)


def rising(steps: list[int]) -> list[tuple[int, int]]:
    """Syncs whose offsets rise by `steps` on both sides; the target falls behind a little."""
    upstream = downstream = 0
    syncs = [(0, 0)]
    for step in steps:
        upstream += step
        downstream += max(step // 2, 1)
        syncs.append((upstream, downstream))
    return syncs


@given(_STEPS)
def test_invariant_a_the_first_slot_is_the_newest_sync(steps: list[int]) -> None:
    store = filled([])
    for upstream, downstream in rising(steps):
        store.apply(sync(upstream, downstream))
        assert store.slots(TP)[0] == sync(upstream, downstream)


@given(_STEPS)
def test_invariant_b_a_slot_never_reaches_further_back_than_its_share(steps: list[int]) -> None:
    slots = filled(rising(steps)).slots(TP)
    for j in range(SLOTS):
        for i in range(j):
            if slots[i] is not slots[j]:
                assert slots[i].upstream_offset <= slots[j].upstream_offset + 2**j - 2**i, (i, j)


@given(_STEPS)
def test_invariant_c_distinct_syncs_keep_apart(steps: list[int]) -> None:
    slots = filled(rising(steps)).slots(TP)
    for j in range(SLOTS):
        for i in range(j):
            if slots[i] is not slots[j]:
                assert slots[i].upstream_offset >= slots[j].upstream_offset + 2 ** max(i - 2, 0), (i, j)


@given(_STEPS)
def test_invariant_d_the_last_slot_is_the_earliest_usable_sync(steps: list[int]) -> None:
    syncs = rising(steps)
    assert filled(syncs).slots(TP)[-1] == sync(*syncs[0])
    assert filled(syncs, loaded=[(0, 0)]).slots(TP)[-1] == sync(0, 0)


@given(_STEPS, st.integers(0, 2**41))
def test_a_translation_is_never_ahead_of_the_next_record(steps: list[int], asked: int) -> None:
    syncs = rising(steps)
    answer = translated(filled(syncs), asked)
    assert answer is not None
    nearest = max(pair for pair in syncs if pair[0] <= asked)
    assert 0 <= answer <= nearest[1] + (nearest[0] != asked)


@given(_STEPS, st.lists(st.integers(0, 2**41), min_size=2, max_size=20))
def test_translation_is_monotonic_for_a_fixed_store(steps: list[int], asked: list[int]) -> None:
    store = filled(rising(steps))
    answers = [store.translate(TP, offset).downstream_offset for offset in sorted(asked)]
    assert None not in answers
    assert answers == sorted(answers, key=lambda offset: offset or 0)


@given(_STEPS, st.data())
def test_a_rewind_drops_the_history(steps: list[int], data: st.DataObject) -> None:
    syncs = rising(steps)
    rewound = data.draw(st.integers(0, syncs[-1][0] - 1))
    store = filled([*syncs, (rewound, 5)])
    assert distinct(store) == {0: rewound}


# ----------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("after", [(30, 15), (30, 20)])
def test_a_target_that_goes_back_drops_the_history(after: tuple[int, int]) -> None:
    """Or that has another record at the offset of the newest sync: it lost its tail."""
    store = filled([(10, 10), (20, 20), after])
    assert distinct_syncs(store) == [sync(*after)]
    assert translated(store, 15) == TOO_FAR_BACK
    assert translated(filled([(10, 10), (20, 20), (20, 20)]), 15) == 11, "it was only said again"
