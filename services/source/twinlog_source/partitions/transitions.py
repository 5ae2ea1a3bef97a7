"""How each event changes a partition's row. Pure: no I/O, time is an argument. Used by `PartitionTable.apply`
only.

Invariant A: a position goes back only by `LogReread`, `Moved`, `Begun`, or when its log is
replaced.

Invariant B: unknown is None; an event never turns it into 0.
"""

from dataclasses import replace
from typing import assert_never

from twinlog.batches import LaneReason
from twinlog.batches.lanes import LEFT_OUT
from twinlog_source.log.facts import EpochStart
from twinlog_source.partitions.events import (
    Assigned,
    BeginningRefused,
    Begun,
    CopyChanged,
    CopyDecided,
    CopyEvent,
    CopyReread,
    CopyTranslated,
    ForeignKnown,
    LossRecorded,
    Moved,
    PartitionEvent,
    PositionEvent,
    PositionRead,
    RecordDated,
    SetAside,
    SourceRecreated,
    TargetChanged,
    TargetChecked,
    TargetContinued,
    TargetEndSeen,
    TargetEvent,
    TargetForgotten,
    TargetRecreated,
    TargetRemembered,
    TargetReplaced,
    TargetStartSeen,
)
from twinlog_source.partitions.foreign_stretches import with_write
from twinlog_source.partitions.lag_time import LagTime
from twinlog_source.partitions.reports import PartitionReport, PartitionState
from twinlog_source.partitions.rows import Blocker, PartitionRow, Shortened

LONG_AGO_SECONDS = 1e6
"""Longer than any write may be on its way."""


def change(row: PartitionRow, event: PartitionEvent, now: float) -> None:
    """Apply an event of one partition; `now` is in monotonic seconds."""
    match event:
        case Assigned(slot=slot):
            _assign(row, slot, now)
        case RecordDated(offset=offset, written_at=at):
            row.lag_time.note_written(offset, at)
        case CopyChanged() | CopyDecided() | CopyReread() | CopyTranslated():
            _change_copy(row, event)
        case (
            TargetRecreated()
            | ForeignKnown()
            | TargetForgotten()
            | TargetChanged()
            | TargetRemembered()
            | TargetEndSeen()
            | TargetContinued()
            | TargetChecked()
            | TargetStartSeen()
            | LossRecorded()
            | TargetReplaced()
        ):
            _change_target(row, event)
        case _:
            _change_position(row, event)


def _assign(row: PartitionRow, slot: int, now: float) -> None:
    row.slot = slot
    if not row.knows_former_tasks:
        cut_off(row, now)
    if row.copy is not None:
        _note_skipped(row, row.copy.skip_from, row.copy.skip_to)
    row.records.begin(now)
    row.bytes.begin(now)
    row.counted_lanes = {}
    row.told_shortened = None
    row.disproved_end = None
    _forget_words(row)


def cut_off(row: PartitionRow, now: float) -> None:
    """Tasks that had the partition may still have writes in flight, but may begin no new ones."""
    row.knows_former_tasks, row.cut_off_at = True, now


def end_in_order(row: PartitionRow, now: float) -> None:
    """Its task has sent its last message, which is on the log."""
    row.stored = True
    report = row.report
    if not row.is_preserved or (report is not None and report.at_rest):
        return
    if report is None or not report.is_quiet or not row.knows_former_tasks:
        cut_off(row, now)
    elif row.cut_off_at is None:
        # It is not at rest, and nobody's writes have to be waited for.
        cut_off(row, now - LONG_AGO_SECONDS)


def _note_skipped(row: PartitionRow, first: int, end: int) -> None:
    """The present task knows about the skipped range, and so does each later one: none of them reads it."""
    if first < end and (row.skip_cut_off is None or row.skip_cut_off[0] != (first, end)):
        row.skip_cut_off = (first, end), row.cut_off_at


# ------------------------------------------------------------------------------------------------ positions


def _change_position(row: PartitionRow, event: PositionEvent) -> None:
    match event:
        case PositionRead(position=position, leader_epochs=epochs):
            row.position, row.stored, row.blocker, row.leader_epochs = position, True, None, epochs
        case Begun(position=position, stored=stored):
            row.initial = row.position = position
            row.stored, row.blocker = stored, None
            row.leader_epochs = () if stored else row.leader_epochs
        case BeginningRefused(before=before):
            row.position = before
        case SourceRecreated():
            _forget_source(row)
        case SetAside():
            row.blocker = Blocker(reason=event.reason, message=event.message, retry_at=event.retry_at)
        case Moved(position=position):
            row.position, row.stored, row.leader_epochs = position, True, ()
            row.target_end_is_old, row.held_from, row.blocker = True, None, None
            if row.report is not None:
                # Whatever held it up, its next task tries at once.
                row.report = replace(
                    row.report,
                    state=PartitionState.WAITING,
                    reason="",
                    message="",
                    retry_in_seconds=None,
                    source_lost_from=None,
                )
        case _:
            assert_never(event)


