"""How a partition's row changes by each event, and that nothing else changes it."""

import ast
from dataclasses import fields, replace
from pathlib import Path

import pytest

import twinlog_source
from twinlog.errors import TransientKafkaError
from twinlog.model import TopicPartition
from twinlog_source.log.control import ControlState
from twinlog_source.log.facts import CopyFact, EpochStart
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.events import (
    Assigned,
    BeginningRefused,
    Begun,
    CopyChanged,
    CopyDecided,
    CopyReread,
    CopyTranslated,
    EndsSeen,
    EpochEnded,
    Event,
    Followed,
    ForeignKnown,
    GapFound,
    LogReread,
    LossRecorded,
    Moved,
    PositionRead,
    Reported,
    SetAside,
    SourceRecreated,
    TargetChanged,
    TargetEndSeen,
    TargetRecreated,
    TargetRemembered,
    TargetReplaced,
    TargetStartSeen,
    TopicsChosen,
)
from twinlog_source.partitions.orders import ForeignWrite, PartitionReport, TaskReport
from twinlog_source.partitions.rows import MOST_STRETCHES, PartitionRow, Shortened
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.partitions.transitions import LONG_AGO_SECONDS

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
PRESERVED = CopyFact(partition=P, preserved=True, since=0, reason="", target_topic_id="x")
TRANSLATED = replace(PRESERVED, preserved=False, since=7, reason="COMPACTED")
EPOCHS = (EpochStart(3, 0),)
ASIDE = SetAside(partition=P, reason="NO_POSITION", message="none", retry_at=9.0)


def after(*events: Event) -> tuple[PartitionTable, PartitionRow]:
    """A table with one partition to which this happened, a second between each."""
    table = PartitionTable()
    table.apply(TopicsChosen(targets={P: "A.t"}), 0.0)
    for now, event in enumerate(events, 1):
        table.apply(event, float(now))
    return table, table.rows[P]


def said(position: int = 0, **more: object) -> Reported:
    report = replace(PartitionReport(partition=P, position=position), **more)  # type: ignore[arg-type]
    return Reported(slot=0, report=TaskReport(partitions=(report,)), now_ms=1)


# ------------------------------------------------------------------------------------------------ positions


@pytest.mark.parametrize("wrote_nothing", [False, True])
def test_a_position_of_the_log_says_whether_anything_was_written(wrote_nothing: bool) -> None:
    read = PositionRead(partition=P, position=5, leader_epochs=EPOCHS, wrote_nothing=wrote_nothing)
    _, row = after(Begun(partition=P, position=5), read)
    assert row.wrote_nothing is wrote_nothing
    _, row = after(read, Followed(positions={P: 5}, read_at=1.0))
    assert not row.wrote_nothing, "another process writes"


def test_a_position_of_the_log_is_stored_and_ends_what_kept_the_partition_waiting() -> None:
    _, row = after(ASIDE, PositionRead(partition=P, position=5, leader_epochs=EPOCHS))
    assert (row.position, row.stored, row.leader_epochs, row.blocker) == (5, True, EPOCHS, None)


def test_a_partition_that_begins_is_not_stored_unless_the_driver_has_stored_it() -> None:
    _, row = after(Begun(partition=P, position=5))
    assert (row.position, row.stored, row.initial) == (5, False, 5)
    _, row = after(
        PositionRead(partition=P, position=9, leader_epochs=EPOCHS),
        Begun(partition=P, position=5, stored=True),
    )
    assert (row.position, row.stored, row.leader_epochs) == (5, True, ())


def test_a_beginning_that_is_refused_leaves_the_position_as_it_was() -> None:
    _, row = after(Begun(partition=P, position=5), BeginningRefused(partition=P, before=None))
    assert row.position is None


def test_a_partition_without_a_position_on_the_log_goes_back_to_where_it_began() -> None:
    reread = LogReread(partitions=[P], positions={}, leader_epochs={})
    _, row = after(Begun(partition=P, position=5), said(9), reread)
    assert (row.position, row.stored) == (5, False)
    _, row = after(reread)
    assert row.position is None


