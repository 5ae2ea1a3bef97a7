"""When a sync is due and which wait, as in MM2's own queues."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.model import TopicPartition
from twinlog.offsets import OffsetSyncWriter, PartitionSyncState
from twinlog.wire import OffsetSync

Golden = Callable[[str], list[dict[str, Any]]]
TP = TopicPartition("topic", 0)


def sync(upstream_offset: int, downstream_offset: int, partition: TopicPartition = TP) -> OffsetSync:
    return OffsetSync(
        partition=partition, upstream_offset=upstream_offset, downstream_offset=downstream_offset
    )


# ------------------------------------------------------------------------------------------ when it is due


_RUNS = st.lists(
    st.tuples(st.integers(-5, 5), st.integers(-8, 130), st.integers(1, 40)), min_size=1, max_size=12
)


@given(st.integers(0, 50), _RUNS)
def test_a_run_is_due_where_its_records_would_be(lag: int, jumps: list[tuple[int, int, int]]) -> None:
    one_by_one, by_runs = PartitionSyncState(lag), PartitionSyncState(lag)
    upstream = downstream = 1000
    for upstream_jump, downstream_jump, count in jumps:
        upstream += upstream_jump
        downstream += downstream_jump
        expected = []
        for index in range(count):
            if one_by_one.update(upstream + index, downstream + index):
                expected.append(index)
                one_by_one.reset()
        assert by_runs.update_run(upstream, downstream, count) == expected
        upstream += count
        downstream += count


# ---------------------------------------------------------------------------------------------- the queues


def test_queues_are_mm2s_after_every_record(golden: Golden) -> None:
    for vector in golden("offset_sync_writers"):
        writer = OffsetSyncWriter(offset_lag_max=vector["offset_lag_max"])
        for step in vector["steps"]:
            if step["promote"]:
                writer.commit()
            else:
                writer.acknowledged(TP, step["upstream"], step["downstream"])
            queued = [next((s.upstream_offset for s in q), None) for q in (writer.pending, writer.delayed)]
            assert queued == [step["pending"], step["delayed"]], (vector["offset_lag_max"], step)


def test_fire_pending_offset_syncs_waits_for_a_permit() -> None:
    writer = OffsetSyncWriter(offset_lag_max=1, max_in_flight=1)
    writer.acknowledged(TP, 0, 100)
    assert writer.take() == [sync(0, 100)]
    assert writer.in_flight == 1
    writer.acknowledged(TP, 2, 102)
    assert writer.take() == []
    writer.completed()
    assert writer.take() == [sync(2, 102)]


def test_the_newest_pending_sync_of_a_partition_replaces_the_older() -> None:
    writer = OffsetSyncWriter(offset_lag_max=0, max_in_flight=0)
    other = TopicPartition("other", 1)
    writer.acknowledged(TP, 0, 100)
    writer.acknowledged(other, 0, 0)
    writer.acknowledged(TP, 1, 101)
    assert writer.pending == (sync(1, 101), sync(0, 0, other))


def test_an_idle_partition_ends_up_fully_synced() -> None:
    writer = OffsetSyncWriter()
    for offset in range(30):
        writer.acknowledged(TP, offset, offset)
        writer.completed(len(writer.take()))
    writer.commit()
    assert writer.take() == [sync(29, 29)]


def test_at_most_max_in_flight_are_taken() -> None:
    writer = OffsetSyncWriter(max_in_flight=10)
    for partition in range(15):
        writer.acknowledged(TopicPartition("t", partition), 0, 0)
    assert [s.partition.partition for s in writer.take()] == list(range(10))
    assert writer.take() == []
    writer.completed(10)
    assert [s.partition.partition for s in writer.take()] == list(range(10, 15))


def test_a_run_leaves_as_many_syncs_as_the_history_keeps() -> None:
    writer = OffsetSyncWriter(offset_lag_max=9, history_per_partition=3)
    writer.acknowledged_run(TP, 100, 1000, 45)
    assert writer.take() == [sync(120, 1020), sync(130, 1030), sync(140, 1040)]
    assert writer.delayed == (sync(144, 1044),)
    writer.commit()
    assert writer.take() == [sync(144, 1044)]


@given(st.integers(0, 20), _RUNS)
def test_a_run_queues_what_its_records_would_queue(lag: int, jumps: list[tuple[int, int, int]]) -> None:
    one_by_one, by_runs = OffsetSyncWriter(offset_lag_max=lag), OffsetSyncWriter(offset_lag_max=lag)
    upstream = downstream = 1000
    for upstream_jump, downstream_jump, count in jumps:
        upstream += upstream_jump
        downstream += downstream_jump
        by_runs.acknowledged_run(TP, upstream, downstream, count)
        for index in range(count):
            one_by_one.acknowledged(TP, upstream + index, downstream + index)
        assert (by_runs.pending, by_runs.delayed) == (one_by_one.pending, one_by_one.delayed)
        upstream += count
        downstream += count


def test_an_empty_run_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        OffsetSyncWriter().acknowledged_run(TP, 0, 0, 0)


def test_a_forgotten_partition_starts_again() -> None:
    writer = OffsetSyncWriter(offset_lag_max=50)
    writer.acknowledged(TP, 0, 0)
    writer.acknowledged(TP, 1, 1)
    writer.forget(TP)
    assert (writer.pending, writer.delayed) == ((), ())
    writer.acknowledged(TP, 2, 2)
    assert writer.pending == (sync(2, 2),)