def reread(row: PartitionRow, position: int | None, epochs: tuple[EpochStart, ...]) -> None:
    """The log was read after fencing, and decides. None: it has no position."""
    if position is not None:
        row.position, row.stored = position, True
    elif row.position is not None:
        row.position, row.stored = row.initial, False
    row.leader_epochs = epochs


def follow(row: PartitionRow, position: int | None) -> None:
    """Another process copies the flow, and has committed this position; None = the log has none."""
    row.position, row.stored, row.held_from = position, position is not None, None
    _observe_lag(row)


def _forget_source(row: PartitionRow) -> None:
    row.target_end_is_old, row.held_from = True, None
    row.position, row.stored, row.report, row.end, row.end_problem = None, False, None, None, None
    row.lag_time = LagTime()


# ----------------------------------------------------------------------------------------------------- ends


def see_end(row: PartitionRow, end_offset: int, asked_at: float) -> None:
    """The driver asked the leader at `asked_at`: the log ends here, whatever was known before."""
    row.end_problem = None
    if end_offset < (row.end or 0) and asked_at < row.end_at:
        return  # A task has seen a later end since the leader was asked.
    _set_end(row, end_offset, max(asked_at, row.end_at))
    _observe_lag(row)


def check_movement(row: PartitionRow, *, paused: bool, now: float) -> None:
    """Check whether a partition that should make progress has made it."""
    # The last known end suffices: ends do not go back, so the backlog before it still exists.
    row.stall.observe(row.position, must_move=bool(row.last_known_lag) and not paused, now=now)


def _set_end(row: PartitionRow, end: int, at: float) -> None:
    before = 0 if row.end is None and row.came_later else row.end
    if before is not None and end > before:
        row.grew_at = at
    row.came_later = False
    row.end, row.end_at = end, at


def _observe_lag(row: PartitionRow) -> None:
    if row.end is not None and row.position is not None:
        row.lag_time.observe(row.position, row.end, row.end_at)


# -------------------------------------------------------------------------------------------------- reports


def take(row: PartitionRow, report: PartitionReport, *, slot: int, now: float, now_ms: int) -> None:
    """Take the newest report of the task that owns the partition."""
    row.slot = slot
    shortened_to = report.target_shortened_to
    told = shortened_to, report.target_shortened_at, report.target_shortened_times
    # Also at the same place again: records that an operator had copied again may be lost again.
    if shortened_to is not None and told != row.told_shortened:
        row.told_shortened = told
        _see_target_end(row, shortened_to, next_written=report.target_shortened_at)
        row.disproved_end = None  # The task knows about the loss, so the end that it reports is newer.
    if report.target_end is None or report.target_end != row.disproved_end:
        row.target_end, row.disproved_end = report.target_end, None
        if not report.target_end_is_old:
            row.target_end_at, row.target_end_is_old = report.position, False
    # A task repeats the end of its last fetch, however old it is. Only a larger end was just seen.
    end, before = report.source_end, row.task_end
    if end is not None and end != before and end >= (row.end or 0):
        _set_end(row, end, now)
    row.report, row.reported_at, row.reported_at_ms = report, now, now_ms
    row.position = report.position
    _observe_lag(row)
    if row.end is not None:
        row.catch_up.observe(report.position, row.end, now)
    row.leader_epochs = report.leader_epochs
    for write in report.foreign_writes:
        row.foreign_write = write
        row.foreign_records += write.records
        row.foreign_writes = with_write(row.foreign_writes, write)
    if report.skipped is not None and row.copy is not None and row.copy.preserved:
        row.copy = replace(
            row.copy,
            skip_from=report.skipped.first,
            skip_to=report.skipped.end,
            leader_epoch=report.leader_epoch if report.leader_epoch is not None else row.copy.leader_epoch,
        )
        _note_skipped(row, report.skipped.first, report.skipped.end)


def added_by_lane(row: PartitionRow, report: PartitionReport) -> dict[str, int]:
    """The increase of a task's counters by lane since its last report."""
    counts = {**report.recoded_records, "UNOPENED": report.raw_records, LaneReason.ECHO: report.echoes}
    added = {lane: count - row.counted_lanes.get(lane, 0) for lane, count in counts.items()}
    row.counted_lanes = counts
    copied = {lane: records for lane, records in added.items() if records > 0}
    row.left_out.update({lane: records for lane, records in copied.items() if lane in LEFT_OUT})
    return copied


def _forget_words(row: PartitionRow) -> None:
    """The last task's reports about the kind of the copy are settled."""
    if row.report is not None and row.report.needs_translation:
        row.report = replace(row.report, needs_translation=False)


# ------------------------------------------------------------------------------------------------ the target