def test_the_log_is_the_truth_about_the_partitions_it_was_read_for_only() -> None:
    table = PartitionTable()
    table.apply(TopicsChosen(targets={P: "A.t", Q: "A.t"}), 0.0)
    for partition in (P, Q):
        table.apply(Begun(partition=partition, position=1), 1.0)
    table.apply(LogReread(partitions=[P], positions={P: 7, Q: 7}, leader_epochs={P: EPOCHS}), 2.0)
    assert [(row.position, row.leader_epochs) for row in table.rows.values()] == [(7, EPOCHS), (1, ())]


def test_what_a_task_said_last_is_on_the_log_when_its_epoch_ended_in_order() -> None:
    _, row = after(Begun(partition=P, position=0), said(9))
    assert not row.stored
    _, row = after(Begun(partition=P, position=0), said(9), EpochEnded(partitions=[P, Q]))
    assert (row.position, row.stored) == (9, True)


def test_a_copy_that_is_judged_for_longer_than_an_epoch_waits_for_former_tasks_once() -> None:
    """Each epoch ends before the copy is at rest, and its task has sent nothing."""
    known = CopyDecided(partition=P, copy=PRESERVED, has_no_writer=True)
    end = EpochEnded(partitions=[P])
    _, row = after(known, Begun(partition=P, position=0), said(9, at_rest=True), end)
    assert row.cut_off_at is None
    _, row = after(known, Begun(partition=P, position=0), said(9), end, said(9, is_quiet=True), end)
    assert row.cut_off_at == 4.0, "what the first task sent may still arrive"
    table, row = after(known, Begun(partition=P, position=0), said(9, is_quiet=True), end)
    assert row.cut_off_at == 4.0 - LONG_AGO_SECONDS
    assert table.preserved_at_rest is False


def test_a_position_that_was_moved_is_stored_and_has_no_leader_epochs() -> None:
    _, row = after(
        PositionRead(partition=P, position=9, leader_epochs=EPOCHS), Moved(partition=P, position=4)
    )
    assert (row.position, row.stored, row.leader_epochs) == (4, True, ())


def test_a_recreated_source_leaves_nothing_known_of_its_log() -> None:
    _, row = after(said(9, source_end=20), SourceRecreated(partition=P))
    assert (row.stored, row.position, row.report, row.end) == (False, None, None, None)


def test_a_flow_that_another_process_copies_has_that_ones_positions() -> None:
    table, row = after(Begun(partition=P, position=5), Followed(positions={P: 8}, read_at=1.5))
    assert (row.position, row.stored, table.followed_at) == (8, True, 1.5)
    table.apply(Followed(positions={}, read_at=3.0), 3.0)
    assert (row.position, row.stored) == (None, False)


# --------------------------------------------------------------------------------------------- moves, plans


def test_a_move_ends_what_stood_against_the_partition() -> None:
    table, row = after(Begun(partition=P, position=5), CopyDecided(partition=P, copy=TRANSLATED), ASIDE)
    assert table.plannable() == frozenset()
    table.apply(Moved(partition=P, position=2), 9.0)
    assert table.plannable() == {P}
    assert (row.position, row.stored) == (2, True)


# ----------------------------------------------------------------------------------------------------- ends


def test_an_end_that_cannot_be_read_leaves_what_was_known_and_its_reason() -> None:
    problem = TransientKafkaError("away", reason="KAFKA_UNAVAILABLE")
    seen, unread = EndsSeen(ends={P: 9}, asked_at=1.0), EndsSeen(ends={P: problem}, asked_at=2.0)
    _, row = after(Begun(partition=P, position=5), seen, unread)
    assert (row.end, row.last_known_lag, row.end_problem) == (9, 4, problem)
    _, row = after(seen, unread, EndsSeen(ends={P: 9}, asked_at=3.0))
    assert row.end_problem is None


# ---------------------------------------------------------------------------------------------- the target


def test_a_target_that_ends_early_has_lost_what_was_written_behind_its_end() -> None:
    _, row = after(said(100, target_end=120), TargetEndSeen(partition=P, end_offset=90))
    assert row.shortened == Shortened(end_offset=90, first_lost=70, position=100)
    assert (row.target_end, row.target_end_at) == (90, 70)


