"""The part of the last move's record that a plan shows or keeps. Pure."""

from collections.abc import Collection

from twinlog.kafka.ports import AclBinding
from twinlog_checkpoint.journal.record import MoveKind, MoveRecord, MoveState
from twinlog_checkpoint.moves.planning.plan import LastMove


def fences_where_left(last: MoveRecord | None, kind: MoveKind) -> Collection[AclBinding]:
    """The fences that exist on the cluster that a move of this kind leaves."""
    if last is None:
        return ()
    return last.fences if last.kind is kind else last.former_fences


def shown_move(last: MoveRecord) -> LastMove:
    """Convert the record for plans and answers."""
    left = {fence.resource_name for fence in last.fences}
    entered = {fence.resource_name for fence in last.former_fences}
    there = last.on_target_groups
    return LastMove(
        run_id=last.run_id,
        kind=last.kind,
        finished=last.state is MoveState.DONE,
        steps=tuple(last.done),
        by=last.by,
        started_ms=last.started_ms,
        aborted=last.aborted,
        left_behind=last.left_behind,
        fenced_topics=sorted(left | entered),
        fenced_where_left=sorted(left),
        fenced_where_entered=sorted(entered),
        on_target=last.on_target,
        groups_on_target=None if there is None else len(there),
        ended_ms=last.finished_ms,
    )
