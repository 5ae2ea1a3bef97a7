"""Offset syncs are in proportion to what is copied, and a partition that falls quiet is synced to its end."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.model import TopicPartition
from twinlog.offsets import OffsetSyncWriter, PacedSyncs
from twinlog.offsets.sync_pacing import BURST
from twinlog.wire import OffsetSync

P = TopicPartition("topic", 0)
TICK = 0.25
FLUSH = 60.0


@dataclass
class Task:
    """One task after the other; each publishes every tick, and every sync is acknowledged at once."""

    lag_max: int = 100
    now: float = 1000.0
    copied: int = 0
    sent: list[tuple[float, OffsetSync]] = field(default_factory=list)
    paced: PacedSyncs = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        writer = OffsetSyncWriter(offset_lag_max=self.lag_max, max_in_flight=500, history_per_partition=32)
        self.paced = PacedSyncs(writer, flush_seconds=FLUSH)

    def next_epoch(self) -> None:
        pace = self.paced.pace(P, self.now)
        self.begin()
        if pace is not None:
            self.paced.resume(P, pace, self.now)

    def copy(self, upstream: int, downstream: int, count: int = 1) -> None:
        self.paced.acknowledged(P, [(upstream, count)], downstream, self.now)
        self.copied += count

    def tick(self) -> list[OffsetSync]:
        taken = self.paced.take(self.now)
        self.paced.completed(len(taken))
        self.sent += [(self.now, sync) for sync in taken]
        self.now += TICK
        return taken

    def ticks(self, seconds: float) -> list[OffsetSync]:
        return [sync for _ in range(round(seconds / TICK)) for sync in self.tick()]


def sync(upstream: int, downstream: int) -> OffsetSync:
    return OffsetSync(partition=P, upstream_offset=upstream, downstream_offset=downstream)


@pytest.mark.parametrize("epoch_seconds", [30, 3600])
@pytest.mark.parametrize(
    ("per_second", "hole"),
    [
        *((rate, False) for rate in (4, 40, 400, 40_000)),
        *(pytest.param(rate, True, id=f"{rate}-a hole behind every record") for rate in (4, 40, 400)),
    ],
)
def test_a_steady_load_has_less_than_one_sync_in_a_hundred_records(
    per_second: int, hole: bool, epoch_seconds: int
) -> None:
    task, place, per_tick = Task(), 0, round(per_second * TICK)
    for tick in range(round(300 / TICK)):
        if tick and tick * TICK % epoch_seconds == 0:
            task.next_epoch()
        if hole:
            for _ in range(per_tick):
                task.copy(place, place)
                place += 2
        else:
            task.copy(place, place, per_tick)
            place += per_tick
        task.tick()
    assert len(task.sent) <= task.copied / 100 + 1
    assert len(task.sent) >= min(task.copied / 101 - 40, 5)


@given(st.lists(st.tuples(st.integers(1, 400), st.sampled_from([0.25, 1.5, 5.0, 40.0])), max_size=60))
def test_any_load_has_at_most_one_for_101_records_and_one_beside_for_each_flush_interval(
    bursts: list[tuple[int, float]],
) -> None:
    task, place, began = Task(), 0, 1000.0
    for number, (count, pause) in enumerate(bursts):
        task.copy(place, place, count)
        place += count + number % 3
        task.ticks(pause)
    assert len(task.sent) <= 1 + task.copied / 101 + BURST + (task.now - began) / FLUSH


def test_a_partition_that_falls_quiet_is_synced_to_its_last_record_in_about_a_second() -> None:
    task = Task()
    task.copy(0, 0, 40)
    task.ticks(0.25)
    task.copy(40, 40, 10)
    task.ticks(1.5)
    assert task.sent[-1][1] == sync(49, 49)
    assert not task.paced.is_waiting


def test_one_that_falls_quiet_again_and_again_is_synced_within_the_flush_interval() -> None:
    task, place = Task(), 0
    for _ in range(20):
        task.copy(place, place, 3)
        place += 3
        task.ticks(2)
    task.ticks(FLUSH)
    assert task.sent[-1][1] == sync(place - 1, place - 1)


def test_the_first_record_is_synced_at_once_and_the_first_of_the_next_epoch_is_not() -> None:
    task = Task()
    task.copy(7, 3, 5)
    assert task.tick() == [sync(7, 3)]
    task.next_epoch()
    task.copy(12, 8, 5)
    assert task.tick() == []


def test_what_one_epoch_left_unsynced_the_next_one_syncs() -> None:
    task = Task()
    task.copy(0, 0, 50)
    task.tick()
    task.next_epoch()
    assert task.ticks(1.5) == [sync(49, 49)]


@pytest.mark.parametrize(("upstream", "downstream"), [(500, 1000), (1000, 0), (0, 0)])
def test_where_either_side_goes_back_the_very_record_is_synced_at_once(
    upstream: int, downstream: int
) -> None:
    task = Task()
    task.copy(0, 0, 1000)
    task.ticks(5)
    task.copy(upstream, downstream, 5000)
    first = task.tick()[0]
    assert first == sync(upstream, downstream)


def test_nothing_of_before_goes_out_behind_the_record_at_which_a_side_went_back() -> None:
    task = Task()
    task.copy(0, 0, 1000)
    task.copy(1000, 0, 3)
    assert task.tick() == [sync(0, 0), sync(1000, 0), sync(1002, 2)]


def test_also_the_next_epoch_sees_a_target_that_went_back() -> None:
    task = Task()
    task.copy(0, 0, 1000)
    task.ticks(2)
    task.next_epoch()
    task.copy(1000, 0, 10)
    assert task.tick() == [sync(1000, 0)]


def test_a_lag_of_0_syncs_every_record() -> None:
    task = Task(lag_max=0)
    task.copy(0, 0, 20)
    task.ticks(1)
    assert [each for _, each in task.sent] == [sync(offset, offset) for offset in range(20)]


def test_nobody_goes_on_so_the_rest_goes_out() -> None:
    task = Task()
    task.copy(0, 0, 50)
    task.tick()
    assert task.paced.take_rest(task.now) == [sync(49, 49)]


def test_a_sync_that_did_not_arrive_goes_out_again_also_when_nothing_follows() -> None:
    task = Task()
    task.copy(0, 0, 10)
    before = task.ticks(5)
    task.paced.lost({each.partition for each in before})
    assert sync(9, 9) in task.ticks(FLUSH)
    assert task.ticks(10 * FLUSH) == []


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 3), st.integers(1, 150)), min_size=1, max_size=5)
        | st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=30, max_size=70),
        max_size=4,
    ),
    st.integers(0, 3),
)
def test_the_runs_of_a_batch_leave_the_syncs_that_they_leave_one_by_one(
    batches: list[list[tuple[int, int]]], lag_max: int
) -> None:
    together, alone = Task(lag_max=lag_max), Task(lag_max=lag_max)
    upstream = downstream = 0
    for batch in batches:
        runs, base = [], downstream
        for missing, count in batch:
            upstream += missing
            runs.append((upstream, count))
            alone.copy(upstream, downstream, count)
            upstream, downstream = upstream + count, downstream + count
        together.paced.acknowledged(P, runs, base, together.now)
        assert together.paced.pace(P, together.now) == alone.paced.pace(P, alone.now)
        assert together.tick() == alone.tick()
    assert together.ticks(90) == alone.ticks(90)