def test_a_target_whose_end_is_not_known_has_lost_nothing() -> None:
    _, row = after(Begun(partition=P, position=100), TargetEndSeen(partition=P, end_offset=90))
    assert row.shortened is None
    _, row = after(said(100, target_end=120), TargetEndSeen(partition=P, end_offset=120))
    assert row.shortened is None


def test_only_the_loss_that_is_on_record_is_settled() -> None:
    table, row = after(said(100, target_end=120), TargetEndSeen(partition=P, end_offset=90))
    first = row.shortened
    assert first is not None
    table.apply(TargetEndSeen(partition=P, end_offset=80), 9.0)
    table.apply(LossRecorded(partition=P, loss=first), 9.0)
    assert row.shortened is not None
    table.apply(LossRecorded(partition=P, loss=row.shortened), 9.0)
    assert row.shortened is None


def test_a_replaced_target_holds_the_records_from_where_that_was_seen_first() -> None:
    _, row = after(TargetReplaced(partition=P, position=5), TargetReplaced(partition=P, position=9))
    assert row.replaced_at == 5


def test_what_the_copy_holds_is_counted_back_from_its_end() -> None:
    _, row = after(said(100, target_end=120), TargetStartSeen(partition=P, start_offset=50))
    assert row.held_from == 30
    _, row = after(TargetStartSeen(partition=P, start_offset=50))
    assert row.held_from is None


def test_a_copy_that_has_ended_holds_nothing_before_it_began() -> None:
    """What another producer wrote into it is no record of the source."""
    began = CopyDecided(partition=P, copy=replace(PRESERVED, since=5), has_no_writer=True)
    seen = TargetStartSeen(partition=P, start_offset=5)
    ended = CopyTranslated(partition=P, copy=None, position=156)
    foreign = said(156, target_end=157)
    _, row = after(began, seen, ended, foreign, seen)
    assert row.held_from == 5
    _, row = after(began, seen, ended, foreign, Moved(partition=P, position=2), said(3, target_end=158), seen)
    assert row.held_from == 0, "records before its beginning were copied behind it"
    older = TargetRemembered(partition=P, end_offset=158, position=3, held_from=5, is_newest=False)
    _, row = after(older, seen)
    assert row.held_from == 0


def test_a_recreated_target_leaves_nothing_known_of_its_log() -> None:
    remembered = TargetRemembered(partition=P, end_offset=9, position=5, held_from=2, is_newest=True)
    _, row = after(remembered)
    assert (row.target_end, row.target_end_at, row.held_from) == (9, 5, 2)
    _, row = after(remembered, TargetRecreated(partition=P))
    assert (row.target_end, row.target_end_at, row.held_from) == (None, 0, None)
    _, row = after(remembered, TargetChanged(partition=P))
    assert row.target_end is None


def test_what_others_wrote_into_a_copy_is_gone_with_it() -> None:
    write = ForeignWrite(
        from_offset=5, to_offset=8, records=3, producer_id=7, producer_epoch=0, written_at_ms=1
    )
    _, row = after(said(foreign_writes=(write,)))
    assert (row.foreign_write, row.foreign_records) == (write, 3)
    _, row = after(said(foreign_writes=(write,)), CopyTranslated(partition=P, copy=TRANSLATED, position=7))
    assert (row.foreign_write, row.foreign_records) == (write, 3), "it is the same copy"
    for forgets, left in (
        (TargetRecreated(partition=P), ()),
        (ForeignKnown(partition=P, records=0, writes=(write,)), (write,)),
    ):
        _, row = after(said(foreign_writes=(write,)), forgets)
        assert (row.foreign_write, row.foreign_records) == (None, 0)
        assert row.foreign_writes == left, "an acknowledgement takes nothing out of the copy"


def test_stretches_of_others_in_a_copy_are_few() -> None:
    writes = [
        ForeignWrite(
            from_offset=at, to_offset=at + 2, records=2, producer_id=7, producer_epoch=0, written_at_ms=at
        )
        for at in range(0, 10 * MOST_STRETCHES, 5)
    ]
    _, row = after(said(foreign_writes=tuple(writes)))
    assert len(row.foreign_writes) == MOST_STRETCHES
    assert row.foreign_writes[:-1] == tuple(writes[: MOST_STRETCHES - 1])
    assert row.foreign_writes[-1].to_offset == writes[-1].to_offset
    assert sum(each.records for each in row.foreign_writes) == row.foreign_records == 2 * len(writes)


