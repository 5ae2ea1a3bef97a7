"""The recorded moves as a plan shows them. Pure."""

from twinlog.moves.record import Moves, MoveState
from twinlog_checkpoint.moves.planning.plan import LastMove


def shown_move(moves: Moves) -> LastMove | None:
    """The last run; None if there was none."""
    last = moves.run
    if last is None:
        return None
    left = moves.fences.get(moves.leaves(last.kind), {})
    entered = moves.fences.get(moves.enters(last.kind), {})
    there = moves.groups_on_target
    return LastMove(
        run_id=last.run_id,
        kind=last.kind,
        finished=last.state is MoveState.DONE,
        steps=tuple(last.done),
        by=last.by,
        started_ms=last.started_ms,
        aborted=last.aborted,
        left_behind=last.left_behind,
        fenced_topics=sorted({*left, *entered}),
        fenced_where_left=sorted(left),
        fenced_where_entered=sorted(entered),
        on_target=last.on_target,
        groups_on_target=None if there is None else len(there),
        ended_ms=last.finished_ms,
    )