def _change_target(row: PartitionRow, event: TargetEvent) -> None:
    match event:
        case TargetForgotten() | TargetRecreated():
            _forget_target(row)
            row.foreign_write, row.foreign_records, row.foreign_writes = None, 0, ()
        case ForeignKnown(records=records, writes=writes):
            row.foreign_write = writes[-1] if records else None
            row.foreign_records, row.foreign_writes = records, writes
        case TargetChanged():
            row.target_end = row.target_checked = None
        case TargetRemembered(end_offset=end, position=position, held_from=held_from):
            row.target_end, row.target_end_at = end, position
            # The position may have gone back since an older end.
            row.held_from = held_from if event.is_newest and row.held_from is None else row.held_from
            row.target_end_is_old, row.target_checked = not event.is_newest, event.checked
        case TargetEndSeen(end_offset=end):
            _see_target_end(row, end)
        case TargetContinued(end_offset=end, log_end=log_end):
            _see_continued(row, end, log_end)
        case TargetChecked(checked=checked):
            row.target_checked = checked
        case TargetStartSeen(start_offset=start):
            _see_target_start(row, start)
        case LossRecorded(loss=loss):
            row.losses = tuple(each for each in row.losses if each != loss)
        case TargetReplaced(position=position):
            row.replaced_at = position if row.replaced_at is None else row.replaced_at
            row.losses = ()
        case _:
            assert_never(event)


def _forget_target(row: PartitionRow) -> None:
    row.target_end_is_old = False
    row.target_end, row.target_end_at, row.losses, row.replaced_at = None, 0, (), None
    row.held_from = row.disproved_end = row.target_checked = None


def _see_target_start(row: PartitionRow, start: int) -> None:
    if row.copy is not None and row.copy.preserved:
        # What is filled before the copy's beginning is deleted later; the start only grows then.
        row.held_from = max(start, row.copy.since, row.held_from or 0)
    elif row.target_end is not None:
        # No more records than offsets; the others are transaction markers, and records of other producers.
        # While no position goes back, the copy only loses what it began with.
        row.held_from = max(row.held_from or 0, row.target_end_at - (row.target_end - start))


def _see_target_end(row: PartitionRow, end_offset: int, *, next_written: int | None = None) -> None:
    """The target's log ends, or ended, here.

    `next_written` is the source offset of the record that was written there next; None = none yet.
    """
    if row.target_end is None or end_offset >= row.target_end or row.position is None:
        return
    # No more records than offsets are lost; the other offsets are transaction markers.
    first_lost = max(0, min(row.target_end_at, row.position) - (row.target_end - end_offset))
    lost = Shortened(
        end_offset=end_offset,
        first_lost=first_lost,
        position=row.position if next_written is None else max(first_lost, next_written),
    )
    row.losses = _with_loss(row.losses, lost)
    row.disproved_end = row.target_end
    row.target_end, row.target_end_at = end_offset, first_lost
    if row.target_checked is not None and end_offset < row.target_checked.end_offset:
        row.target_checked = row.target_checked._replace(end_offset=end_offset, position=first_lost)


def _see_continued(row: PartitionRow, end_offset: int, log_end: int) -> None:
    """The target's log has other records from `end_offset` on than those that were checked there."""
    checked = row.target_checked
    if checked is None or end_offset >= checked.end_offset or row.position is None:
        return
    first_lost = max(0, min(checked.position, row.position) - (checked.end_offset - end_offset))
    lost = Shortened(end_offset=end_offset, first_lost=first_lost, position=row.position)
    row.losses = _with_loss(row.losses, lost)
    row.target_checked = checked._replace(end_offset=end_offset, position=first_lost)
    if row.target_end is not None and log_end < row.target_end:
        row.disproved_end = row.target_end
        row.target_end = log_end
        row.target_end_at = row.position if log_end > end_offset else first_lost


def _with_loss(losses: tuple[Shortened, ...], lost: Shortened) -> tuple[Shortened, ...]:
    """Add a loss. It may include records that were written behind earlier losses; overlapping losses are
    joined."""
    while losses and lost.first_lost <= losses[-1].position:
        *rest, last = losses
        lost = Shortened(
            end_offset=min(last.end_offset, lost.end_offset),
            first_lost=min(last.first_lost, lost.first_lost),
            position=max(last.position, lost.position),
        )
        losses = tuple(rest)
    return (*losses, lost)


# ------------------------------------------------------------------------------------------ the kind of copy


def _change_copy(row: PartitionRow, event: CopyEvent) -> None:
    row.copy = event.copy
    match event:
        case CopyChanged(copy=copy):
            if copy is None:
                row.skip_cut_off = None
        case CopyDecided(has_no_writer=has_no_writer):
            row.blocker = None
            if has_no_writer:
                # Also if this process followed the flow and read its log before the take-over.
                row.knows_former_tasks, row.cut_off_at = True, None
            _forget_words(row)
        case CopyReread():
            _forget_words(row)
        case CopyTranslated(position=position):
            row.position, row.stored = position, True
            held_from = row.held_from
            _forget_target(row)
            row.held_from = held_from
            _forget_words(row)
        case _:
            assert_never(event)
