"""How rows of partitions change. Pure: no I/O, time is an argument. For events and `PartitionTable` only."""

from dataclasses import replace

from twinlog.batches import LaneReason
from twinlog.batches.outgoing import LEFT_OUT
from twinlog_source.log.facts import EpochStart
from twinlog_source.partitions.orders import PartitionReport, PartitionState
from twinlog_source.partitions.rows import PartitionRow, Shortened, with_write

LONG_AGO_SECONDS = 1e6
"""Longer than any write may be on its way."""


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


def note_skipped(row: PartitionRow, first: int, end: int) -> None:
    """The present task knows about the skipped range, and so does each later one: none of them reads it."""
    if first < end and (row.skip_cut_off is None or row.skip_cut_off[0] != (first, end)):
        row.skip_cut_off = (first, end), row.cut_off_at


# ------------------------------------------------------------------------------------------------ positions


def reread(
    row: PartitionRow, position: int | None, epochs: tuple[EpochStart, ...], *, wrote_nothing: bool
) -> None:
    """The log was read after fencing, and decides. None: it has no position."""
    if position is not None:
        row.position, row.stored = position, True
        row.nothing_until = position if wrote_nothing else None
    elif row.position is not None:
        row.is_told = row.is_told and not row.stored  # It was about a copy that had not begun.
        row.position, row.stored = row.initial, False
    row.leader_epochs = epochs


def follow(row: PartitionRow, position: int | None) -> None:
    """Another process copies the flow, and has committed this position; None = the log has none."""
    row.position, row.stored, row.held_from = position, position is not None, None
    row.nothing_until = None
    _observe_lag(row)


# ----------------------------------------------------------------------------------------------------- ends


def see_end(row: PartitionRow, end_offset: int, asked_at: float) -> None:
    """The driver asked the leader at `asked_at`: the log ends here, whatever was known before."""
    row.end_problem = None
    if end_offset < (row.end or 0) and asked_at < row.end_at:
        return  # A task has seen a later end since the leader was asked.
    _set_end(row, end_offset, max(asked_at, row.end_at))
    _observe_lag(row)


def _set_end(row: PartitionRow, end: int, at: float) -> None:
    before = 0 if row.end is None and row.came_later else row.end
    if before is not None and end > before:
        row.grew_at = at
    if row.end is None:
        row.watched_since = at
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
        see_target_end(row, shortened_to, next_written=report.target_shortened_at)
        row.disproved_end = None  # The task knows about the loss, so the end that it reports is newer.
    if report.target_end is None or report.target_end != row.disproved_end:
        row.target_end, row.disproved_end = report.target_end, None
        if not report.target_end_is_old:
            row.target_end_at, row.target_end_is_old = report.position, False
    row.nothing_until = report.position if report.wrote_nothing else None
    # A task repeats the end of its last fetch, however old it is. Only a larger end was just seen.
    end, before = report.source_end, row.task_end
    if end is not None and end != before and end >= (row.end or 0):
        _set_end(row, end, now)
    last = row.report
    if last is None or last.position != report.position:
        row.waited_for = None
    elif last.state is PartitionState.BACKOFF and not report.reason:
        row.waited_for = last.reason, last.message, now
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
        note_skipped(row, report.skipped.first, report.skipped.end)


def added_by_lane(row: PartitionRow, report: PartitionReport) -> dict[str, int]:
    """The increase of a task's counters by lane since its last report."""
    counts = {**report.recoded_records, "UNOPENED": report.raw_records, LaneReason.ECHO: report.echoes}
    added = {lane: count - row.counted_lanes.get(lane, 0) for lane, count in counts.items()}
    row.counted_lanes = counts
    copied = {lane: records for lane, records in added.items() if records > 0}
    row.left_out.update({lane: records for lane, records in copied.items() if lane in LEFT_OUT})
    return copied


def forget_words(row: PartitionRow) -> None:
    """The last task's reports about the kind of the copy are settled."""
    if row.report is not None and row.report.needs_translation:
        row.report = replace(row.report, needs_translation=False)


# ------------------------------------------------------------------------------------------------ the target


def forget_target(row: PartitionRow) -> None:
    row.target_end_is_old = False
    row.target_end, row.target_end_at, row.losses, row.replaced_at = None, 0, (), None
    row.held_from = row.disproved_end = row.target_checked = None


def see_target_end(row: PartitionRow, end_offset: int, *, next_written: int | None = None) -> None:
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
    add_loss(row, lost)
    row.disproved_end = row.target_end
    row.target_end, row.target_end_at = end_offset, first_lost
    if row.target_checked is not None and end_offset < row.target_checked.end_offset:
        row.target_checked = row.target_checked._replace(end_offset=end_offset, position=first_lost)


def add_loss(row: PartitionRow, lost: Shortened) -> None:
    """It may include records that were written behind earlier losses; overlapping losses are joined."""
    losses = row.losses
    while losses and lost.first_lost <= losses[-1].position:
        *rest, last = losses
        lost = Shortened(
            end_offset=min(last.end_offset, lost.end_offset),
            first_lost=min(last.first_lost, lost.first_lost),
            position=max(last.position, lost.position),
        )
        losses = tuple(rest)
    row.losses = (*losses, lost)
