"""What a failover left in force is shown until it is gone."""

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.cli.status.details import add_move
from twinlog.cli.status.rows import FlowRow, InForce


def last(**more: object) -> checkpoint.LastMove:
    told = checkpoint.LastMove(run_id="r1", kind="failover", finished=True, by="ann")
    for name, value in more.items():
        if isinstance(value, list):
            getattr(told, name).extend(value)
        else:
            setattr(told, name, value)
    return told


def left_of_move(told: checkpoint.LastMove, *, running: bool = False) -> list[InForce]:
    row = FlowRow(flow="A->B")
    add_move(checkpoint.FlowMove(last=told, run=checkpoint.MoveRun(running=running)), row)
    return row.in_force


def test_a_finished_move_that_fences_nobody_is_not_in_force() -> None:
    assert left_of_move(last()) == []


def test_a_cut_move_and_one_under_way_say_how_far_they_are() -> None:
    cut = last(finished=False, steps=["CHECK", "FENCE"])
    (shown,) = left_of_move(cut)
    assert (shown.kind, shown.by) == ("MOVE", "ann")
    assert shown.message == "failover r1 was interrupted (done: CHECK, FENCE)"
    assert shown.command == "twinlog failover run 'A->B'"
    (shown,) = left_of_move(cut, running=True)
    assert shown.message.startswith("failover r1 is running")
    assert shown.command == "twinlog failover watch 'A->B'"


def test_a_fence_names_the_cluster_that_it_is_on_and_its_topics() -> None:
    (shown,) = left_of_move(last(fenced_where_left=["orders"]))
    assert (shown.kind, shown.message) == ("FENCE", "nobody may write to 1 topic on A: orders")
    (shown,) = left_of_move(last(kind="failback", fenced_where_left=["a"]))
    assert "on B" in shown.message


def test_a_failback_that_was_given_up_leaves_the_fence_of_the_failover() -> None:
    given_up = last(kind="failback", aborted=True, fenced_where_entered=["orders"])
    (shown,) = left_of_move(given_up)
    assert (shown.kind, "on A" in shown.message) == ("FENCE", True)


def test_a_fence_that_moves_of_others_hold_is_told_with_what_removes_it() -> None:
    other = checkpoint.OtherFence(holders=["A->C id"], topics=["orders"], remedy="kafka-acls --remove …")
    row = FlowRow(flow="A->B")
    add_move(checkpoint.FlowMove(other_fences=[other]), row)
    (shown,) = row.in_force
    assert (shown.kind, shown.command) == ("FENCE", "kafka-acls --remove …")
    assert shown.message == "nobody may write to 1 topic on A: orders: moves of A->C id hold the fence"


def test_groups_that_work_on_the_target_are_in_force_until_they_are_back() -> None:
    (shown,) = left_of_move(last(on_target=True, groups_on_target=2))
    assert (shown.kind, shown.by) == ("MOVED", "ann")
    assert shown.message == "2 groups were moved to B, and not back"
    (shown,) = left_of_move(last(kind="failback", on_target=True, groups_on_target=2))
    assert (shown.message, shown.by, shown.since) == ("2 groups were moved to B, and not back", None, None), (
        "a failback that left them there moved nothing to B, at no time"
    )
    (shown,) = left_of_move(last(on_target=True))
    assert shown.message == "groups may have been moved to B, and not back"
    for none in (last(on_target=True, groups_on_target=0), last(on_target=False, groups_on_target=0)):
        assert left_of_move(none) == []
