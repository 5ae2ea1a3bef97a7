"""Whether a failover is in effect, as the checkpoint service's record of moves says it."""

from twinlog.model import Flow
from twinlog.moves.record import MoveKind, Moves, MoveState, Run
from twinlog.write_blocks import fence_of
from twinlog_configsync.flow.loop_guard import FailoverSeen, failover_of

FLOW = Flow("A", "B")


def test_the_fences_are_those_on_either_cluster() -> None:
    moves = Moves(flow=FLOW, fences={"A": {"orders": "r"}, "B": {"A.orders": "q"}})
    assert failover_of(moves) == FailoverSeen(fences=frozenset(map(fence_of, ("orders", "A.orders"))))


def test_a_run_that_was_given_up_after_its_first_commit_is_in_effect() -> None:
    run = Run(run_id="r", kind=MoveKind.FAILOVER, state=MoveState.DONE, aborted=True, on_target=True)
    assert "not back (the last failover was given up)" in failover_of(Moves(flow=FLOW, run=run)).words
