"""Foreign writes: what lies between records of ours and is not ours is found, and nobody else is accused."""

from twinlog.batches.header import BatchHeader
from twinlog.model import TopicPartition
from twinlog_source.partitions.orders import ForeignWrite
from twinlog_source.partitions.rows import MOST_STRETCHES
from twinlog_source.task.foreign_writes import writes_of
from twinlog_source.task.partition import PartitionCopy


def copy(*, transactions: bool = True, target_end: int | None = None, exact: bool = False) -> PartitionCopy:
    return PartitionCopy(
        partition=TopicPartition("orders", 0),
        target_topic="A.orders",
        committed=0,
        random=lambda: 0.0,
        target_end=target_end,
        end_is_exact=exact,
        ends_rounds_with_marker=transactions,
        markers_to_come=int(transactions),
    )


def test_batches_of_one_round_and_the_marker_behind_it_follow_each_other() -> None:
    ours = copy()
    assert ours.written(10, 5, 0) is None
    assert ours.written(15, 5, 5) is None
    ours.end_round()
    assert ours.written(21, 5, 10) is None
    ours.end_round()
    assert ours.written(26, 5, 15) is None, "a compacted marker is no trouble"


def test_what_lies_between_two_batches_of_ours_is_to_be_looked_at() -> None:
    ours = copy()
    ours.written(10, 5, 0)
    assert ours.written(16, 5, 5) == (15, 16), "within a round there is no marker"
    ours.end_round()
    assert ours.written(23, 5, 10) == (21, 23)


def test_markers_of_rounds_that_overlap_are_no_trouble() -> None:
    """The data of a round may lie before the marker of the one before it."""
    ours = copy()
    ours.written(10, 5, 0)
    ours.end_round()
    assert ours.written(15, 5, 5) is None, "both markers follow"
    ours.end_round()
    assert ours.written(22, 5, 10) is None
    ours.end_round()
    assert ours.written(28, 5, 15) is None
    ours.end_round()
    assert ours.written(35, 5, 20) == (33, 35), "no marker is counted twice"


def test_without_transactions_every_offset_between_counts() -> None:
    ours = copy(transactions=False)
    ours.written(10, 5, 0)
    ours.end_round()
    assert ours.written(16, 5, 5) == (15, 16)


def test_where_a_task_before_may_have_written_more_nobody_is_accused() -> None:
    assert copy(target_end=5).written(100, 1, 0) is None
    assert copy(target_end=5, exact=True).written(100, 1, 0) == (5, 100)


def test_after_a_round_that_failed_the_end_is_not_known() -> None:
    for harm in ("rewind", "restart"):
        ours = copy()
        ours.written(10, 5, 0)
        if harm == "rewind":
            ours.rewind()
        else:
            ours.restart_at(3)
        assert ours.written(40, 5, 5) is None
        assert ours.written(46, 5, 10) == (45, 46)


def test_an_end_is_old_until_the_next_batch_where_more_may_lie_behind_it() -> None:
    assert not copy().target_end_is_old, "nothing is known of it"
    assert not copy(target_end=5, exact=True).target_end_is_old
    ours = copy(target_end=5)
    assert ours.target_end_is_old
    ours.written(10, 5, 0)
    assert not ours.target_end_is_old
    ours.restart_at(8)
    assert ours.target_end_is_old


def test_a_copy_that_keeps_offsets_is_guarded_elsewhere() -> None:
    ours = copy()
    ours.keeps_offsets = True
    ours.written(10, 5, 0)
    assert ours.written(40, 5, 5) is None


def header(base_offset: int, count: int, producer_id: int, at_ms: int = 7) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        batch_length=100,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp_ms=at_ms,
        max_timestamp_ms=at_ms,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        record_count=count,
    )


def test_batches_of_one_producer_in_a_row_are_one_write() -> None:
    found = writes_of([header(3, 4, 9), header(7, 2, 9, at_ms=8), header(11, 1, -1)], 5, 12)
    assert found == (
        ForeignWrite(from_offset=5, to_offset=9, records=4, producer_id=9, producer_epoch=0, written_at_ms=8),
        ForeignWrite(
            from_offset=11, to_offset=12, records=1, producer_id=-1, producer_epoch=0, written_at_ms=7
        ),
    )


def test_what_lies_outside_the_range_is_not_counted() -> None:
    assert writes_of([header(0, 5, 9), header(12, 3, 9)], 5, 12) == ()


def test_two_who_write_in_turn_do_not_make_a_report_without_end() -> None:
    found = writes_of([header(at, 1, at % 2) for at in range(1_000)], 0, 1_000)
    assert len(found) == MOST_STRETCHES
    assert sum(each.records for each in found) == 1_000