# ------------------------------------------------------------------------------------------ the kind of copy


def test_a_copy_is_planned_once_its_kind_is_decided() -> None:
    table, _ = after(Begun(partition=P, position=5), ASIDE)
    table.apply(CopyDecided(partition=P, copy=TRANSLATED), 9.0)
    assert table.plannable() == {P}
    table.apply(CopyChanged(partition=P, copy=None), 9.0)
    assert table.plannable() == frozenset()


@pytest.mark.parametrize(
    "event",
    [
        Assigned(partition=P, slot=0),
        CopyReread(partition=P, copy=PRESERVED),
        CopyDecided(partition=P, copy=PRESERVED),
    ],
)
def test_what_an_earlier_task_said_of_the_kind_of_copy_is_settled(event: Event) -> None:
    decided = CopyDecided(partition=P, copy=PRESERVED)
    _, row = after(decided, said(5, needs_translation=True))
    assert row.needs_translation
    _, row = after(decided, said(5, needs_translation=True), event)
    assert not row.needs_translation


def test_a_translated_copy_continues_at_its_position_and_knows_no_target_end() -> None:
    translated = CopyTranslated(partition=P, copy=TRANSLATED, position=7)
    _, row = after(CopyDecided(partition=P, copy=PRESERVED), said(5, target_end=5), translated)
    assert (row.copy, row.position, row.stored, row.target_end) == (TRANSLATED, 7, True, None)


# -------------------------------------------------------------------------------------- effects, one writer


def test_gaps_that_a_task_found_are_left_to_be_entered() -> None:
    gap = Gap(partition=Q, from_offset=1, to_offset=2, reason="RETENTION", found_at_ms=1)
    table, _ = after()
    assert table.apply(Reported(slot=0, report=TaskReport(gaps=(gap,)), now_ms=1), 1.0) == (
        GapFound(gap=gap),
    )


def test_an_event_about_a_partition_that_is_not_copied_changes_nothing() -> None:
    table, _ = after()
    for event in (Begun(partition=Q, position=1), EndsSeen(ends={Q: 1}, asked_at=0.0), said()):
        if isinstance(event, Reported):
            report = replace(event.report.partitions[0], partition=Q)
            event = replace(event, report=TaskReport(partitions=(report,)))
        assert table.apply(event, 1.0) == ()
    assert table.rows == PartitionTable(rows={P: PartitionRow(partition=P, target_topic="A.t")}).rows


KNOWN = {field.name for kind in (PartitionRow, PartitionTable, ControlState) for field in fields(kind)}


def writes(source: str) -> list[str]:
    """Where a module assigns to what a table, a row or the facts in force hold."""
    found: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign | ast.Delete):
            found += node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            found.append(node.target)
    return [ast.unparse(each) for target in found for each in _attributes(target) if each.attr in KNOWN]


def _attributes(target: ast.expr) -> list[ast.Attribute]:
    """The attributes of rows and tables that an assignment to `target` changes."""
    match target:
        case ast.Attribute(value=holder):
            return [target] if _is_known(holder) else []
        case ast.Subscript(value=changed) | ast.Starred(value=changed):
            return _attributes(changed)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [each for part in parts for each in _attributes(part)]
    return []


def _is_known(holder: ast.expr) -> bool:
    """A row or a table, by its name."""
    match holder:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("row", "table", "control") or name.endswith(("_row", "_table", "_control"))
        case ast.Subscript(value=ast.Attribute(attr="rows")):
            return True
    return False


def test_only_their_owners_write_rows_and_facts() -> None:
    (root,) = twinlog_source.__path__
    found = {
        str(path.relative_to(root)): lines
        for path in Path(root).rglob("*.py")
        if path.parent.name != "partitions"
        and path.name != "control.py"
        and (lines := writes(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "row.position = 5",
        "self.table.rows[p].copy, x = 1, 2",
        "driver.table.problem = None",
        "row.records += 1",
        "self.positions.control.copies[p] = fact",
    ],
)
def test_a_write_to_a_row_is_seen(line: str) -> None:
    assert writes(line)
