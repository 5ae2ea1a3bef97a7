"""OffsetSyncStore: MM2's vectors (OffsetSyncStoreTest), its answers to random histories, and invariants A to
D.
"""

import random
import time
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


def identity(*offsets: int) -> list[tuple[int, int]]:
    return [(offset, offset) for offset in offsets]


# ---------------------------------------------------------------------------------------------- vectors


def test_offset_translation() -> None:
    store = filled([(100, 200)])
    assert translated(store, 150) == 201
    store.apply(sync(150, 251))
    assert distinct(store) == {0: 150, 7: 100}
    assert {u: translated(store, u) for u in (5, 100, 149, 150, 151)} == {
        5: TOO_FAR_BACK,
        100: 200,
        149: 201,
        150: 251,
        151: 252,
    }
    store.apply(sync(200, 10))
    assert translated(store, 200) == 10
    store.apply(sync(20, 20))
    assert distinct(store) == {0: 20}
    assert translated(store, 20) == 20


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


@pytest.mark.parametrize(
    ("offsets", "slots", "translations"),
    [
        (
            identity(*range(17)),
            {0: 16, 1: 15, 2: 14, 3: 12, 4: 8, 5: 0},
            {7: 1, 8: 8, 11: 9, 13: 13, 17: 17},
        ),
        (
            identity(0, 101, 202, 303, 404, 505),
            {0: 505, 8: 404, 9: 202, 10: 0},
            {150: 1, 202: 202, 350: 203, 404: 404, 600: 506},
        ),
        (
            [(11 + step, 4 + step) for step in range(7)],
            {0: 17, 1: 16, 2: 15, 3: 11},
            {10: TOO_FAR_BACK, 13: 5, 15: 8},
        ),
    ],
)
def test_slots_and_translations(
    offsets: list[tuple[int, int]], slots: dict[int, int], translations: dict[int, int]
) -> None:
    store = filled(offsets)
    assert distinct(store) == slots
    assert {u: translated(store, u) for u in translations} == translations


def test_past_offset_translation() -> None:
    store = filled([], loaded=identity(*range(0, 1001, 10)), must_read_to_end=True)
    assert distinct(store) == {0: 1000}
    assert translated(store, 999) == TOO_FAR_BACK
    for offset in range(1010, 10001, 10):
        store.apply(sync(offset, offset))
    assert [s.upstream_offset for s in distinct_syncs(store)] == [
        10000, 9990, 9970, 9940, 9880, 9640, 9160, 8680, 6760, 4840, 1000,
    ]  # fmt: skip
    assert {u: translated(store, u) for u in (999, 4839, 9989)} == {999: TOO_FAR_BACK, 4839: 1001, 9989: 9971}
    store.apply(sync(1500, 11000))
    assert [translated(store, u) for u in (1499, 1500, 2000)] == [TOO_FAR_BACK, 11000, 11001]


def test_past_offset_translation_without_initialization_read_to_end() -> None:
    store = filled([], loaded=identity(*range(0, 1001, 10)), must_read_to_end=False)
    assert [s.upstream_offset for s in distinct_syncs(store)] == [1000, 990, 960, 900, 840, 720, 480, 0]
    expected = {479: 1, 480: 480, 719: 481}
    assert {u: translated(store, u) for u in expected} == expected


def test_old_syncs_are_dropped_when_the_topic_must_be_read_to_its_end() -> None:
    store = filled([], loaded=identity(100, 200, 300), must_read_to_end=True)
    assert distinct(store) == {0: 300}
    assert (translated(store, 200), translated(store, 300)) == (TOO_FAR_BACK, 300)


def test_old_syncs_are_kept_when_the_checkpoints_were_loaded() -> None:
    store = filled([], loaded=identity(175, 275, 375, 475), must_read_to_end=False)
    assert distinct(store) == {0: 475, 8: 375, 9: 175}
    expected = {174: TOO_FAR_BACK, 250: 176, 370: 176, 400: 376}
    assert {u: translated(store, u) for u in expected} == expected


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


@pytest.mark.parametrize("step", [1, 3, 7, 15, 101, 1023, 2**20 - 1, 2**43 - 1])
def test_consistently_spaced_syncs_expire_one_at_a_time(step: int) -> None:
    store = filled([])
    count = 0
    for index in range(1500):
        store.apply(sync(index * step, index * step))
        now = len(distinct_syncs(store))
        assert now >= count, f"more than one sync expired at {index}"
        count = now


@pytest.mark.parametrize("bits", range(0, 41, 4))
def test_randomly_spaced_syncs_expire_few_at_a_time(bits: int) -> None:
    store = filled([])
    steps = random.Random(0)
    upstream = count = 0
    for _ in range(400):
        store.apply(sync(upstream, upstream))
        now = len(distinct_syncs(store))
        assert count + 1 - now <= bits + 2
        count = now
        upstream += steps.randrange(1 << bits) + 1


def test_dropped_syncs_spacing() -> None:
    """Every other gap doubled, as if a sync had been lost: at most two expire for each new one."""
    store = filled([])
    steps = random.Random(0)
    upstream = count = 0
    for _ in range(3000):
        store.apply(sync(upstream, upstream))
        now = len(distinct_syncs(store))
        assert count + 1 - now <= 2
        count = now
        upstream += steps.choice((100, 200))


def test_20k_syncs_are_applied_in_seconds() -> None:
    syncs = [sync(index * 101, index * 101) for index in range(20_000)]
    store = filled([])
    started = time.process_time()
    for each in syncs:
        store.apply(each)
    assert time.process_time() - started < 10


@pytest.mark.parametrize("after", [(30, 15), (30, 20)])
def test_a_target_that_goes_back_drops_the_history(after: tuple[int, int]) -> None:
    """Or that has another record at the offset of the newest sync: it lost its tail."""
    store = filled([(10, 10), (20, 20), after])
    assert distinct_syncs(store) == [sync(*after)]
    assert translated(store, 15) == TOO_FAR_BACK
    assert translated(filled([(10, 10), (20, 20), (20, 20)]), 15) == 11, "it was only said again"
