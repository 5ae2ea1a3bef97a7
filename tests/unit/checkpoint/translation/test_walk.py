"""Walking two logs side by side: duplicates, gaps, compaction, ends."""

import random
from collections import deque
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.batches import DecodedRecord
from twinlog.comparison.compare import Comparison
from twinlog.comparison.model import Side
from twinlog.comparison.sides import Extended, Read
from twinlog.testing.mirror_logs import MemoryLog, bounds_of
from twinlog_checkpoint.translation.aligner import MOST_WINDOW
from twinlog_checkpoint.translation.history import OffsetPair
from twinlog_checkpoint.translation.walk import Answer, EntryCheck, Outcome, Walk


def record(offset: int, name: int, timestamp_ms: int = 0) -> DecodedRecord:
    return DecodedRecord(offset, timestamp_ms, None, b"%d" % name, ())


def walked(
    source: Sequence[DecodedRecord],
    target: Sequence[DecodedRecord],
    wanted: Iterable[int],
    *,
    size: int = 3,
    own_times: bool = False,
    entry: OffsetPair | None = None,
) -> Walk:
    """Compare two logs in small batches, as they may be cut anywhere."""
    logs = {
        Side.SOURCE: MemoryLog.of(source, sizes=[size, size + 1]),
        Side.TARGET: MemoryLog.of(target, sizes=[size + 1, size], appended_at_ms=7 if own_times else None),
    }
    bounds = bounds_of(
        *logs.values(), target_goal=0, position=None, source_compacted=True, target_compacted=True
    )
    walk = Walk(bounds=bounds, wanted=deque(sorted(set(wanted))), entry=entry)
    comparison = Comparison(bounds=bounds, results=walk, most_window=MOST_WINDOW, stamped=frozenset(Side))
    steps = comparison.compare()
    try:
        asked = next(steps)
        while not walk.is_done:
            found = logs[asked.side].read(asked.offset) if isinstance(asked, Read) else None
            asked = steps.send(found or Extended(target_limit=bounds.target_limit, position=None))
    except StopIteration:
        pass
    walk.finish()
    return walk


def answers(
    source: Sequence[DecodedRecord],
    target: Sequence[DecodedRecord],
    wanted: Iterable[int],
    *,
    size: int = 3,
    own_times: bool = False,
) -> dict[int, Answer]:
    return walked(source, target, wanted, size=size, own_times=own_times).answers


def log(names: Iterable[int], first: int = 0, step: int = 1) -> list[DecodedRecord]:
    return [record(first + index * step, name) for index, name in enumerate(names)]


def match(offset: int) -> Answer:
    return Answer(Outcome.MATCH, offset)


def test_equal_logs_at_other_offsets() -> None:
    found = answers(log(range(10)), log(range(10), first=100, step=2), range(10))
    assert found == {offset: match(100 + 2 * offset) for offset in range(10)}


def test_an_offset_in_a_hole_is_the_next_record() -> None:
    source = [record(0, 0), record(5, 1), record(6, 2)]
    assert answers(source, log(range(3)), [1, 5]) == {1: match(1), 5: match(1)}


def test_the_end_of_what_is_copied_is_after_the_last_copied_record() -> None:
    found = answers(log(range(10)), log(range(7), first=50), [6, 7, 9])
    assert found == {6: match(56), 7: Answer(Outcome.AT_END, 57), 9: Answer(Outcome.AT_END, 57)}


def test_a_group_at_the_end_of_the_source_is_after_the_last_copied_record() -> None:
    assert answers(log(range(5)), log(range(5)), [5]) == {5: Answer(Outcome.AT_END, 5)}


def test_records_copied_twice_do_not_move_answers() -> None:
    target = log([*range(10), *range(5, 10), *range(10, 20)])
    found = answers(log(range(20)), target, [7, 10, 12, 19])
    assert found == {7: match(7), 10: match(15), 12: match(17), 19: match(24)}


def test_records_copied_three_times_are_found_where_everything_follows_them() -> None:
    target = log([*range(10), *range(5, 13), *range(10, 20)])
    assert answers(log(range(20)), target, [10, 12, 13]) == {10: match(18), 12: match(20), 13: match(21)}


def test_records_missing_on_the_target_go_to_the_next_one_there_is() -> None:
    target = log([*range(5), *range(9, 20)])
    assert answers(log(range(20)), target, [4, 5, 8, 9]) == {
        4: match(4),
        5: match(5),
        8: match(5),
        9: match(5),
    }


def test_records_missing_on_the_source_are_passed() -> None:
    source = [record(offset, offset) for offset in range(20) if offset not in (3, 4, 5)]
    assert answers(source, log(range(20)), [3, 7]) == {3: match(6), 7: match(7)}


