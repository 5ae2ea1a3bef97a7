"""What reports of tasks make of the table."""

from dataclasses import replace

from twinlog.model import TopicPartition
from twinlog_source.log.facts import CopyFact
from twinlog_source.partitions.events import (
    Assigned,
    Begun,
    Copied,
    CopyDecided,
    LogReread,
    LossRecorded,
    Reported,
    TargetEndSeen,
    TargetRecreated,
    TopicsChosen,
)
from twinlog_source.partitions.orders import PartitionReport, PartitionState, TaskReport
from twinlog_source.partitions.rows import Shortened
from twinlog_source.partitions.standing import SILENT_SECONDS, told_target_end
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.reasons import PartitionReason
from unit.source.partitions.standing_facts import FACTS

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def report(partition: TopicPartition, position: int, end: int, records: int, size: int) -> TaskReport:
    said = PartitionReport(
        partition=partition,
        position=position,
        source_end=end,
        records=records,
        bytes=size,
        raw_records=records,
        state=PartitionState.RUNNING,
    )
    return TaskReport(partitions=(said,))


def said(
    *,
    position: int,
    target_end: int | None = None,
    wrote_nothing: bool = False,
    shortened_to: int | None = None,
    shortened_at: int | None = None,
    times: int = 0,
) -> TaskReport:
    (one,) = report(P, position, position, 0, 0).partitions
    told = replace(
        one,
        target_end=target_end,
        wrote_nothing=wrote_nothing,
        target_shortened_to=shortened_to,
        target_shortened_at=shortened_at,
        target_shortened_times=times,
    )
    return TaskReport(partitions=(told,))


def begun() -> PartitionTable:
    """A table with one partition, which is copied from its beginning."""
    table = PartitionTable()
    table.apply(TopicsChosen(targets={P: "A.t"}), 0.0)
    table.apply(Begun(partition=P, position=0, wrote_nothing=True), 0.0)
    return table


def hears(table: PartitionTable, *words: TaskReport, slot: int = 0, now: float = 1.0) -> None:
    for each in words:
        table.apply(Reported(slot=slot, report=each, now_ms=1), now)


def test_the_log_is_the_truth_after_fencing_and_the_beginning_where_it_says_nothing() -> None:
    table = PartitionTable()
    table.apply(TopicsChosen(targets={P: "A.t", Q: "A.t"}), 0.0)
    table.apply(Begun(partition=P, position=100), 0.0)
    table.apply(Begun(partition=Q, position=200), 0.0)
    hears(table, *(report(partition, 500, 600, 10, 10) for partition in (P, Q)))
    table.apply(LogReread(partitions=[P, Q], positions={P: 450}, leader_epochs={}), 2.0)
    assert (table.rows[P].position, table.rows[P].stored) == (450, True)
    assert (table.rows[Q].position, table.rows[Q].stored) == (200, False)


def test_a_target_that_a_task_found_shortened_is_told_once() -> None:
    table = begun()
    row = table.rows[P]
    hears(table, said(position=100, target_end=120))
    assert row.shortened is None
    for position, target_end in ((110, 100), (130, 140)):
        hears(table, said(position=position, target_end=target_end, shortened_to=90))
    assert row.shortened == Shortened(end_offset=90, first_lost=70, position=100)
    assert row.target_end == 140


def test_a_target_that_loses_the_same_records_a_second_time_is_told_again() -> None:
    """The position was set back to the same record, and the copy lost it at the same place."""
    table = begun()
    row = table.rows[P]
    hears(
        table,
        said(position=100, target_end=120),
        said(position=110, target_end=100, shortened_to=90, shortened_at=100, times=1),
    )
    assert row.shortened is not None
    table.apply(LossRecorded(partition=P, loss=row.shortened), 1.5)
    hears(table, said(position=110, target_end=100, shortened_to=90, shortened_at=100, times=2))
    assert row.shortened is not None


def _shortened_to_90_and_135() -> PartitionTable:
    table = begun()
    hears(
        table,
        said(position=100, target_end=120),
        said(position=110, target_end=100, shortened_to=90, shortened_at=100, times=1),
        said(position=150, target_end=140, shortened_to=90, shortened_at=100, times=1),
        said(position=160, target_end=145, shortened_to=135, shortened_at=150, times=2),
    )
    return table


def test_a_second_loss_does_not_hide_a_first_that_is_not_on_record_yet() -> None:
    """The ledger could not be written meanwhile, and the copy went on."""
    table = _shortened_to_90_and_135()
    row = table.rows[P]
    first = Shortened(end_offset=90, first_lost=70, position=100)
    second = Shortened(end_offset=135, first_lost=145, position=150)
    assert list(row.losses) == [first, second]
    table.apply(LossRecorded(partition=P, loss=first), 1.5)
    assert list(row.losses) == [second]


def test_losses_that_meet_are_one() -> None:
    table = _shortened_to_90_and_135()
    row = table.rows[P]
    table.apply(TargetEndSeen(partition=P, end_offset=80), 2.0)
    assert row.losses == (Shortened(end_offset=80, first_lost=70, position=160),)


def _shortened_to_80() -> PartitionTable:
    """The driver has found that the target ends at 80 instead of 100."""
    table = begun()
    hears(table, said(position=100, target_end=100))
    table.apply(TargetEndSeen(partition=P, end_offset=80), 1.5)
    assert table.rows[P].target_end == 80
    return table


def test_an_end_that_the_next_task_writes_counts_though_it_is_the_one_that_was_disproved() -> None:
    table = _shortened_to_80()
    table.apply(Assigned(partition=P, slot=1), 2.0)
    hears(table, said(position=120, target_end=100), slot=1)
    assert (table.rows[P].target_end, table.rows[P].target_end_at) == (100, 120)


def test_an_end_that_is_told_with_a_shortening_was_written_after_it() -> None:
    table = begun()
    hears(table, said(position=100, target_end=100))
    hears(table, said(position=120, target_end=100, shortened_to=80, shortened_at=100))
    assert table.rows[P].shortened == Shortened(end_offset=80, first_lost=80, position=100)
    assert (table.rows[P].target_end, table.rows[P].target_end_at) == (100, 120)


def test_what_was_disproved_of_one_target_topic_says_nothing_of_the_next() -> None:
    table = _shortened_to_80()
    table.apply(TargetRecreated(partition=P), 2.0)
    hears(table, said(position=200, target_end=100))
    assert table.rows[P].target_end == 100


def test_counters_of_a_new_task_begin_at_zero_and_nothing_is_counted_twice() -> None:
    table = begun()
    for now, records in ((1.0, 100), (2.0, 300)):
        hears(table, report(P, records, 1000, records, records * 10), now=now)
    table.apply(Assigned(partition=P, slot=1), 3.0)
    (copied,) = table.apply(Reported(slot=1, report=report(P, 350, 1000, 50, 500), now_ms=1), 4.0)
    assert isinstance(copied, Copied)
    assert (copied.records, copied.lanes) == (50, {"UNOPENED": 50})
    assert (table.records, table.bytes) == (350, 3500)
    assert table.rows[P].slot == 1


def test_a_slot_with_a_backlog_wants_all_it_can_get() -> None:
    table = begun()
    hears(table, report(P, 0, 5000, 0, 0))
    assert table.load([P], now=1.0).most_bytes_per_second is None
    hears(table, report(P, 5000, 5000, 5000, 5000), now=2.0)
    demand = table.load([P], now=2.0).most_bytes_per_second
    assert demand is not None
    assert demand > 0


def positions(table: PartitionTable) -> dict[TopicPartition, int | None]:
    return {partition: row.position for partition, row in table.rows.items()}


def test_a_flow_wrote_nothing_as_long_as_its_tasks_and_its_positions_say_so() -> None:
    table = begun()
    row = table.rows[P]
    assert row.wrote_nothing
    hears(table, said(position=50, wrote_nothing=True))
    assert row.wrote_nothing
    # A killed task has committed more than it could report.
    table.apply(LogReread(partitions=(P,), positions={P: 60}, leader_epochs={}), 3.0)
    assert not row.wrote_nothing
    reread = LogReread(partitions=(P,), positions={P: 60}, leader_epochs={}, wrote_nothing={P})
    table.apply(reread, 3.0)
    assert row.wrote_nothing
    hears(table, said(position=70))
    assert not row.wrote_nothing


def test_a_flow_whose_task_is_silent_or_waits_for_an_answer_does_not_say_that_it_wrote_nothing() -> None:
    """A frozen task may have committed what it did not report any more."""
    table = begun()
    table.apply(Assigned(partition=P, slot=0), 0.5)
    hears(table, said(position=40, wrote_nothing=True), now=1.0)
    row, facts = table.rows[P], replace(FACTS, heard_at=table.heard_at.get)
    heard, silent = replace(facts, now=2.0), replace(facts, now=2.0 + SILENT_SECONDS)
    assert [told_target_end(row, each, exactly_once=True) for each in (heard, silent)] == [0, None]
    assert told_target_end(row, heard, exactly_once=False) is None
    (waits,) = said(position=40, wrote_nothing=True).partitions
    waits = replace(waits, reason=PartitionReason.TARGET_SLOW)
    hears(table, TaskReport(partitions=(waits,)), now=2.0)
    assert told_target_end(row, heard, exactly_once=True) is None


def test_a_flow_whose_copy_was_preserved_did_not_write_nothing() -> None:
    """A killed task of an earlier process has told nobody."""
    table = begun()
    copy = CopyFact(partition=P, preserved=True, since=0, reason="", target_topic_id="id")
    for each in (copy, replace(copy, preserved=False)):
        table.apply(CopyDecided(partition=P, copy=each), 1.0)
        assert not table.rows[P].wrote_nothing


def test_a_flow_that_wrote_did_not_write_nothing_after_its_copy_is_gone() -> None:
    table = begun()
    hears(table, said(position=100, target_end=100))
    assert not table.rows[P].wrote_nothing
    table.apply(TargetRecreated(partition=P), 2.0)
    assert not table.rows[P].wrote_nothing