def test_broker_time_on_the_target_is_not_compared() -> None:
    source = [record(offset, offset, timestamp_ms=offset) for offset in range(5)]
    target = [record(offset, offset, timestamp_ms=0) for offset in range(5)]
    walk = walked(source, target, [3], own_times=True, entry=OffsetPair(0, 0))
    assert walk.answers == {3: match(3)}


def test_without_a_pair_logs_without_times_are_not_read_to_the_end() -> None:
    """Nothing that is found can be sure, and each pass would read it again."""
    walk = walked(log(range(600)), log(range(600)), [500], own_times=True)
    assert walk.answers == {500: Answer(Outcome.LOST, None)}
    assert walk.proof.records < 100


def test_equal_values_at_other_times_are_other_records() -> None:
    source = [record(offset, 7, timestamp_ms=offset) for offset in range(20)]
    target = [record(index, 7, timestamp_ms=time) for index, time in enumerate([*range(10), *range(5, 20)])]
    assert answers(source, target, [12]) == {12: match(17)}


def test_unrelated_logs_are_lost_not_guessed() -> None:
    target = log(range(10_000, 16_000))
    assert answers(log(range(6_000)), target, [10], size=1000) == {10: Answer(Outcome.LOST, None)}


def test_a_compacted_copy_of_an_earlier_equal_record_is_not_taken_for_it() -> None:
    source = log([1, 2, 1])
    target = log([2, 1])
    assert answers(source, target, [0, 1, 2]) == {0: match(0), 1: match(0), 2: match(1)}


def test_few_survivors_are_not_passed_over_for_one_at_the_edge_of_what_was_looked_at() -> None:
    """Record 64 is the last of the first window, so nothing there speaks against it."""
    survivors = [0, 30, 31, 64, *range(150, 400, 10)]
    found = answers(log(range(400)), log(survivors, first=1000), [1, 30, 31, 32], size=64)
    assert found == {1: match(1001), 30: match(1001), 31: match(1002), 32: match(1003)}


def test_equal_values_are_told_apart_by_time_in_logs_of_any_length() -> None:
    source = [record(offset, 7, timestamp_ms=offset) for offset in range(4900, 9000)]
    target = [record(index, 7, timestamp_ms=time) for index, time in enumerate(range(5000, 9000))]
    assert answers(source, target, [4990], size=1000) == {4990: match(0)}


def test_a_pair_whose_records_differ_gives_nothing() -> None:
    walk = walked(log(range(10)), log(range(2, 10), first=5), [3], entry=OffsetPair(0, 5))
    assert walk.answers == {3: Answer(Outcome.LOST, None)}
    assert walk.entry_check is EntryCheck.DIFFERENT


@pytest.mark.parametrize("survivors", [0.2, 0.5, 0.9])
def test_two_logs_compacted_apart(survivors: float) -> None:
    rng = random.Random(f"{survivors}")
    names = list(range(500))
    source = [record(name, name) for name in names if rng.random() < 0.9]
    target = [record(name * 2, name) for name in names if rng.random() < survivors]
    there = {each.value for each in target}
    wanted = [each.offset for each in source]
    found = answers(source, target, wanted, size=50)
    for offset in wanted:
        expected = next((each for each in source if each.offset >= offset and each.value in there), None)
        if expected is not None:
            assert found[offset] == match(int(expected.value or b"") * 2)


Restarts = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 20)), min_size=1, max_size=8)


@settings(max_examples=200)
@given(restarts=Restarts, values=st.integers(2, 50), seed=st.integers(0, 1000), wanted=st.integers(0, 200))
def test_an_answer_is_never_ahead_of_its_record(
    restarts: list[tuple[int, int]], values: int, seed: int, wanted: int
) -> None:
    """A mirror that restarts copies a stretch again from a little before; values repeat, times do not."""
    rng = random.Random(seed)
    total = sum(length for length, _ in restarts) + 1
    source = [record(offset, rng.randrange(values), timestamp_ms=offset // 2) for offset in range(total)]
    copied: list[int] = []
    position = 0
    for length, back in restarts:
        position = max(0, position - back)
        copied.extend(range(position, min(total, position + length + back)))
        position = copied[-1] + 1
    target = [source[upstream]._replace(offset=index) for index, upstream in enumerate(copied)]
    offset = wanted % (total + 1)
    answer = answers(source, target, [offset])[offset]
    if offset in copied and answer.offset is not None:
        last_copy = len(copied) - 1 - copied[::-1].index(offset)
        assert answer.offset <= last_copy
        remaining = set(copied[answer.offset :])
        assert set(range(offset, max(copied) + 1)) <= remaining
